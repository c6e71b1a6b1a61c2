"""The log as one process of the simulation sees it: every call may fail, hang, or be the process's last."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Protocol

from eventbus.errors import AbortableError, FencedError, RetriableError, UnknownOutcome
from eventbus.memory import MemoryCluster
from eventbus.memory.consumer import MemoryConsumer
from eventbus.memory.groups import Group
from eventbus.memory.producer import MemoryProducer
from eventbus.memory.reader import MemoryReader
from eventbus.memory.transactions import Touched
from eventbus.ports import (
    Commit,
    Committed,
    Output,
    Publisher,
    RebalanceListener,
    Record,
    TopicInfo,
    TopicSpec,
)
from tests.sim.dice import Dice, Fault


class Crash(BaseException):
    """The process dies here. Nothing in the product catches it."""


class Host(Protocol):
    """The process that makes the calls."""

    dice: Dice
    replica: str
    batch: int
    """The most records it gets at a time."""
    deeds: int
    """How many calls have got it further. It is idle if there is none in a whole turn."""

    def point(self) -> None:
        """Something may happen to the process between any two calls: it crashes, or is suspended for a while."""

    def outlast(self, topic: str) -> None:
        """It may be suspended for longer than its session while it is about to commit offsets of this topic."""

    def suffers(self, mishap: str) -> None:
        """Something has happened that explains why it loses or repeats an invocation."""


class LateMarkers:
    """Markers reach partitions and groups one by one, in any order, when the dice say so."""

    def __init__(self, dice: Dice, applied: Callable[[Group, dict[tuple[str, int], Committed], str], None]) -> None:
        self._dice = dice
        self._applied = applied
        self.senders: dict[int, str] = {}
        """Which replica has last sent offsets as which producer."""
        self._waiting: defaultdict[int, list[tuple[Touched, bool]]] = defaultdict(list)

    def write(self, producer: int, touched: Sequence[Touched], *, commit: bool) -> None:
        waiting = self._waiting[producer]
        waiting += [(each, commit) for each in touched]
        while waiting and not self._dice.strikes(Fault.LATE_MARKER):
            self._deliver(producer)

    def finish(self, producer: int) -> None:
        while self._waiting[producer]:
            self._deliver(producer)

    def deliver_all(self) -> None:
        for producer in list(self._waiting):
            self.finish(producer)

    def deliver_one(self) -> None:
        late = [producer for producer, waiting in self._waiting.items() if waiting]
        if late:
            self._deliver(self._dice.pick(late))

    def _deliver(self, producer: int) -> None:
        waiting = self._waiting[producer]
        touched, commit = waiting.pop(self._dice.below(len(waiting)))
        staged = touched._pending.get(producer, {}) if isinstance(touched, Group) else {}
        touched.end_transaction(producer, commit=commit)
        if isinstance(touched, Group) and commit:
            self._applied(touched, staged, self.senders[producer])


class DelayedEnds:
    """Requests to end a transaction that are still under way though their sender has given them up."""

    def __init__(self, cluster: MemoryCluster) -> None:
        self._coordinator = cluster._broker.coordinator
        self._under_way: list[tuple[str, int]] = []

    def add(self, transactional_id: str, epoch: int) -> None:
        self._under_way.append((transactional_id, epoch))

    def arrive(self) -> None:
        """The oldest arrives. It commits whatever its sender's id and epoch have open by now."""
        if self._under_way:
            with suppress(FencedError):
                self._coordinator.end(*self._under_way.pop(0), commit=True)


class SimCluster:
    """`eventbus.ports.Cluster` for one process."""

    def __init__(self, cluster: MemoryCluster, markers: LateMarkers, ends: DelayedEnds, host: Host) -> None:
        self._cluster = cluster
        self._markers = markers
        self._ends = ends
        self._host = host

    def describe(self, topics: Iterable[str]) -> dict[str, TopicInfo | None]:
        return self._cluster.describe(topics)

    def create(self, topics: Iterable[TopicSpec]) -> None:
        self._cluster.create(topics)

    def delete(self, topics: Iterable[str]) -> None:
        self._cluster.delete(topics)

    def forget(self, groups: Iterable[str]) -> None:
        self._cluster.forget(groups)

    def committed(self, group: str, topic: str) -> dict[int, Committed | None]:
        return self._cluster.committed(group, topic)

    def members(self, group: str) -> int:
        return self._cluster.members(group)

    def consumer(self, group: str, topic: str, listener: RebalanceListener) -> SimConsumer:
        return SimConsumer(self._cluster.consumer(group, topic, _Listener(listener, self._host)), self._host)

    def producer(self, transactional_id: str) -> SimProducer:
        real = self._cluster.producer(transactional_id)
        return SimProducer(real, transactional_id, self._markers, self._ends, self._host)

    def reader(self) -> SimReader:
        return SimReader(self._cluster.reader(), self._host)

    def publisher(self) -> Publisher:
        return self._cluster.publisher()

    def close(self) -> None:
        self._cluster.close()


