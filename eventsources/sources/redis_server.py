"""What the sources that listen to Redis have in common: which server, and who we are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator, Field, StrictInt

from eventsources.base import SourceSpec
from sensors.actions.tls import Tls
from sensors.secrets import Secret, SecretKeySelector
from sensors.spec.fields import Text

if TYPE_CHECKING:
    from redis import Redis

WAIT_SECONDS = 0.5
"""How long to wait for messages before looking whether to stop."""
_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):\d{1,5}")


def _address(text: str) -> str:
    if not _ADDRESS.fullmatch(text):
        raise ValueError("must be the server as `host:port`")
    return text


def _names(texts: tuple[str, ...]) -> tuple[str, ...]:
    if not all(texts) or not texts or len(set(texts)) < len(texts):
        raise ValueError("must be one or more different names")
    return texts


Names = Annotated[tuple[Text, ...], AfterValidator(_names)]


class RedisServerSpec(SourceSpec):
    """Where Redis is."""

    hostAddress: Annotated[Text, AfterValidator(_address)]
    """The server, `host:port`."""
    db: Annotated[StrictInt, Field(ge=0)] = 0
    """The number of the database."""
    username: Text = ""
    """Of an access control list; without it, the password is that of the default user."""
    password: SecretKeySelector | None = None
    tls: Tls | None = None

    @contextmanager
    def connected(self) -> Iterator[Redis]:
        """A client that does nothing twice. Whatever goes wrong with it is a `SourceError`."""
        from eventsources.sources.redis_client import open_redis  # noqa: PLC0415 - an optional package

        secret = Secret("") if self.password is None else self.password.read()
        tls = None if self.tls is None else self.tls.context(self.tls.secrets())
        with open_redis(self.hostAddress, self.db, self.username, secret, tls) as client:
            yield client
