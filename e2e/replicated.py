"""Producers and consumers that go on whatever happens to the brokers, and books that tell what must not be lost."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Self

from confluent_kafka.admin import AdminClient

from eventbus import Bus, Event
from eventbus.broker import EmbeddedBroker
from eventbus.clock import SystemClock
from eventbus.cloudevents import from_kafka
from eventbus.errors import AbortableError, FencedError, LogError, RetriableError, UnknownOutcome
from eventbus.ports import Commit, Output, Record, TopicInfo, TopicSpec, TransactionalProducer
from sensors.inspection import read_range

PATIENCE = 60.0
"""Seconds after which something that must happen is taken not to happen."""

_BATCH = 20
_PACE = 0.01
_LOOK = 0.05


class Place(NamedTuple):
    """Where an event stands in the event topic."""

    partition: int
    offset: int


class Failure(NamedTuple):
    """An error, and the moment at which it was raised."""

    at: float
    error: LogError


class Worker(ABC):
    """One thread that takes turns until it is told to stop. Errors of the log are noted, any other ends the test."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.failures: list[Failure] = []
        self.done: list[float] = []
        """The moment of every turn that got something done."""
        self._stopped = threading.Event()
        self._broken: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(PATIENCE)
        self.check()
        assert not self._thread.is_alive(), f"{self.name} hangs"

    def check(self) -> None:
        if self._broken is not None:
            raise self._broken

    def goes_on(self, since: float, turns: int = 20) -> bool:
        """Whether it has got on well since that moment."""
        self.check()
        return sum(moment > since for moment in reversed(self.done)) >= turns

    def failures_since(self, moment: float) -> list[Failure]:
        self.check()
        return [failure for failure in self.failures if failure.at > moment]

    def pause(self) -> float:
        """The longest time in which it got nothing done, in seconds."""
        return max((later - sooner for sooner, later in zip(self.done, self.done[1:], strict=False)), default=0.0)

    def _run(self) -> None:
        try:
            while not self._stopped.is_set():
                try:
                    self.turn()
                except LogError as error:
                    self.failures.append(Failure(time.monotonic(), error))
                    self.recover(error)
            self.close()
        except BaseException as error:
            self._broken = error

    def _progress(self) -> None:
        self.done.append(time.monotonic())

    @abstractmethod
    def turn(self) -> None: ...

    @abstractmethod
    def recover(self, error: LogError) -> None: ...

    @abstractmethod
    def close(self) -> None: ...


class Producer(Worker):
    """Publishes small batches of events, each with an id of its own, and keeps the log's receipts."""

    def __init__(self, log: ReplicatedLog, name: str, timeout: float) -> None:
        super().__init__(name)
        self.sent: set[str] = set()
        self.acknowledged: dict[Place, str] = {}
        self._bus = log.connect()
        self._timeout = timeout

    def turn(self) -> None:
        batch = [self._event(len(self.sent) + number) for number in range(_BATCH)]
        self.sent.update(event.id for event in batch)
        positions = self._bus.publish_all(batch, timeout=self._timeout)
        for event, position in zip(batch, positions, strict=True):
            self.acknowledged[Place(position.partition, position.offset)] = event.id
        self._progress()
        self._stopped.wait(_PACE)

    def recover(self, error: LogError) -> None:
        """The next turn publishes other events; those in doubt stay `sent` and are never `acknowledged`."""

    def close(self) -> None:
        self._bus.close()

    def _event(self, number: int) -> Event:
        return Event.new("shop", "order", {"n": number}, id=f"{self.name}-{number}", partitionkey=f"key-{number % 7}")


