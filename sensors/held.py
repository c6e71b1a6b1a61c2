"""Events that a trigger holds, as they are read from the trigger topic."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from eventbus.errors import FormatError
from eventbus.formats import UNREADABLE, OwnDocument, Source, Trace, TriggerFact, trigger_fact
from eventbus.ports import Record


class Held(msgspec.Struct, frozen=True, gc=False):
    """An event that waits for others."""

    document: bytes
    identity: tuple[str, str]
    """CloudEvents source and id."""
    source: Source
    trace: Trace | None
    offset: int | None
    """Its offset in the trigger topic; None once the state topic keeps it for a plain trigger."""

    @property
    def age(self) -> tuple[int, int]:
        """Sorts the oldest first; of events that were appended in the same millisecond, as they arrived."""
        return self.source.timestamp, -1 if self.offset is None else self.offset


class Slot(msgspec.Struct):
    """What one trigger holds, by dependency."""

    held: dict[str, Held] = msgspec.field(default_factory=dict)
    stored: set[str] = msgspec.field(default_factory=set)
    """Dependencies that have a record in the state topic, current or outdated."""

    def oldest(self) -> int | None:
        """The oldest offset that must stay in the log for this slot."""
        return min((event.offset for event in self.held.values() if event.offset is not None), default=None)


class _EventIdentity(msgspec.Struct):
    source: str
    id: str


_decode_identity = msgspec.json.Decoder(_EventIdentity).decode
_decode_identities = msgspec.json.Decoder(list[_EventIdentity]).decode


def read_event(record: Record) -> tuple[TriggerFact, Held]:
    """A record of the trigger topic."""
    fact = trigger_fact(record)
    return fact, Held(record.value or b"", identity_in(record), fact.source, fact.trace, record.offset)


def identity_in(record: Record) -> tuple[str, str]:
    try:
        identity = _decode_identity(record.value or b"")
    except UNREADABLE as error:
        where = f"{record.topic}[{record.partition}]@{record.offset}"
        raise FormatError(f"{where}: the event in it cannot be read: {error}") from None
    return identity.source, identity.id


def ids_in_action(value: bytes) -> list[str]:
    """The ids of the events in an action's value; nothing else is read of them."""
    return [identity.id for identity in _decode_identities(value)]


def by_dependency(event: Held, dependencies: Sequence[str], own: Sequence[OwnDocument]) -> dict[str, Held]:
    """The event as each dependency gets it: most share one document."""
    events = dict.fromkeys(dependencies, event)
    for each in own:
        if each.dependency in events:
            events[each.dependency] = msgspec.structs.replace(event, document=bytes(each.document))
    return events
