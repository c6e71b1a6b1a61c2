"""What the contract tests share: a cluster, and things made on it that are closed again whatever happens."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from functools import cached_property
from typing import TypeVar

from eventbus.errors import RetriableError
from eventbus.ports import (
    Cluster,
    Commit,
    Committed,
    GroupConsumer,
    Output,
    Publisher,
    Reader,
    Record,
    TopicSpec,
    TransactionalProducer,
)

T = TypeVar("T")

PATIENCE = 30.0
"""Seconds after which something that must happen is taken not to happen."""

QUIET = 0.25
"""Seconds in which something that must not happen would have happened."""


class Member:
    """A consumer and what its listener was told, in order."""

    def __init__(self, cluster: Cluster, group: str, topic: str) -> None:
        self.told: list[tuple[str, list[int]]] = []
        self.partitions: set[int] = set()
        self.on_assigned: Callable[[Sequence[int]], None] = lambda _partitions: None
        self.on_revoked: Callable[[Sequence[int]], None] = lambda _partitions: None
        self.consumer: GroupConsumer = cluster.consumer(group, topic, self)

    def assigned(self, partitions: Sequence[int]) -> None:
        self.told.append(("assigned", list(partitions)))
        self.partitions.update(partitions)
        self.on_assigned(partitions)

    def revoked(self, partitions: Sequence[int]) -> None:
        self.told.append(("revoked", list(partitions)))
        self.partitions.difference_update(partitions)
        self.on_revoked(partitions)

    def lost(self, partitions: Sequence[int]) -> None:
        self.told.append(("lost", list(partitions)))
        self.partitions.difference_update(partitions)

    def start(self, *partitions: int, offset: int = 0) -> None:
        for partition in partitions:
            self.consumer.start(partition, offset)

    def receive(self, count: int, max_records: int = 1000) -> list[Record]:
        """Exactly so many records."""
        records: list[Record] = []
        deadline = time.monotonic() + PATIENCE
        while len(records) < count:
            assert time.monotonic() < deadline, f"only {len(records)} of {count} records came: {records}"
            records += self.consumer.poll(max_records, 0.2)
        assert len(records) == count, records
        return records

    def is_silent(self) -> bool:
        end = time.monotonic() + QUIET
        while time.monotonic() < end:
            if self.consumer.poll(1000, 0.05):
                return False
        return True


class Lab:
    """One test's corner of a cluster."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster = cluster
        self._namespace = namespace
        self._made = ExitStack()
        self._topics: list[str] = []

    def close(self) -> None:
        self._made.close()
        self.cluster.delete(self._topics)

    def name(self, suffix: str) -> str:
        return f"{self._namespace}-{suffix}"

    def topic(self, partitions: int = 1, **config: str) -> str:
        """A new topic; its settings are written with `_` for `.`."""
        name = self.name(f"topic{len(self._topics)}")
        self._topics.append(name)
        self.cluster.create([TopicSpec(name, partitions, {key.replace("_", "."): config[key] for key in config})])
        return name

    def producer(self, suffix: str = "producer") -> TransactionalProducer:
        producer = self.cluster.producer(self.name(suffix))
        self._made.callback(producer.close)
        producer.init()
        return producer

    def consumer(self, topic: str, group: str = "group", cluster: Cluster | None = None) -> Member:
        """A member that has not polled yet."""
        member = Member(cluster or self.cluster, self.name(group), topic)
        self._made.callback(member.consumer.close)
        return member

    def member(self, topic: str, partitions: int = 1, group: str = "group") -> Member:
        """A member that is alone in its group and has all partitions."""
        member = self.consumer(topic, group)
        settle([member], lambda: len(member.partitions) == partitions)
        return member

    def reader(self) -> Reader:
        reader = self.cluster.reader()
        self._made.callback(reader.close)
        return reader

    def publisher(self) -> Publisher:
        publisher = self.cluster.publisher()
        self._made.callback(publisher.close)
        return publisher

    @cached_property
    def writer(self) -> TransactionalProducer:
        return self.producer("writer")

    def write(self, topic: str, *values: bytes, partition: int = 0) -> None:
        """One committed transaction: as many records, then a marker."""
        self.writer.begin()
        self.writer.produce([Output(topic, partition, None, value) for value in values])
        self.writer.commit()

    def read_all(self, topic: str, partition: int = 0) -> list[Record]:
        """Every committed record, up to the end of the partition."""
        reader = self.reader()
        first, end = reader.offsets(topic, partition)
        reader.open(topic, partition, first)
        return read_to(reader, topic, partition, end)

    def committed(self, topic: str, group: str = "group") -> dict[int, Committed | None]:
        return stable(lambda: self.cluster.committed(self.name(group), topic))


def read_to(reader: Reader, topic: str, partition: int, end: int) -> list[Record]:
    """What an open reader returns until it has reached an offset."""
    records: list[Record] = []
    deadline = time.monotonic() + PATIENCE
    while reader.position(topic, partition) < end:
        assert time.monotonic() < deadline, f"stuck at {reader.position(topic, partition)} before {end}"
        records += reader.read(1000, 0.2)
    return records


def wait_for_end(lab: Lab, topic: str, end: int) -> None:
    """Until so much was written, be it committed or not."""
    reader = lab.reader()
    deadline = time.monotonic() + PATIENCE
    while reader.offsets(topic, 0)[1] < end:
        assert time.monotonic() < deadline, f"the end is {reader.offsets(topic, 0)[1]}, not {end}"


def stable(ask: Callable[[], T]) -> T:
    """The answer, once there is one: a commit has returned before its markers are everywhere."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return ask()
        except RetriableError:
            assert time.monotonic() < deadline, "the offsets did not become stable"


def settle(members: Iterable[Member], reached: Callable[[], bool]) -> None:
    """Let the members poll in turns until something is reached; no record may come meanwhile."""
    polling = list(members)
    deadline = time.monotonic() + PATIENCE
    while not reached():
        assert time.monotonic() < deadline, [member.told for member in polling]
        for member in polling:
            assert not member.consumer.poll(1000, 0.02)


def values(records: Iterable[Record]) -> list[bytes | None]:
    return [record.value for record in records]


def offsets(records: Iterable[Record]) -> list[int]:
    return [record.offset for record in records]


def commit_offset(producer: TransactionalProducer, topic: str, commit: Commit, member: Member) -> None:
    """A transaction with nothing but offsets in it."""
    producer.begin()
    producer.send_offsets(topic, [commit], member.consumer.group_metadata())
    producer.commit()