class Consumer(Worker):
    """A member of a group that copies events: a copy and its event's offset are one transaction, so none is twice."""

    def __init__(self, log: ReplicatedLog, name: str) -> None:
        super().__init__(name)
        self._log = log
        self._bus = log.connect()
        self._assigned: set[int] = set()
        self._waiting: set[int] = set()
        self._producer: TransactionalProducer | None = None
        self._consumer = self._bus.cluster.consumer(log.group, log.topic, self)

    def assigned(self, partitions: Sequence[int]) -> None:
        self._assigned.update(partitions)
        self._waiting.update(partitions)

    def revoked(self, partitions: Sequence[int]) -> None:
        self._assigned.difference_update(partitions)
        self._waiting.difference_update(partitions)

    lost = revoked

    def has_partitions(self) -> bool:
        self.check()
        return bool(self._assigned) and not self._waiting

    def turn(self) -> None:
        if self._producer is None:
            self._producer = self._new_producer()
        for partition, committed in self._consumer.committed(self._waiting).items():
            self._consumer.start(partition, committed.offset if committed else 0)
            self._waiting.discard(partition)
        if records := self._consumer.poll(1000, 0.1):
            self._copy(records[:], self._producer)
            self._progress()

    def recover(self, error: LogError) -> None:
        """As `eventbus.errors` says: repeat, or abort, or make a new producer; then go on from the last commit."""
        if isinstance(error, RetriableError):
            return
        if not isinstance(error, AbortableError | FencedError | UnknownOutcome):
            raise error
        for partition in self._assigned:
            self._consumer.stop(partition)
        self._waiting = set(self._assigned)
        if not isinstance(error, AbortableError) or not self._abort():
            self._discard_producer()

    def close(self) -> None:
        self._consumer.close()
        self._discard_producer()
        self._bus.close()

    def _copy(self, records: Sequence[Record], producer: TransactionalProducer) -> None:
        ends = {record.partition: record.offset + 1 for record in records}
        commits = [Commit(partition, offset, "") for partition, offset in ends.items()]
        try:
            producer.begin()
            producer.produce([self._log.copy_of(record) for record in records])
            producer.send_offsets(self._log.topic, commits, self._consumer.group_metadata())
            producer.commit()
        except RetriableError as error:
            raise AbortableError(str(error)) from error

    def _abort(self) -> bool:
        try:
            if self._producer is not None:
                self._producer.abort()
        except LogError:
            return False
        return True

    def _discard_producer(self) -> None:
        if self._producer is not None:
            self._producer.close()
            self._producer = None

    def _new_producer(self) -> TransactionalProducer:
        producer = self._bus.cluster.producer(f"{self._log.topic}-{self.name}")
        try:
            producer.init()
        except LogError:
            producer.close()
            raise
        return producer


