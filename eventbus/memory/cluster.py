"""The in-memory cluster: for users' tests, for `explain`, for the simulator."""

from __future__ import annotations

from collections.abc import Iterable

from eventbus.clock import SystemClock
from eventbus.errors import FatalError
from eventbus.memory.broker import Broker
from eventbus.memory.consumer import MemoryConsumer
from eventbus.memory.producer import MemoryProducer
from eventbus.memory.publisher import MemoryPublisher
from eventbus.memory.reader import MemoryReader
from eventbus.memory.topics import Partition, Topic
from eventbus.memory.transactions import Markers, PromptMarkers
from eventbus.ports import Clock, Committed, RebalanceListener, TopicInfo, TopicSpec


class MemoryCluster:
    """`eventbus.ports.Cluster` in memory: the whole of it lives and dies with this object.

    Thread-safe, without threads of its own. Time-outs go by `clock`; a wait for records goes by the machine's time
    and ends as soon as another thread has written some, so with a time-out of 0 no call ever waits.
    """

    def __init__(
        self,
        clock: Clock | None = None,
        *,
        session_timeout: float = 60.0,
        transaction_timeout: float = 10.0,
        markers: Markers | None = None,
    ) -> None:
        """`session_timeout`: how long a member may go without polling, in seconds, before it is expelled."""
        self._broker = Broker(clock or SystemClock(), session_timeout, transaction_timeout, markers or PromptMarkers())

    def describe(self, topics: Iterable[str]) -> dict[str, TopicInfo | None]:
        with self._broker.looking():
            known = {name: self._broker.topics.get(name) for name in topics}
            return {name: None if topic is None else topic.info() for name, topic in known.items()}

    def create(self, topics: Iterable[TopicSpec]) -> None:
        with self._broker.changing():
            for spec in topics:
                if spec.name not in self._broker.topics:
                    self._broker.topics[spec.name] = Topic(spec.name, spec.partitions, spec.config)

    def delete(self, topics: Iterable[str]) -> None:
        with self._broker.changing():
            for name in topics:
                self._broker.topics.pop(name, None)
                self._broker.forget_offsets(name)

    def forget(self, groups: Iterable[str]) -> None:
        with self._broker.changing():
            for name in groups:
                self._broker.forget_group(name)

    def committed(self, group: str, topic: str) -> dict[int, Committed | None]:
        with self._broker.looking():
            known = self._broker.topics.get(topic)
            if known is None:
                raise FatalError(f"topic {topic} does not exist")
            return self._broker.group(group).committed(topic, range(len(known.partitions)))

    def members(self, group: str) -> int:
        with self._broker.looking():
            return len(self._broker.group(group).members)

    def consumer(self, group: str, topic: str, listener: RebalanceListener) -> MemoryConsumer:
        return MemoryConsumer(self._broker, group, topic, listener)

    def producer(self, transactional_id: str) -> MemoryProducer:
        return MemoryProducer(self._broker, transactional_id)

    def reader(self) -> MemoryReader:
        return MemoryReader(self._broker)

    def publisher(self) -> MemoryPublisher:
        return MemoryPublisher(self._broker)

    def close(self) -> None:
        """Nothing is held here."""

    def add_partitions(self, topic: str, total: int) -> None:
        """Give a topic so many partitions, as an administrator can."""
        with self._broker.changing():
            partitions = self._broker.topics[topic].partitions
            partitions += [Partition(topic, number) for number in range(len(partitions), total)]

    def truncate(self, topic: str, partition: int, before_offset: int) -> None:
        """Remove the oldest records of a partition, as retention does."""
        with self._broker.changing():
            self._broker.partition(topic, partition).truncate(before_offset)

    def compact(self, topic: str, partition: int) -> None:
        """Leave only the latest committed record of every key, as the log cleaner does."""
        with self._broker.changing():
            self._broker.partition(topic, partition).compact()
