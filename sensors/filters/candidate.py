"""An event on its way through the filters of several dependencies, and what they say about it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

import msgspec

from eventbus.errors import EventBusError, InvalidEvent
from eventbus.events import Event
from sensors.paths import MISSING

_UNREAD: Any = object()


class Rejection(msgspec.Struct, frozen=True):
    """Why an event does not satisfy a dependency."""

    reason: str
    """The kind of filter that says so, for counting."""
    text: str
    """For people."""


class ScriptError(EventBusError):
    """A script cannot be used, or has failed on this event."""


class Candidate:
    """An event, whose data is parsed at most once however many filters look at it."""

    __slots__ = ("_document", "event", "timestamp", "unreadable")

    def __init__(self, event: Event, timestamp: int) -> None:
        self.event = event
        self.timestamp = timestamp
        """When it was appended to the log, in milliseconds since 1970."""
        self.unreadable = ""
        """Why there is no document."""
        self._document = _UNREAD

    @property
    def document(self) -> Any:
        """The data as Python objects, or `MISSING`."""
        if self._document is _UNREAD:
            self._document = self._read()
        return self._document

    def _read(self) -> Any:
        event = self.event
        if event.data is None:
            self.unreadable = "the event has no data"
        elif not event.has_json:
            self.unreadable = f"the data is {event.attributes['datacontenttype']}, not JSON"
        else:
            try:
                return event.json()
            except InvalidEvent as error:
                self.unreadable = str(error)
        return MISSING

    def transformed(self, transform: Transform) -> Candidate:
        """With other data, all else the same. An event without data stays as it is. Raises `ScriptError`."""
        data = self.event.data
        if data is None:
            return self
        if self.document is MISSING:
            raise ScriptError(self.unreadable)
        attributes = {**self.event.attributes, "datacontenttype": "application/json"}
        attributes.pop("datacontentencoding", None)  # it told how the old data was written
        return Candidate(Event(attributes, transform(data)), self.timestamp)


Check: TypeAlias = Callable[[Candidate], Rejection | None]
"""A compiled filter: None where the event passes. Never raises."""
Transform: TypeAlias = Callable[[bytes], bytes]
"""JSON in, a JSON object out. Raises `ScriptError`."""


class Scripts(Protocol):
    """Runs scripts within bounds, somewhere else. What it returns raises `ScriptError`."""

    def lua_filter(self, source: str) -> Callable[[bytes], bool]:
        """Whether the script returns `true` for this JSON."""

    def lua_transform(self, source: str) -> Transform:
        """What the script returns for this JSON."""

    def jq_transform(self, source: str) -> Transform:
        """The first output of the program for this JSON."""
