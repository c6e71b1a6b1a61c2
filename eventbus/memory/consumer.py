"""One member of an in-memory consumer group.

The listener is always called without the lock: it may commit, wait for other threads, or ask for anything.
"""

from __future__ import annotations

from collections.abc import Iterable

from eventbus.clock import Deadline, SystemClock
from eventbus.errors import FatalError, RetriableError
from eventbus.memory.broker import Broker
from eventbus.ports import Committed, RebalanceListener, Record


class MemoryConsumer:
    """`eventbus.ports.GroupConsumer` in memory."""

    def __init__(self, broker: Broker, group: str, topic: str, listener: RebalanceListener) -> None:
        self._broker = broker
        self._topic = topic
        self._listener = listener
        self._group = broker.group(group)
        self._joined = False
        self._assigned: set[int] = set()
        self._flowing: dict[int, int] = {}
        self._paused: dict[int, int] = {}
        self._polls = 0
        self._join()

    def poll(self, max_records: int, timeout: float) -> list[Record]:
        deadline = Deadline(SystemClock(), timeout)
        while True:
            rebalanced = self._rebalance()
            with self._broker.looking() as changes:
                records = self._fetch(max_records)
            if records or rebalanced or deadline.over():
                return records
            self._broker.wait(changes, deadline.left())

    def start(self, partition: int, offset: int) -> None:
        if partition not in self._assigned:
            raise FatalError(f"{self._topic}/{partition} is not assigned to this member of group {self._group.name}")
        self._paused.pop(partition, None)
        self._flowing[partition] = offset

    def stop(self, partition: int) -> None:
        self._flowing.pop(partition, None)
        self._paused.pop(partition, None)

    def pause(self, partitions: Iterable[int]) -> None:
        for partition in partitions:
            if partition in self._flowing:
                self._paused[partition] = self._flowing.pop(partition)

    def resume(self, partitions: Iterable[int]) -> None:
        for partition in partitions:
            if partition in self._paused:
                self._flowing[partition] = self._paused.pop(partition)

    def committed(self, partitions: Iterable[int]) -> dict[int, Committed | None]:
        with self._broker.looking():
            return self._group.committed(self._topic, partitions)

    def offsets(self, partition: int) -> tuple[int, int]:
        with self._broker.looking():
            log = self._broker.partition(self._topic, partition)
            return log.start, log.end

    def position(self, partition: int) -> int:
        return self._paused[partition] if partition in self._paused else self._flowing[partition]

    def group_metadata(self) -> object:
        with self._broker.looking():
            return self._group.membership(self._member)

    def close(self) -> None:
        with self._broker.looking():
            expelled = self._member.id not in self._group.members
        partitions = sorted(self._assigned)
        try:
            if partitions:
                (self._listener.lost if expelled else self._listener.revoked)(partitions)
        finally:
            self._forget(partitions)
            with self._broker.changing():
                self._group.leave(self._member)

    def _join(self) -> None:
        with self._broker.changing():
            self._member = self._group.join(self._broker.clock.monotonic(), self._partition_count())

    def _rebalance(self) -> bool:
        """Give up, then take, what the group has decided; return whether anything changed."""
        with self._broker.looking():
            if self._joined and self._group.settled(self._member, self._partition_count()):
                self._member.last_poll = self._broker.clock.monotonic()
                return False
        changes = [self._rejoin_if_expelled(), self._give_up(), self._take()]
        return any(changes)

    def _rejoin_if_expelled(self) -> bool:
        with self._broker.looking():
            expelled = self._member.id not in self._group.members
        if expelled:
            lost = self._forget(self._assigned)
            self._join()
            if lost:
                self._listener.lost(lost)
        return expelled

    def _give_up(self) -> bool:
        with self._broker.changing():
            self._member.last_poll = self._broker.clock.monotonic()
            self._group.resize(self._partition_count())
            surplus = self._group.surplus(self._member)
        if surplus:
            try:
                self._listener.revoked(surplus)
            finally:
                self._forget(surplus)
                with self._broker.changing():
                    self._group.release(self._member, surplus)
        return bool(surplus)

    def _take(self) -> bool:
        with self._broker.looking():
            taken = self._group.take(self._member)
        self._assigned.update(taken)
        if taken or not self._joined:
            self._joined = True
            self._listener.assigned(taken)
        return bool(taken)

    def _fetch(self, max_records: int) -> list[Record]:
        """Another partition comes first each time, so that a busy one does not starve the others."""
        if self._topic not in self._broker.topics:
            raise RetriableError(f"topic {self._topic} does not exist")
        self._member.last_poll = self._broker.clock.monotonic()
        self._polls += 1
        order = sorted(self._flowing, key=lambda partition: ((partition + self._polls) % len(self._flowing), partition))
        records: list[Record] = []
        positions = {}
        for partition in order:
            log = self._broker.partition(self._topic, partition)
            read, positions[partition] = log.read(self._flowing[partition], max_records - len(records))
            records += read
        self._flowing.update(positions)
        return records

    def _forget(self, partitions: Iterable[int]) -> list[int]:
        forgotten = sorted(partitions)
        for partition in forgotten:
            self._assigned.discard(partition)
            self.stop(partition)
        return forgotten

    def _partition_count(self) -> int:
        topic = self._broker.topics.get(self._topic)
        return 0 if topic is None else len(topic.partitions)
