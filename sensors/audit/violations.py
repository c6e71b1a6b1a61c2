"""A broken promise, with all that is known about it."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import msgspec

from eventbus.formats import Source
from eventbus.ports import Record


class Breach(StrEnum):
    """In which way a promise was broken."""

    LOST = "lost"
    DUPLICATED = "duplicated"
    OUT_OF_ORDER = "out_of_order"
    UNEXPLAINED = "unexplained"


class Violation(msgspec.Struct, frozen=True, kw_only=True):
    """One broken promise. What is not known is empty."""

    invariant: str
    breach: Breach
    what: str
    trigger: str = ""
    events: tuple[str, ...] = ()
    """Where the events stand in the event topic."""
    place: str = ""
    """The record in question, or the one that should have led to it."""
    replica: str = ""
    """Who wrote it, or else who went on without it."""

    def __str__(self) -> str:
        known = {"trigger": self.trigger, "events": ", ".join(self.events), "at": self.place, "replica": self.replica}
        details = "; ".join(f"{name} {value}" for name, value in known.items() if value)
        return f"{self.invariant} {self.breach}: {self.what}" + (f" ({details})" if details else "")


def place(topic: str, partition: int, offset: int) -> str:
    return f"{topic}[{partition}]@{offset}"


def place_of(record: Record) -> str:
    return place(record.topic, record.partition, record.offset)


def event_places(topic: str, sources: Iterable[Source]) -> tuple[str, ...]:
    return tuple(place(topic, source.partition, source.offset) for source in sources)
