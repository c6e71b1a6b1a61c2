"""Single records outside transactions, in memory."""

from __future__ import annotations

from collections.abc import Callable
from queue import Empty, SimpleQueue

from eventbus.errors import LogError, UnproducibleError
from eventbus.memory.broker import Broker
from eventbus.ports import Output, Position
from eventbus.topics import INTERNAL_BYTES

_Done = Callable[[LogError | None, Position | None], None]
_Fate = tuple[_Done, LogError | None, Position | None]


class MemoryPublisher:
    """`eventbus.ports.Publisher` in memory. The fate of a record is known at once, but told later, as on Kafka."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._untold: SimpleQueue[_Fate] = SimpleQueue()

    def send(self, output: Output, done: _Done) -> None:
        size = output.size()
        if size > INTERNAL_BYTES:
            raise UnproducibleError(f"a record for {output.topic} is too large to be sent", index=0)
        self._tell()
        try:
            self._untold.put((done, None, self._write(output, size)))
        except UnproducibleError as error:
            self._untold.put((done, error, None))

    def serve(self, timeout: float) -> None:
        try:
            done, error, position = self._untold.get(timeout=timeout)
        except Empty:
            return
        done(error, position)
        self._tell()

    def flush(self, timeout: float) -> int:  # noqa: ARG002 - nothing is ever under way
        self._tell()
        return 0

    def close(self) -> None:
        """Nothing is held here."""

    def _write(self, output: Output, size: int) -> Position:
        with self._broker.changing():
            topic = self._broker.topics.get(output.topic)
            if topic is None or not 0 <= output.partition < len(topic.partitions):
                raise UnproducibleError(f"{output.topic}/{output.partition} does not exist", index=0)
            refusal = topic.refusal(output, size)
            if refusal is not None:
                raise UnproducibleError(f"{output.topic}: {refusal}", index=0)
            offset = topic.partitions[output.partition].append(output, self._broker.clock.now_ms())
        return Position(output.topic, output.partition, offset)

    def _tell(self) -> None:
        while True:
            try:
                done, error, position = self._untold.get_nowait()
            except Empty:
                return
            done(error, position)