class ReplicatedLog:
    """An event topic on real brokers, a topic for the copies, and who leads and follows."""

    def __init__(self, broker: EmbeddedBroker, namespace: str, partitions: int) -> None:
        self._broker = broker
        self._namespace = namespace
        self._bus = self.connect()
        self._bus.ensure(partitions)
        self._admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
        self.topic = self._bus.name.event_topic
        self.copies = f"{self.topic}-copies"
        self.group = f"{self.topic}-group"
        self._partitions = partitions
        self._bus.cluster.create([TopicSpec(self.copies, 1, {})])

    def connect(self) -> Bus:
        """Every producer and consumer has clients of its own, as if it were a process of its own."""
        return Bus.connect(self._broker.bootstrap_servers, namespace=self._namespace)

    def close(self) -> None:
        self._bus.close()

    def producer(self, name: str = "producer", *, timeout: float = 30.0) -> Producer:
        return Producer(self, name, timeout)

    def consumer(self, name: str = "consumer") -> Consumer:
        return Consumer(self, name)

    # --- replication ------------------------------------------------------------------------------------------------

    def durability(self, topic: str) -> tuple[int, int]:
        """How many replicas the topic has, and how many must have a record before it is acknowledged."""
        found: list[TopicInfo] = []

        def known() -> bool:
            info = self._bus.cluster.describe([topic])[topic]
            if info is not None:
                found.append(info)
            return bool(found)

        # Somebody else has created it a moment ago, and the brokers learn of it one after the other.
        wait_until(known, f"nobody knows {topic}")
        return found[0].replication, int(found[0].config["min.insync.replicas"])

    def leader(self, partition: int = 0) -> int:
        return self._admin.list_topics(self.topic, 10).topics[self.topic].partitions[partition].leader

    def followers(self, partition: int = 0) -> list[int]:
        leader = self.leader(partition)
        return [node.address.number for node in self._broker.nodes if node.address.number != leader]

    def in_sync(self, count: int) -> bool:
        """Whether every partition has so many replicas that know all that was acknowledged."""
        partitions = self._admin.list_topics(self.topic, 10).topics[self.topic].partitions.values()
        return all(len(partition.isrs) == count for partition in partitions)

    # --- books ------------------------------------------------------------------------------------------------------

    def copy_of(self, record: Record) -> Output:
        event = from_kafka(record.headers, record.value)
        return Output(self.copies, 0, None, f"{record.partition} {record.offset} {event.id}".encode())

    def check(self, *producers: Producer) -> None:
        """What was acknowledged is in the log where its receipt says, and was consumed; everything consumed once."""
        acknowledged = {place: id for producer in producers for place, id in producer.acknowledged.items()}
        sent = {id for producer in producers for id in producer.sent}
        events = self.events()
        copies = self._copied()
        assert acknowledged, "nothing was acknowledged: this proves nothing"
        assert {place: events.get(place) for place in acknowledged} == acknowledged
        assert set(events.values()) <= sent
        assert [place for place, count in Counter(place for place, _ in copies).items() if count > 1] == []
        assert dict(copies) == events
        print(
            f"{len(acknowledged)} of {len(sent)} events acknowledged, {len(events)} in the log, {len(copies)} consumed"
        )

    def all_consumed(self) -> bool:
        committed = self._bus.cluster.committed(self.group, self.topic)
        reader = self._bus.cluster.reader()
        try:
            ends = {partition: reader.offsets(self.topic, partition)[1] for partition in committed}
        finally:
            reader.close()
        return all((commit.offset if commit else 0) >= ends[partition] for partition, commit in committed.items())

    def events(self) -> dict[Place, str]:
        """The ids of all events that are in the log, read by somebody who knows nothing of what happened."""
        return {
            Place(record.partition, record.offset): from_kafka(record.headers, record.value).id
            for record in self._records(self.topic, self._partitions)
        }

    def _copied(self) -> list[tuple[Place, str]]:
        copies = []
        for record in self._records(self.copies, 1):
            partition, offset, id = (record.value or b"").decode().split()
            copies.append((Place(int(partition), int(offset)), id))
        return copies

    def _records(self, topic: str, partitions: int) -> Iterator[Record]:
        reader = self._bus.cluster.reader()
        try:
            for partition in range(partitions):
                yield from read_range(reader, topic, partition, start=0, end=None, clock=SystemClock())
        finally:
            reader.close()


def wait_until(reached: Callable[[], object], complaint: str, seconds: float = PATIENCE) -> float:
    """Returns how long it took. A log that does not answer at the moment is asked again."""
    began = time.monotonic()
    reason = ""
    while True:
        try:
            if reached():
                return time.monotonic() - began
        except RetriableError as error:
            reason = str(error)
        assert time.monotonic() - began < seconds, f"{complaint} after {seconds:g} s. {reason}"
        time.sleep(_LOOK)


@contextmanager
def replicated_log(broker: EmbeddedBroker, namespace: str, partitions: int) -> Iterator[ReplicatedLog]:
    """A log on brokers that all run when it is done with them, whatever happened meanwhile."""
    log = ReplicatedLog(broker, namespace, partitions)
    try:
        yield log
    finally:
        if dead := [node.address.number for node in broker.nodes if not node.is_alive()]:
            broker.restart(*dead)
        log.close()
