"""The match and join stages as the loop sees them: which partition may start where, and what to commit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter

import msgspec

from eventbus.metadata import JoinCommit, decode_join, decode_match, encode_join, encode_match
from eventbus.names import Kind, Stage
from eventbus.ports import Commit, Committed, Output, Record
from eventbus.stateformats import Identity, IdentityKey, OriginKey, decode_state_key, identity
from eventbus.topics import Topology
from sensors.filters.candidate import Rejection
from sensors.join import JoinPartition
from sensors.match import Matcher
from sensors.metrics import SensorMetrics
from sensors.plan import SensorPlan
from sensors.runner.logic import Transaction
from sensors.runner.ownership import (
    Beginnings,
    check_identity,
    check_owner,
    identity_of,
    identity_output,
    offsets_gone,
    state_gone,
)

PART_RECORDS = 500
"""So many records are dealt with before what they cause is handed to the log, which then works beside us."""


class _Batch(msgspec.Struct):
    """What is to be written for one partition."""

    outputs: list[Output] = msgspec.field(default_factory=list)
    commit: Commit | None = None


class _Synchronous(ABC):
    """What stages have in common that finish every batch before they fetch the next."""

    def __init__(self) -> None:
        self._batches: defaultdict[int, _Batch] = defaultdict(_Batch)

    def work(self, records: Sequence[Record]) -> Iterator[Transaction]:
        for start in range(0, len(records), PART_RECORDS):
            for partition, run in groupby(records[start : start + PART_RECORDS], attrgetter("partition")):
                self._apply(partition, run)
            yield from self._part()
        yield from self._part()  # a partition may have begun without any record

    @abstractmethod
    def _apply(self, partition: int, records: Iterable[Record]) -> None:
        """Deal with records of one partition, in the order of the log."""

    def _part(self) -> Iterator[Transaction]:
        batches, self._batches = self._batches, defaultdict(_Batch)
        outputs = [output for batch in batches.values() for output in batch.outputs]
        commits = [batch.commit for batch in batches.values() if batch.commit is not None]
        if commits:
            yield Transaction(outputs, commits)

    def aborted(self) -> bool:
        """The partitions went on as if it had been committed."""
        return False

    def revoking(self, _partitions: Sequence[int]) -> Iterable[Transaction]:
        """Whatever was received is committed already."""
        return ()

    def congested(self) -> set[int]:
        return set()

    def wait(self, timeout: float) -> float:
        return timeout

    def working(self) -> bool:
        return False

    def idle(self) -> bool:
        return not self._batches


class MatchStage(_Synchronous):
    """Reads the event topic. A new sensor starts at its end or beginning, as the manifest says."""

    stage = Stage.MATCH

    def __init__(
        self, plan: SensorPlan, topology: Topology, replica: str, metrics: SensorMetrics, *, from_latest: bool
    ) -> None:
        super().__init__()
        self._plan = plan
        self._from_latest = from_latest
        self._matcher = Matcher(plan, topology, replica, self._note_rejection)
        self._metrics = metrics
        self._rejections: Counter[tuple[str, str]] = Counter()
        """By dependency and reason, since the last commit."""
        self._metadata = encode_match(plan.owner)
        self._beginnings = Beginnings(plan.name, topology, Stage.MATCH, plan.owner.generation)
        self._start: dict[int, int] = {}
        self._inherited: set[int] = set()
        """Partitions that an older generation of the spec has worked on up to now."""

    def opened(self, partition: int, committed: Committed | None) -> tuple[str, int] | None:
        if committed is None:
            return self._beginnings.place(partition)
        before = decode_match(committed.metadata)
        check_owner(self._plan.name, self._plan.owner, before)
        self._start[partition] = committed.offset
        if before.generation < self._plan.owner.generation:
            self._inherited.add(partition)
        return None

    def load(self, partition: int, record: Record) -> None:
        self._beginnings.load(partition, record)

    def restored(self, partition: int, offsets: tuple[int, int]) -> int:
        if partition in self._start:
            start = self._start.pop(partition)
            if partition not in self._inherited:
                return start
            self._inherited.discard(partition)
            note = self._beginnings.go_on(partition, start)
        else:
            first, end = offsets
            start = end if self._from_latest and not self._beginnings.added_later(partition) else first
            note = self._beginnings.begin(partition, start)
        batch = self._batches[partition]
        batch.outputs.append(note)
        batch.commit = Commit(partition, start, self._metadata)
        return start

    def dropped(self, partition: int) -> None:
        self._start.pop(partition, None)
        self._inherited.discard(partition)
        self._beginnings.forget(partition)
        self._batches.pop(partition, None)

    def _note_rejection(self, dependency: str, rejection: Rejection) -> None:
        self._rejections[dependency, rejection.reason] += 1

    def committed(self) -> None:
        for (dependency, reason), count in self._rejections.items():
            self._metrics.count_filtered(dependency, reason, count)
        self._rejections.clear()

    def aborted(self) -> bool:
        self._rejections.clear()  # the same events will be filtered again
        return super().aborted()

    def _apply(self, partition: int, records: Iterable[Record]) -> None:
        match = self._matcher.outputs
        batch = self._batches[partition]
        end = 0
        for record in records:
            batch.outputs += match(record)
            end = record.offset + 1
        batch.commit = Commit(partition, end, self._metadata)


class JoinStage(_Synchronous):
    """Reads the trigger topic, and for every partition of it the state partition of the same number."""

    stage = Stage.JOIN

    def __init__(
        self,
        plan: SensorPlan,
        topology: Topology,
        replica: str,
        metrics: SensorMetrics,
        *,
        horizon_records: int,
        horizon_ms: int,
    ) -> None:
        super().__init__()
        self._plan = plan
        self._topology = topology
        self._replica = replica
        self._metrics = metrics
        self._unused: Counter[tuple[str, str]] = Counter()
        """By trigger and reason, since the last commit."""
        self._horizon_records = horizon_records
        self._horizon_ms = horizon_ms
        self._state_topic = plan.name.topic(Kind.STATE)
        self._identity = identity_of(plan, topology)
        self._found: dict[int, Identity] = {}
        self._resumed: dict[int, JoinCommit] = {}
        self._partitions: dict[int, JoinPartition] = {}

    def held_since(self, trigger: str) -> list[int]:
        """When each event that a trigger holds here was appended. For any thread: only copies are looked through."""
        partitions = self._partitions.copy().values()
        return [event.source.timestamp for partition in partitions for _, _, event in partition.held(trigger)]

    def opened(self, partition: int, committed: Committed | None) -> tuple[str, int] | None:
        if committed is not None:
            commit = decode_join(committed.offset, committed.metadata)
            check_owner(self._plan.name, self._plan.owner, commit.owner)
            self._resumed[partition] = commit
            self._partitions[partition] = self._partition(partition, commit)
        return self._state_topic, partition

    def load(self, partition: int, record: Record) -> None:
        key = decode_state_key(record)
        if isinstance(key, IdentityKey):
            self._found.pop(partition, None)
            if record.value is not None:
                self._found[partition] = identity(record)
        elif not isinstance(key, OriginKey):
            if partition not in self._partitions:
                raise offsets_gone(self._plan.name, Stage.JOIN, partition)
            self._partitions[partition].load(key, record)

    def restored(self, partition: int, offsets: tuple[int, int]) -> int:
        found, resumed = self._found.pop(partition, None), self._resumed.pop(partition, None)
        if found is not None:
            check_identity(self._plan, self._topology, found)
        if found is not None and resumed is None:
            raise offsets_gone(self._plan.name, Stage.JOIN, partition)
        if found is None and resumed is not None:
            raise state_gone(self._plan.name, partition, Committed(resumed.offset, encode_join(resumed)))
        if resumed is None:
            resumed = JoinCommit(self._plan.owner, offsets[0], 0, {})
            self._partitions[partition] = self._partition(partition, resumed)
        wanted = self._identity
        if found is not None:
            # How many there were when the sensor first ran: those added since are read from their beginning.
            wanted = msgspec.structs.replace(wanted, event_partitions=found.event_partitions)
        if found != wanted:
            self._partitions[partition].claim(identity_output(self._plan.name, wanted, partition))
        self._partitions[partition].loaded()
        self._apply(partition, [])
        return resumed.offset

    def dropped(self, partition: int) -> None:
        self._partitions.pop(partition, None)
        self._resumed.pop(partition, None)
        self._found.pop(partition, None)
        self._batches.pop(partition, None)

    def _apply(self, partition: int, records: Iterable[Record]) -> None:
        step = self._partitions[partition].step(list(records))
        if step is not None:
            batch = self._batches[partition]
            batch.outputs += step.outputs
            self._unused.update((unused.trigger, unused.gone.reason) for unused in step.unused)
            batch.commit = _join_commit(partition, step.commit)

    def committed(self) -> None:
        for (trigger, reason), count in self._unused.items():
            self._metrics.count_unused(trigger, reason, count)
        self._unused.clear()

    def aborted(self) -> bool:
        self._unused.clear()  # the same will be let go again
        return super().aborted()

    def _partition(self, partition: int, commit: JoinCommit) -> JoinPartition:
        return JoinPartition(
            self._plan,
            self._topology,
            partition,
            commit,
            self._replica,
            horizon_records=self._horizon_records,
            horizon_ms=self._horizon_ms,
        )


def _join_commit(partition: int, commit: JoinCommit) -> Commit:
    return Commit(partition, commit.offset, encode_join(commit))
