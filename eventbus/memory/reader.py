"""Reading single in-memory partitions, outside any group."""

from __future__ import annotations

from eventbus.clock import Deadline, SystemClock
from eventbus.memory.broker import Broker
from eventbus.ports import Record


class MemoryReader:
    """`eventbus.ports.Reader` in memory."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._positions: dict[tuple[str, int], int] = {}

    def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        with self._broker.looking():
            log = self._broker.partition(topic, partition)
            return log.start, log.end

    def offset_at(self, topic: str, partition: int, timestamp: int) -> int:
        with self._broker.looking():
            return self._broker.partition(topic, partition).offset_at(timestamp)

    def open(self, topic: str, partition: int, offset: int) -> None:
        self._positions[topic, partition] = offset

    def read(self, max_records: int, timeout: float) -> list[Record]:
        deadline = Deadline(SystemClock(), timeout)
        while True:
            before = dict(self._positions)
            with self._broker.looking() as changes:
                records = self._fetch(max_records)
            if records or before != self._positions or deadline.over():
                return records
            self._broker.wait(changes, deadline.left())

    def position(self, topic: str, partition: int) -> int:
        return self._positions[topic, partition]

    def close(self, topic: str | None = None, partition: int | None = None) -> None:
        if topic is not None and partition is not None:
            self._positions.pop((topic, partition), None)
        else:
            self._positions.clear()

    def _fetch(self, max_records: int) -> list[Record]:
        records: list[Record] = []
        positions = {}
        for (topic, partition), offset in self._positions.items():
            log = self._broker.partition(topic, partition)
            read, positions[topic, partition] = log.read(offset, max_records - len(records))
            records += read
        self._positions.update(positions)
        return records
