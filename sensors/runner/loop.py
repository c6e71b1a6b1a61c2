"""One stage of one replica: poll, step the core, commit; and what to do when any of these fails.

Theory of operation
-------------------
`StageLoop.step` is called over and over, by a thread or by a simulator. Every assigned partition is in one of three
phases:

    OFFSETS ──▶ STATE ──▶ RUNNING        assigned, or restarted after an abort: always from OFFSETS on
       └────────────────────▲            where the stage keeps no state

- OFFSETS: ask what the group has committed. While a predecessor's transaction is open there is no answer; ask again.
- STATE: read the stage's state partition up to an end that is asked *after* the committed offset is known
  (`sensors.runner.restore`).
- RUNNING: the partition is started at the offset that the stage asks for.

A transaction either commits, or everything that was computed is dropped and every partition starts over from its last
commit. Only the invoke stage may keep what it knows after an abort that is certain: that an action was invoked stays
true, and to forget it would repeat the action. Which error means what is decided by the adapter (`eventbus.errors`);
what follows from it is decided here, in `_recover`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from enum import Enum, auto

import msgspec

from eventbus.errors import (
    AbortableError,
    FatalError,
    FencedError,
    FormatError,
    LogError,
    RetriableError,
    UnknownOutcome,
    UnproducibleError,
)
from eventbus.logfields import fields_logger
from eventbus.names import SensorName
from eventbus.ports import Clock, Cluster, Commit, GroupConsumer, Output, TransactionalProducer
from sensors.deadletters import DeadLetters
from sensors.metrics import StageMetrics
from sensors.runner.guard import TopicGuard
from sensors.runner.logic import StageLogic, Transaction
from sensors.runner.ownership import Contradiction
from sensors.runner.refusals import Refusals
from sensors.runner.restore import StateReadings

MAX_BATCH = 5000
_FIRST_BATCH = 500
_FENCED_LIMIT, _FENCED_WINDOW = 3, 60.0
_ABORT_PAUSE, _ABORT_PAUSE_MAX = 0.05, 2.0
_RETRY_PAUSE = 0.2
_HANGING_SECONDS = 60.0
_OBSERVE_SECONDS = 5.0
_RESTORE_POLL = 0.01
FORGOTTEN_SECONDS = "forgotten_seconds"
"""The member of a log line that tells how long the turn took whose work was dropped."""

log = fields_logger("eventbus.sensor")


class _Phase(Enum):
    OFFSETS = auto()
    STATE = auto()
    RUNNING = auto()


class _Assignment(msgspec.Struct):
    phase: _Phase = _Phase.OFFSETS
    paused: bool = False


class StageLoop:
    """Drives one stage. Not thread-safe: one thread calls `step` and `close`."""

    def __init__(
        self,
        cluster: Cluster,
        name: SensorName,
        logic: StageLogic,
        dead_letters: DeadLetters,
        *,
        slot: str,
        clock: Clock,
        metrics: StageMetrics,
        guard: TopicGuard,
    ) -> None:
        self._cluster = cluster
        self._logic = logic
        self._clock = clock
        self._metrics = metrics
        self._guard = guard
        self._topic = name.input_topic(logic.stage)
        self._transactional_id = name.transactional_id(logic.stage, slot)
        self._assignments: dict[int, _Assignment] = {}
        self._max_records = _FIRST_BATCH
        self._refusals = Refusals(dead_letters)
        self._fenced_at: deque[float] = deque(maxlen=_FENCED_LIMIT)
        self._aborts = 0
        self._joined = False
        self._ready = False
        self._unstable_since: float | None = None
        self._observe_every = _OBSERVE_SECONDS
        self._observed_at = -_OBSERVE_SECONDS
        self._caught_up_at = -1.0
        self._stalled = 0.0
        self._turn_began = clock.monotonic()
        self._states = StateReadings(cluster.reader(), logic.load)
        self._producer: TransactionalProducer | None = None
        self._consumer: GroupConsumer = cluster.consumer(name.group(logic.stage), self._topic, self)

    # --- what others may ask ----------------------------------------------------------------------------------------

    def ready(self) -> bool:
        """Every assigned partition is running and its start is committed, so no later event can be missed."""
        return self._ready

    def stalled_seconds(self) -> float:
        """For how long there has been lag without a commit."""
        return self._stalled

    def turn_seconds(self) -> float:
        """For how long the current turn has been going on. A call to the log can hang in spite of its time-out."""
        return self._clock.monotonic() - self._turn_began

    def caught_up_at(self) -> float:
        """The last moment (of the monotonic clock) at which everything written before it was dealt with."""
        return self._caught_up_at

    def observe_eagerly(self) -> None:
        """Look for the end of the input at every idle turn, for somebody who waits for it."""
        self._observe_every = 0.0

    def assigned(self, partitions: Sequence[int]) -> None:
        """`RebalanceListener`: new partitions, to be restored by the next steps."""
        self._metrics.rebalanced()
        self._joined = True
        for partition in partitions:
            self._assignments[partition] = _Assignment()

    def revoked(self, partitions: Sequence[int]) -> None:
        """`RebalanceListener`: the last moment to commit."""
        self._metrics.rebalanced()
        running = [p for p in partitions if self._phase(p) is _Phase.RUNNING]
        try:
            if running:
                self._commit(self._logic.revoking(running))
        except (AbortableError, FencedError, UnknownOutcome, UnproducibleError) as error:
            # Whoever owns them next restores from the last commit, as if we had crashed.
            log.warning("%s: could not commit on revoke: %s", self._transactional_id, error)
            self._forget(partitions)
            self._recover(error)
            return
        self._forget(partitions)

    def lost(self, partitions: Sequence[int]) -> None:
        """`RebalanceListener`: somebody else has them already."""
        self._metrics.rebalanced()
        # Actions under way are forgotten: at least once repeats them elsewhere, which nobody could explain otherwise.
        log.warning("%s: partitions lost: %s", self._transactional_id, ", ".join(map(str, partitions)))
        self._forget(partitions)

    # --- the loop ---------------------------------------------------------------------------------------------------

    def step(self, timeout: float) -> float:
        """One turn. Returns for how many seconds to leave it in peace before the next one, usually 0.

        Raises `FatalError` or `FormatError` when this replica has to stop.
        """
        self._turn_began = self._clock.monotonic()
        self._guard.check()
        try:
            self._ready = self._turn(timeout)
        except RetriableError as error:
            log.warning("%s: %s; trying again", self._transactional_id, error)
            return _RETRY_PAUSE
        except (AbortableError, FencedError, UnknownOutcome, UnproducibleError) as error:
            return self._recover(error)
        return 0.0

    def _turn(self, timeout: float) -> bool:
        if self._producer is None:
            self._producer = self._new_producer()
        restoring = self._restore()
        self._apply_back_pressure()
        patience = self._logic.wait(timeout)
        records = self._consumer.poll(self._max_records, min(patience, _RESTORE_POLL) if restoring else patience)
        self._metrics.received(len(records))
        self._commit(self._logic.work(records))
        if len(records) == self._max_records:
            self._max_records = min(2 * self._max_records, MAX_BATCH)
        running = self._joined and self._all_running()
        if running:
            self._observe(idle=not records)
        return running

    def _observe(self, *, idle: bool) -> None:
        """Measure the lag now and then."""
        now = self._clock.monotonic()
        if now - self._observed_at < (self._observe_every if idle else _OBSERVE_SECONDS):
            return
        self._observed_at = now
        lag = 0
        for partition in self._assignments:
            lag += max(0, self._consumer.offsets(partition)[1] - self._consumer.position(partition))
        self._stalled = self._metrics.lagging(lag, working=self._logic.working())
        if lag == 0 and self._logic.idle():
            self._caught_up_at = now

    def close(self) -> None:
        """Give everything back in order: what is finished is committed, the group is left."""
        try:
            self._consumer.close()
        finally:
            if self._producer is not None:
                self._producer.close()
            self._states.close()

    # --- restore ----------------------------------------------------------------------------------------------------

    def _restore(self) -> bool:
        """Take every partition that is not running one slice further. Returns whether any is left."""
        if self._all_running():
            return False
        self._ask_offsets([p for p, a in self._assignments.items() if a.phase is _Phase.OFFSETS])
        if any(assignment.phase is _Phase.STATE for assignment in self._assignments.values()):
            try:
                self._read_states()
            except Contradiction as error:
                self._doubt(error)
        return not self._all_running()

    def _ask_offsets(self, partitions: list[int]) -> None:
        if not partitions:
            return
        try:
            committed = self._consumer.committed(partitions)
        except RetriableError as error:
            self._not_stable(error)
            return
        self._unstable_since = None
        for partition in partitions:
            state = self._logic.opened(partition, committed[partition])
            if state is None:
                self._start(partition)
            else:
                self._states.begin(partition, state)
                self._assignments[partition] = _Assignment(_Phase.STATE)

    def _not_stable(self, error: RetriableError) -> None:
        """Waiting is right. But a transaction that Kafka has lost sight of never ends, and only a person can end it."""
        now = self._clock.monotonic()
        if self._unstable_since is None:
            self._unstable_since = now
        if now - self._unstable_since < _HANGING_SECONDS:
            log.debug("%s: committed offsets are not stable yet: %s", self._transactional_id, error)
            return
        self._unstable_since = now
        log.warning(
            "%s: for %g s and more nobody could say what is committed: %s. If Kafka answers otherwise, a transaction "
            "hangs: docs/protocol.md tells how to end it, under Damage",
            self._transactional_id,
            _HANGING_SECONDS,
            error,
        )

    def _read_states(self) -> None:
        for partition in self._states.advance():
            self._start(partition)
            self._states.end(partition)

    def _doubt(self, error: Contradiction) -> None:
        """Somebody may have gone on since we asked: we were suspended, and do not know yet that it is not ours."""
        self._restart(error.partition)
        if self._consumer.committed([error.partition])[error.partition] == error.committed:
            raise error

    def _start(self, partition: int) -> None:
        offsets = self._consumer.offsets(partition)  # if there is no answer, the next turn asks again
        offset = self._logic.restored(partition, offsets)
        try:
            self._consumer.start(partition, offset)
        except RetriableError as error:
            raise AbortableError(str(error)) from error  # what was restored is used up: begin again from the commit
        self._assignments[partition] = _Assignment(_Phase.RUNNING)
        log.info("%s: partition %d runs from offset %d", self._transactional_id, partition, offset)

    def _apply_back_pressure(self) -> None:
        congested = self._logic.congested()
        for partition, assignment in self._assignments.items():
            if assignment.phase is _Phase.RUNNING and assignment.paused != (partition in congested):
                assignment.paused = not assignment.paused
                (self._consumer.pause if assignment.paused else self._consumer.resume)([partition])

    # --- commit -----------------------------------------------------------------------------------------------------

    def _commit(self, parts: Iterable[Transaction]) -> None:
        """Steps 1 to 4 are one Kafka transaction. There is no poll inside it and none without offsets.

        Computing the next part overlaps with sending the one before.
        """
        if self._producer is None:
            raise AbortableError("there is no producer to commit with")
        producer = self._producer
        wanted: list[Output] = []
        written: list[Output] = []
        commits: dict[int, Commit] = {}
        try:
            for part in parts:
                if not commits:
                    producer.begin()  # 1
                commits.update((commit.partition, commit) for commit in part.commits)
                wanted += part.outputs
                outputs = self._refusals.producible(part.outputs)
                written += outputs
                producer.produce(outputs)  # 2
            if not commits:
                return
            producer.send_offsets(self._topic, list(commits.values()), self._consumer.group_metadata())  # 3
            producer.commit()  # 4
        except UnproducibleError as error:
            refused = written[error.index]
            if self._guard.misses(refused.topic):
                raise AbortableError(str(error)) from error  # no dead letter can make up for a topic
            self._refusals.note(refused, str(error))
            raise
        except RetriableError as error:
            raise AbortableError(str(error)) from error
        except FormatError:
            if commits:
                self._abort()  # whoever stops because of a record leaves nothing half-written behind
            raise
        self._logic.committed()
        self._refusals.settle(wanted)
        self._aborts = 0
        self._metrics.committed(written)

    # --- recover ----------------------------------------------------------------------------------------------------

    def _recover(self, error: LogError) -> float:
        """Go back to the last commit. Returns for how long to pause."""
        self._ready = False
        self._metrics.aborted()
        self._aborts += 1
        certain = isinstance(error, AbortableError | UnproducibleError) and self._abort()
        if certain and self._logic.aborted():
            log.info("%s: transaction aborted, to be repeated: %s", self._transactional_id, error)
        else:
            forgotten = {FORGOTTEN_SECONDS: round(self.turn_seconds(), 3)}
            log.warning("%s: transaction aborted, restoring: %s", self._transactional_id, error, extra=forgotten)
            for partition in self._assignments:
                self._restart(partition)
        if isinstance(error, FencedError):
            self._fenced()
        if not certain:
            self._discard_producer()
        if self._aborts == 1:
            return 0.0
        # Once may be an accident; more often, smaller batches or time may help.
        self._max_records = max(1, self._max_records // 2)
        return min(_ABORT_PAUSE * 2.0 ** min(self._aborts, 10), _ABORT_PAUSE_MAX)

    def _restart(self, partition: int) -> None:
        self._consumer.stop(partition)
        self._logic.dropped(partition)
        self._states.end(partition)
        self._assignments[partition] = _Assignment()

    def _abort(self) -> bool:
        """Returns whether the producer is still good."""
        try:
            if self._producer is not None:
                self._producer.abort()
        except LogError as error:
            log.warning("%s: could not abort: %s", self._transactional_id, error)
            return False
        return True

    def _fenced(self) -> None:
        now = self._clock.monotonic()
        self._fenced_at.append(now)
        if len(self._fenced_at) == _FENCED_LIMIT and now - self._fenced_at[0] < _FENCED_WINDOW:
            raise FatalError(
                f"the transactional id `{self._transactional_id}` was taken over {_FENCED_LIMIT} times within a "
                "minute: another replica runs with the same slot. Give each replica its own --slot"
            )

    def _discard_producer(self) -> None:
        if self._producer is not None:
            self._producer.close()
            self._producer = None

    def _new_producer(self) -> TransactionalProducer:
        producer = self._cluster.producer(self._transactional_id)
        try:
            producer.init()
        except LogError:
            producer.close()
            raise
        return producer

    # --- partitions -------------------------------------------------------------------------------------------------

    def _all_running(self) -> bool:
        return all(assignment.phase is _Phase.RUNNING for assignment in self._assignments.values())

    def _phase(self, partition: int) -> _Phase | None:
        assignment = self._assignments.get(partition)
        return None if assignment is None else assignment.phase

    def _forget(self, partitions: Sequence[int]) -> None:
        for partition in partitions:
            self._logic.dropped(partition)
            self._states.end(partition)
            self._assignments.pop(partition, None)
