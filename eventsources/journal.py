"""What a source that runs once writes: its events, and what its successor has to know, in one transaction.

A lease decides who runs, and cannot be more than a good guess: a process that was paused does not know that its time is
over. So it is the log that has the last word. Every replica writes with the same transactional id: whoever opens the
journal shuts out who had it before, and reads what that one has written last.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from eventbus.bus import Bus
from eventbus.errors import AbortableError, EventBusError, FencedError, InvalidEvent, UnproducibleError
from eventbus.events import Event
from eventbus.names import BusName
from eventbus.ports import Output, Reader
from eventbus.topics import EVENT_BYTES, ensure_source_topic
from eventsources.base import Identity, SourceError

_BATCH = 500
_READ_SECONDS = 1.0
_PARTITION = 0
_OVERHEAD = 1024
"""What Kafka adds to a record, at the most."""


def transactional_id(bus: BusName, identity: Identity) -> str:
    return f"{bus.source_topic}-{identity.source}-{identity.name}"


class Refused(NamedTuple):
    """An event that the log will never take, and why."""

    event: Event
    reason: str


class Journal:
    """Of one event of one EventSource. Opening it fences everybody who had it open."""

    def __init__(self, bus: Bus, identity: Identity) -> None:
        """Raises `EventBusError`."""
        bus.ensure()
        ensure_source_topic(bus.cluster, bus.name)
        self._bus = bus
        self._topic = bus.name.source_topic
        self._key = str(identity).encode()
        self._most_bytes = _most_bytes(bus)
        self._producer = bus.cluster.producer(transactional_id(bus.name, identity))
        self._producer.init()
        self.remembered = self._last()

    def write(self, events: Sequence[Event], remember: bytes | None) -> list[Refused]:
        """All that the log takes, at once, or nothing; returns what it will never take, such as what is too large.

        Raises `SourceError`; whoever then goes on opens the journal anew.
        """
        try:
            outputs = [self._bus.output(event) for event in events]
        except InvalidEvent as error:
            raise SourceError(f"an event that CloudEvents does not allow: {error}") from None
        taken = [output for output in outputs if output.size() <= self._most_bytes]
        reason = f"it is larger than the {self._most_bytes:,} bytes that {self._bus.name.event_topic} takes"
        refused = [
            Refused(event, reason)
            for event, output in zip(events, outputs, strict=True)
            if output.size() > self._most_bytes
        ]
        if remember is not None:
            taken.append(Output(self._topic, _PARTITION, self._key, remember))
        if taken:
            self._commit(taken)
        return refused

    def _commit(self, outputs: Sequence[Output]) -> None:
        try:
            self._producer.begin()
            self._producer.produce(outputs)
            self._producer.commit()
        except FencedError:
            raise SourceError("another replica has taken over") from None
        except (AbortableError, UnproducibleError) as error:
            self._producer.abort()
            raise SourceError(str(error)) from None
        except EventBusError as error:
            raise SourceError(str(error)) from None

    def close(self) -> None:
        self._producer.close()

    def _last(self) -> bytes | None:
        reader = self._bus.cluster.reader()
        try:
            return self._scan(reader)
        finally:
            reader.close()

    def _scan(self, reader: Reader) -> bytes | None:
        """The topic is compacted: there is hardly more in it than one record for each source."""
        start, end = reader.offsets(self._topic, _PARTITION)
        reader.open(self._topic, _PARTITION, start)
        found = None
        while reader.position(self._topic, _PARTITION) < end:
            for record in reader.read(_BATCH, _READ_SECONDS):
                if record.key == self._key:
                    found = record.value
        return found


def _most_bytes(bus: Bus) -> int:
    """What a record of the event topic may have: asked for once, because a refusal costs the transaction."""
    info = bus.cluster.describe([bus.name.event_topic])[bus.name.event_topic]
    return EVENT_BYTES if info is None else int(info.config.get("max.message.bytes", EVENT_BYTES)) - _OVERHEAD
