"""What a source that runs once writes: its events, and what its successor has to know, in one transaction.

A lease decides who runs, and cannot be more than a good guess: a process that was paused does not know that its time is
over. So it is the log that has the last word. Every replica writes with the same transactional id: whoever opens the
journal shuts out who had it before, and reads what that one has written last.
"""

from __future__ import annotations

from collections.abc import Sequence

from eventbus.bus import Bus
from eventbus.errors import AbortableError, EventBusError, FencedError, UnproducibleError
from eventbus.names import BusName
from eventbus.ports import Output, Reader
from eventbus.topics import ensure_source_topic
from eventsources.base import Identity, SourceError

_BATCH = 500
_READ_SECONDS = 1.0
_PARTITION = 0


def transactional_id(bus: BusName, identity: Identity) -> str:
    return f"{bus.source_topic}-{identity.source}-{identity.name}"


class Journal:
    """Of one event of one EventSource. Opening it fences everybody who had it open."""

    def __init__(self, bus: Bus, identity: Identity) -> None:
        """Raises `EventBusError`."""
        ensure_source_topic(bus.cluster, bus.name)
        self._bus = bus
        self._topic = bus.name.source_topic
        self._key = str(identity).encode()
        self._producer = bus.cluster.producer(transactional_id(bus.name, identity))
        self._producer.init()
        self.remembered = self._last()

    def write(self, outputs: Sequence[Output], remember: bytes | None) -> None:
        """All of it or nothing. Raises `UnproducibleError` about one of them: the others can be written without it.

        Raises `SourceError`; whoever then goes on opens the journal anew.
        """
        memory = [] if remember is None else [Output(self._topic, _PARTITION, self._key, remember)]
        if not outputs and not memory:
            return
        try:
            self._producer.begin()
            self._producer.produce([*outputs, *memory])
            self._producer.commit()
        except FencedError:
            raise SourceError("another replica has taken over") from None
        except UnproducibleError:
            self._producer.abort()
            raise
        except AbortableError as error:
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
