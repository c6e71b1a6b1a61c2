"""The tokens with which clients log in by OAUTHBEARER: fetched when they are needed, and shared by all clients.

librdkafka asks for a new token when four fifths of the old one's life are over. Where none can be had then, it gets the
old one again, which is good for a while, and asks the next time when four fifths of that while are over.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from threading import Lock
from typing import TypeAlias

import msgspec

from eventbus.clock import SystemClock
from eventbus.ports import Clock

_FRESH = 0.7
"""The share of its life during which a token is given to further clients: they have the rest of it for the next."""
_LEAST_MS = 2000
"""Brokers and clients have different clocks: what expires sooner is no good any more."""

_MOMENT = 5.0
"""Seconds: longer than anybody waits for an answer before complaints are looked at."""

_log = logging.getLogger("eventbus.kafka")


class Token(msgspec.Struct, frozen=True):
    """What a client shows to the brokers."""

    text: str
    expires_ms: int
    extensions: Mapping[str, str] = {}


class NoToken(Exception):
    """Why there is none, in one line."""

    def __init__(self, reason: str, *, passing: bool) -> None:
        """`passing`: the same may work in a while, without anybody changing anything."""
        super().__init__(reason)
        self.passing = passing


Fetch: TypeAlias = Callable[[], Token]
"""Raises `NoToken`."""


class Tokens:
    """Of one connection. Thread-safe; its clients call it from threads of their own."""

    def __init__(self, fetch: Fetch, clock: Clock | None = None) -> None:
        self._fetch = fetch
        self._clock = clock or SystemClock()
        self._lock = Lock()
        self._token: Token | None = None
        self._stale_ms = 0
        self._back = -math.inf
        self.trouble: NoToken | None = None
        """Why the last attempt to get a token has failed, as long as there is none."""

    def __call__(self, _config: str) -> tuple[str, float, str, dict[str, str]]:
        """The client's callback. What it raises is not told to anybody: see `trouble`."""
        token = self.get()
        return token.text, token.expires_ms / 1000, "", dict(token.extensions)

    def get(self) -> Token:
        """Raises `NoToken`."""
        with self._lock:
            if self._token is None or self._clock.now_ms() >= self._stale_ms:
                self._token = self._renewed(self._token)
            if self.trouble is not None:
                self.trouble, self._back = None, self._clock.monotonic()
            return self._token

    @property
    def recovering(self) -> bool:
        """Whether there was none a moment ago: brokers may still be heard complaining of an old one."""
        return self._clock.monotonic() - self._back < _MOMENT

    def _renewed(self, old: Token | None) -> Token:
        began_ms = self._clock.now_ms()
        try:
            token = self._fetch()
        except NoToken as trouble:
            if old is not None and old.expires_ms - self._clock.now_ms() > _LEAST_MS:
                _log.warning("no new token for Kafka, going on with the old one: %s", trouble)
                return old
            self.trouble = trouble
            raise
        self._stale_ms = began_ms + round(_FRESH * (token.expires_ms - began_ms))
        return token