class _Listener:
    """Passes everything on, and takes note when the group does without the process."""

    def __init__(self, real: RebalanceListener, host: Host) -> None:
        self.assigned = real.assigned
        self.revoked = real.revoked
        self._real = real
        self._host = host

    def lost(self, partitions: Sequence[int]) -> None:
        self._host.suffers("expelled from its group")
        self._real.lost(partitions)


class SimConsumer:
    """`eventbus.ports.GroupConsumer` with faults."""

    def __init__(self, real: MemoryConsumer, host: Host) -> None:
        self._real = real
        self._host = host
        self.start = real.start
        self.stop = real.stop
        self.pause = real.pause
        self.resume = real.resume
        self.position = real.position
        self.group_metadata = real.group_metadata
        self.close = real.close

    def heartbeat(self, now: float) -> None:
        self._real._member.last_poll = now

    def poll(self, max_records: int, timeout: float) -> list[Record]:
        self._host.point()
        if self._host.dice.strikes(Fault.RETRIABLE):
            self._host.deeds += 1
            raise RetriableError("simulated: no answer to a poll")
        records = self._real.poll(min(max_records, self._host.batch), timeout)
        self._host.deeds += bool(records)
        self._host.point()
        return records

    def committed(self, partitions: Iterable[int]) -> dict[int, Committed | None]:
        self._host.point()
        if self._host.dice.strikes(Fault.UNSTABLE_OFFSETS):
            self._host.deeds += 1
            raise RetriableError("simulated: the offsets are not stable")
        committed = self._real.committed(partitions)
        self._host.deeds += 1
        if None in committed.values():  # somebody else may make the first commit before we act upon the answer
            self._host.outlast(self._real._topic)
        return committed

    def offsets(self, partition: int) -> tuple[int, int]:
        self._host.point()
        if self._host.dice.strikes(Fault.RETRIABLE):
            self._host.deeds += 1
            raise RetriableError("simulated: no answer about offsets")
        return self._real.offsets(partition)


class SimReader:
    """`eventbus.ports.Reader` with faults."""

    def __init__(self, real: MemoryReader, host: Host) -> None:
        self._real = real
        self._host = host
        self.offset_at = real.offset_at
        self.open = real.open
        self.position = real.position
        self.close = real.close

    def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        self._host.point()
        if self._host.dice.strikes(Fault.RETRIABLE):
            self._host.deeds += 1
            raise RetriableError("simulated: no answer about offsets")
        return self._real.offsets(topic, partition)

    def read(self, max_records: int, timeout: float) -> list[Record]:
        self._host.point()
        # A few at a time, so that something can happen between.
        records = self._real.read(min(max_records, 1 + self._host.dice.below(8)), 0)
        self._host.deeds += bool(records)
        return records


class SimProducer:
    """`eventbus.ports.TransactionalProducer` with faults."""

    def __init__(
        self, real: MemoryProducer, transactional_id: str, markers: LateMarkers, ends: DelayedEnds, host: Host
    ) -> None:
        self._real = real
        self._id = transactional_id
        self._markers = markers
        self._ends = ends
        self._host = host
        self._dice = host.dice
        self._topic = ""
        self.close = real.close

    def init(self) -> None:
        self._host.point()
        if self._dice.strikes(Fault.RETRIABLE):
            self._host.deeds += 1
            raise RetriableError("simulated: no answer to init")
        self._real.init()

    def begin(self) -> None:
        self._host.point()
        self._host.deeds += 1
        self._real.begin()

    def produce(self, outputs: Sequence[Output]) -> None:
        self._host.point()
        if self._dice.strikes(Fault.ABORT):
            self._real.produce(outputs[: self._dice.below(len(outputs) + 1)])
            raise AbortableError("simulated: the transaction has failed")
        self._real.produce(outputs)
        self._host.point()

    def send_offsets(self, topic: str, commits: Sequence[Commit], group_metadata: object) -> None:
        self._topic = topic
        self._host.outlast(topic)  # the worst moment: the records are written, the membership is known, that is all
        for _ in range(3):
            self._host.point()
        if self._dice.strikes(Fault.ABORT):
            raise AbortableError("simulated: the offsets were refused")
        self._real.send_offsets(topic, commits, group_metadata)
        self._markers.senders[self._real._broker.coordinator._producers[self._id].number] = self._host.replica
        self._host.point()

    def commit(self) -> None:
        self._host.point()
        if self._dice.strikes(Fault.ABORT):
            raise AbortableError("simulated: the commit was refused")
        if self._dice.strikes(Fault.UNKNOWN_LOST):
            raise UnknownOutcome("simulated: the request to commit was lost")
        if self._dice.strikes(Fault.UNKNOWN_DELAYED):
            self._ends.add(self._id, self._real._epoch)
            raise UnknownOutcome("simulated: the request to commit is late")
        self._real.commit()
        self._host.outlast(self._topic)  # some of its markers may be late, and the others restore meanwhile
        if self._dice.strikes(Fault.UNKNOWN_COMMITTED):
            raise UnknownOutcome("simulated: the answer to the commit was lost")
        self._host.point()

    def abort(self) -> None:
        self._host.point()
        self._real.abort()
