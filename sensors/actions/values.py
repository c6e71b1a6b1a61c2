"""Values that are kept in secrets and config maps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from eventbus.errors import ConfigError
from sensors.actions.base import ActionError
from sensors.secrets import ConfigMapKeySelector, Secret, SecretKeySelector
from sensors.spec.base import Flaw, SpecModel, get
from sensors.spec.fields import Text


@contextmanager
def reading_secrets() -> Iterator[None]:
    """A secret that is not there fails the attempt, and may come back."""
    try:
        yield
    except ConfigError as error:
        raise ActionError(str(error), retriable=True, sent=False) from None


class ValueFrom(SpecModel):
    """Where the value of a header is kept."""

    secretKeyRef: SecretKeySelector | None = None
    """A secret."""
    configMapKeyRef: ConfigMapKeySelector | None = None
    """A config map."""

    @classmethod
    def flaws(cls, data: Any) -> Iterator[Flaw]:
        if isinstance(data, Mapping) and sum(get(data, each) is not None for each in cls.model_fields) != 1:
            yield Flaw((), "must name either a `secretKeyRef` or a `configMapKeyRef`")

    def read(self) -> Secret:
        selector = self.secretKeyRef or self.configMapKeyRef
        assert selector is not None  # noqa: S101 - see flaws
        return selector.read()


class SecureHeader(SpecModel):
    """A header whose value is a secret."""

    name: Text
    """The name of the header."""
    valueFrom: ValueFrom
