"""From the data of a document to the manifest that it is, or to all that is wrong with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from pydantic import ValidationError

from sensors.spec.base import Flaw, SpecModel
from sensors.spec.messages import Written, translate

API_VERSIONS = ("argoproj.io/v1alpha1", "eventbus.dev/v1alpha1")

Manifest = TypeVar("Manifest", bound=SpecModel)


class Flawed(Exception):
    """The data is no such manifest."""

    def __init__(self, flaws: list[Flaw]) -> None:
        super().__init__()
        self.flaws = flaws


def validated(model: type[Manifest], kind: str, data: Any, written: Written) -> Manifest:
    """Raises `Flawed`."""
    flaws = list(_envelope_flaws(data, kind))
    if flaws:
        raise Flawed(flaws)  # it is something else altogether: complaints about its fields would only confuse
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise Flawed(list(translate(error, model, written))) from None


def _envelope_flaws(data: Any, kind: str) -> Iterator[Flaw]:
    if not isinstance(data, Mapping):
        yield Flaw((), "a manifest must be a mapping with `apiVersion`, `kind`, `metadata` and `spec`")
        return
    for field, allowed in (("apiVersion", API_VERSIONS), ("kind", (kind,))):
        value = data.get(field)
        if value not in allowed:
            fault = "is missing" if value is None else f"cannot be `{value}`"
            yield Flaw((field,), f"`{field}` {fault}; write {' or '.join(f'`{each}`' for each in allowed)}")
