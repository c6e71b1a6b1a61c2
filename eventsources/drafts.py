"""From what a source tells to the records that are written: filtered, keyed, or put among the dead letters.

What cannot be an event on the bus must stop nothing that comes after it, and must not be lost either: it is kept in the
topic `NAMESPACE-BUS-rejects`, with the reason, and acknowledged to whoever sent it like anything else.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import NamedTuple

from eventbus.bus import Bus
from eventbus.errors import InvalidEvent
from eventbus.ports import Output
from eventbus.topics import EVENT_BYTES, ensure_reject_topic
from eventsources.base import Identity, Told, Unusable
from eventsources.metrics import Outcome
from eventsources.sink import Sieve
from sensors.deadletters import INVALID_EVENT, NO_EVENT, TOO_LARGE, UNPRODUCIBLE, DeadLetters

_OVERHEAD = 1024
"""What Kafka adds to a record, at the most."""
_STAGE = "source"

log = logging.getLogger("eventbus.source")


class Draft(NamedTuple):
    """What is to be written of an event, or instead of it; nothing where it is not wanted."""

    id: str
    outcome: Outcome
    output: Output | None = None


class Drafts:
    """Of one source that fetches."""

    def __init__(self, bus: Bus, identity: Identity, sieve: Sieve) -> None:
        """Raises `EventBusError`."""
        bus.ensure()
        room = ensure_reject_topic(bus.cluster, bus.name)
        self._bus = bus
        self._identity = identity
        self._sieve = sieve
        self._letters = DeadLetters(bus.name.reject_topic, 1, room, _STAGE, replica="", source=str(identity))
        self._most_bytes = _most_bytes(bus)

    def of(self, told: Sequence[Told]) -> list[Draft]:
        return [self._draft(each) for each in told]

    def refused(self, draft: Draft, output: Output, detail: str) -> Draft:
        """What is to be written instead of a record that the log will never take."""
        return self._letter(draft.id, output, UNPRODUCIBLE, detail)

    def _draft(self, told: Told) -> Draft:
        if isinstance(told, Unusable):
            return self._letter(told.id, self._raw(told.body), NO_EVENT, told.reason)
        event = self._sieve.keyed(told)
        if event is None:
            return Draft(told.id, Outcome.FILTERED)
        try:
            output = self._bus.output(event)
        except InvalidEvent as error:
            return self._letter(told.id, self._raw(told.data), INVALID_EVENT, str(error))
        if output.size() > self._most_bytes:
            detail = f"it is larger than the {self._most_bytes:,} bytes that {output.topic} takes"
            return self._letter(told.id, output, TOO_LARGE, detail)
        return Draft(told.id, Outcome.PUBLISHED, output)

    def _letter(self, id: str, output: Output, reason: str, detail: str) -> Draft:
        log.warning("%s: `%s` goes to the dead letters: %s", self._identity, id, detail)
        return Draft(id, Outcome.DEAD_LETTERED, self._letters.of_refused(output, f"`{id}`: {detail}", reason))

    def _raw(self, body: bytes | None) -> Output:
        return Output(self._bus.name.event_topic, 0, None, body)


def _most_bytes(bus: Bus) -> int:
    """What a record of the event topic may have: asked for once, because a refusal costs the transaction."""
    info = bus.cluster.describe([bus.name.event_topic])[bus.name.event_topic]
    return EVENT_BYTES if info is None else int(info.config.get("max.message.bytes", EVENT_BYTES)) - _OVERHEAD
