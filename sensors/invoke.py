"""The invoke stage's core: which action may run now, what its outcome means, and what to commit.

Theory of operation
-------------------
Every action record becomes a `Task`. Tasks of one trigger and key form a *lane* and run one after the other; lanes
run side by side, up to the concurrency, so a slow trigger does not hold up the others. A task goes through

    QUEUED ──▶ TAKING ──▶ READY ──▶ RUNNING ──▶ gone        at most once: marked, committed, then invoked
    QUEUED ─────────────▶ READY ──▶ RUNNING ──▶ gone        at least once: invoked, then marked and committed
                            ▲          │
                            └─ WAITING ◀                    to be tried again

*At most once* marks a record as finished (*taken*) in a transaction of its own before it is invoked, so nothing that
happens later can invoke it again. To make that transaction worth its while a lane may take a few tasks ahead; those
are given back when the partition is revoked before they were begun. *At least once* marks it when it has succeeded,
or when its dead letter is in the same transaction. What a rate limit (`sensors.pace`) does not let begin waits with
its trigger, and is not taken before it can begin soon.

The core never waits and has no clock: it is told the time, and tells when it wants to be asked again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import count

import msgspec

from eventbus.errors import FormatError, NewerFormatError
from eventbus.formats import ActionFact, action_fact
from eventbus.metadata import InvokeCommit
from eventbus.names import Stage
from eventbus.ports import Output, Record
from eventbus.topics import Topology
from sensors.actions.base import ActionError
from sensors.deadletters import INVALID_RECORD, PAUSED, SPEC_CHANGED, DeadLetters
from sensors.ledger import Ledger
from sensors.outcomes import FAILED, LOST, RELEASED, SUCCEEDED, TAKEN, Outcomes
from sensors.pace import Pace
from sensors.pauses import Pauses, withholds
from sensors.plan import SensorPlan
from sensors.tasks import Delivery, Lane, State, Task, TaskPartition

CONCURRENCY = 32
"""How many actions one replica of a sensor invokes at a time."""
_AHEAD_PER_LANE = 4
"""How many tasks a lane takes beyond its first: what a crash may cost an at-most-once trigger, per key."""


class InvokeStep(msgspec.Struct, frozen=True):
    """One transaction of the invoke stage."""

    outputs: list[Output]
    commits: dict[int, InvokeCommit]


class Invoker:
    """All assigned partitions of the action topic."""

    def __init__(
        self,
        plan: SensorPlan,
        deliveries: Mapping[str, Delivery],
        topology: Topology,
        replica: str,
        *,
        concurrency: int = CONCURRENCY,
    ) -> None:
        self._plan = plan
        self._deliveries = deliveries
        self._concurrency = concurrency
        self._dead_letters = DeadLetters.of_stage(plan.name, Stage.INVOKE, topology, replica)
        self._outcomes = Outcomes(plan.name, deliveries, self._dead_letters, topology, replica, plan.owner.generation)
        self._paces = {
            trigger: Pace(delivery.limit, topology.action_partitions)
            for trigger, delivery in deliveries.items()
            if delivery.limit is not None
        }
        self._partitions: dict[int, TaskPartition] = {}
        self._ready: deque[Lane] = deque()
        self._waiting: list[tuple[float, int, Lane]] = []
        self._running: dict[tuple[int, bytes], Task] = {}
        self._blocked: dict[tuple[int, bytes], list[Lane]] = {}
        self._takers: dict[Lane, None] = {}
        self._taking: list[Task] = []
        self._under_way: dict[TaskPartition, list[Output]] = {}
        self._heads_taken = 0
        self._ahead_taken = 0
        self._sequence = count()
        self._pauses: Pauses = {}

    # --- partitions -------------------------------------------------------------------------------------------------

    def open(self, number: int, commit: InvokeCommit) -> None:
        """Begin with a partition where its last commit left off."""
        self._partitions[number] = TaskPartition(number, Ledger(self._plan.owner, commit))

    def drop(self, number: int) -> None:
        """Forget a partition. Its running actions go on, but their outcome no longer counts."""
        home = self._partitions.pop(number, None)
        if home is None:
            return
        for lane in home.lanes.values():
            self._heads_taken -= min(lane.taken, 1)
            self._ahead_taken -= max(lane.taken - 1, 0)
            if lane.pace is not None:
                lane.pace.drop(lane)
        self._ready = deque(lane for lane in self._ready if lane.home is not home)
        self._waiting = [entry for entry in self._waiting if entry[2].home is not home]
        self._takers = {lane: None for lane in self._takers if lane.home is not home}
        self._under_way.pop(home, None)
        self._taking = [task for task in self._taking if task.lane.home is not home]
        heapify(self._waiting)

    def hold(self, partitions: Iterable[int]) -> None:
        """Begin nothing more of these partitions: they are about to be given up."""
        for home in self._homes(partitions):
            home.closing = True

    def release(self, partitions: Iterable[int], now_ms: int) -> None:
        """Before partitions are given up: hand back what was taken and not begun, own up to what was begun.

        Commit this with `finish`. An action that is still running is recorded as lost, because nobody will see its
        outcome; if it is to be invoked at least once, the next owner invokes it again.
        """
        for home in self._homes(partitions):
            for lane in home.lanes.values():
                for number, task in enumerate(list(lane.tasks)[: max(lane.taken, 1)]):
                    if task.state is State.RUNNING:
                        self._note(task, LOST, now_ms)
                    elif number < lane.taken:  # never begun, or every attempt was provably not sent
                        self._note(task, RELEASED, now_ms)
                        home.ledger.reopen(task.record.offset)

    def running(self, partitions: Iterable[int]) -> int:
        """How many actions of these partitions are being invoked right now."""
        homes = self._homes(partitions)
        return sum(task.lane.home in homes for task in self._running.values())

    def any_running(self) -> bool:
        """Whether anything is being invoked right now, even for partitions that were dropped meanwhile."""
        return bool(self._running)

    def position(self, partition: int) -> InvokeCommit:
        """What this partition would commit now."""
        return self._partitions[partition].ledger.commit()

    def congested(self) -> set[int]:
        """Partitions from which no more records should be fetched for now."""
        return {number for number, home in self._partitions.items() if home.backlog}

    def idle(self) -> bool:
        """Nothing is under way, nothing waits, and everything is committed."""
        return not self._running and not any(
            home.lanes or home.backlog or home.outputs or home.changed for home in self._partitions.values()
        )

    def _homes(self, partitions: Iterable[int]) -> list[TaskPartition]:
        return [self._partitions[number] for number in partitions if number in self._partitions]

    # --- records in -------------------------------------------------------------------------------------------------

    def receive(self, records: Sequence[Record]) -> None:
        """Take in records of opened partitions, in the order of the log."""
        for record in records:
            self._partitions[record.partition].backlog.append(record)
        for number in {record.partition for record in records}:
            self._admit(self._partitions[number])

    def _admit(self, home: TaskPartition) -> None:
        while home.backlog and home.ledger.has_room():
            record = home.backlog.popleft()
            if home.ledger.open(record.offset):
                self._enqueue(home, record)
            home.changed = True

    def _enqueue(self, home: TaskPartition, record: Record) -> None:
        try:
            fact = action_fact(record)
        except NewerFormatError:
            raise
        except FormatError as error:
            home.outputs.append(self._dead_letters.of(record, INVALID_RECORD, str(error)))
            home.ledger.finish(record.offset)
            return
        delivery = self._deliveries.get(fact.trigger)
        if delivery is None:
            detail = f"the sensor has no trigger `{fact.trigger}` any more"
            home.outputs.append(
                self._dead_letters.of(record, SPEC_CHANGED, detail, trigger=fact.trigger, action=fact.id)
            )
            home.ledger.finish(record.offset)
            return
        if withholds(self._pauses, record, fact):
            self._withhold(home, record, fact)
            return
        key = record.key or b""
        lane = home.lanes.get(key)
        if lane is None:
            lane = home.lanes[key] = Lane(home, key, delivery, self._paces.get(fact.trigger))
        lane.tasks.append(Task(record, fact, lane))
        if len(lane.tasks) == 1:
            self._advance(lane)
        elif delivery.marked_first:
            self._takers[lane] = None

    # --- pauses -----------------------------------------------------------------------------------------------------

    def pause(self, pauses: Pauses) -> None:
        """Begin nothing more of these triggers. What was begun, or marked as taken, is finished."""
        self._pauses = pauses
        empty: set[Lane] = set()
        for home in self._partitions.values():
            for lane in home.lanes.values():
                for task in lane.take_out(lambda task: withholds(pauses, task.record, task.fact)):
                    self._withhold(home, task.record, task.fact)
                if len(lane.tasks) == lane.taken:
                    self._takers.pop(lane, None)
                if not lane.tasks:
                    empty.add(lane)
        if empty:
            self._forget_lanes(empty)
        for home in self._partitions.values():
            self._admit(home)

    def _forget_lanes(self, lanes: set[Lane]) -> None:
        self._ready = deque(lane for lane in self._ready if lane not in lanes)
        self._blocked = {
            place: [lane for lane in waiting if lane not in lanes] for place, waiting in self._blocked.items()
        }
        for lane in lanes:
            del lane.home.lanes[lane.key]
            if lane.pace is not None:
                lane.pace.drop(lane)

    def _withhold(self, home: TaskPartition, record: Record, fact: ActionFact) -> None:
        detail = f"the trigger `{fact.trigger}` is paused: `eventbus resume` drives its actions back"
        home.outputs.append(self._dead_letters.of(record, PAUSED, detail, trigger=fact.trigger, action=fact.id))
        home.ledger.finish(record.offset)
        home.changed = True

    # --- lanes ------------------------------------------------------------------------------------------------------

    def _advance(self, lane: Lane) -> None:
        """The lane has a new head: see to it that its turn comes."""
        if not lane.tasks:
            del lane.home.lanes[lane.key]
            self._takers.pop(lane, None)
            return
        head = lane.tasks[0]
        if not lane.delivery.marked_first:
            head.state = State.READY
        if head.state is State.READY:
            self._ready.append(lane)
        elif head.state is State.QUEUED:
            self._takers[lane] = None

    # --- invocations ------------------------------------------------------------------------------------------------

    def startable(self, now: float, now_ms: int) -> Iterator[Task]:
        """Tasks to be invoked now. Each must be answered by `succeeded` or `failed`."""
        while self._waiting and self._waiting[0][0] <= now:
            lane = heappop(self._waiting)[2]
            lane.tasks[0].state = State.READY
            self._ready.append(lane)
        self._look_at_limits(now, now_ms)
        while self._ready and len(self._running) < self._concurrency:
            lane = self._ready.popleft()
            if lane.home.closing:
                continue
            task = lane.tasks[0]
            if lane.place in self._running:
                # An attempt from before a restore is still under way: two at a time would break the order.
                self._blocked.setdefault(lane.place, []).append(lane)
                continue
            if lane.pace is not None and not lane.pace.allows(now):
                lane.pace.lanes.append(lane)
                continue
            task.state = State.RUNNING
            task.attempt += 1
            task.started_ms = now_ms
            if task.attempt == 1:
                task.first_attempt = now
            if lane.pace is not None:
                lane.pace.begin(task, now, now_ms, self._partitions)
            self._running[lane.place] = task
            yield task

    def _look_at_limits(self, now: float, now_ms: int) -> None:
        """Lanes that have waited for their limit come first, as they came first."""
        if not self._paces:
            return
        for home in self._partitions.values():
            home.since = min(home.since, now)
        for pace in self._paces.values():
            pace.look(now, now_ms, self._partitions)
            if pace.allows(now):
                self._ready.extendleft(reversed(pace.lanes))
                pace.lanes.clear()

    def next_wakeup(self) -> float | None:
        """When the next retry is due, or a limit allows the next attempt."""
        to_take = {lane.pace for lane in self._takers} if self._paces else set()
        due = [pace.wakeup(to_take=pace in to_take) for pace in self._paces.values()]
        if self._waiting:
            due.append(self._waiting[0][0])
        return min((moment for moment in due if moment is not None), default=None)

    def succeeded(self, task: Task, status: str, now_ms: int, outputs: Sequence[Output] = ()) -> None:
        """`outputs` are written in the same transaction as the mark that the action is done."""
        if self._ended(task):
            task.lane.home.outputs += outputs
            self._note(task, SUCCEEDED, now_ms, status=status)
            self._finish(task)

    def failed(self, task: Task, error: ActionError, now: float, now_ms: int) -> None:
        """At most once tries again only what was provably not sent."""
        if not self._ended(task):
            return
        delivery = task.lane.delivery
        delay = None
        if error.retriable and not (error.sent and delivery.marked_first):
            elapsed = now - task.first_attempt
            delay = delivery.retry.delay(task.fact.id, task.attempt, elapsed, error.retry_after)
        if delay is not None:
            self._note(task, FAILED, now_ms, status=error.status, error=str(error))
            task.state = State.WAITING
            heappush(self._waiting, (now + delay, next(self._sequence), task.lane))
            return
        task.lane.home.outputs += self._outcomes.given_up(task, error, now_ms)
        self._finish(task)

    def _ended(self, task: Task) -> bool:
        """Whether the outcome still counts."""
        del self._running[task.lane.place]
        self._ready.extend(lane for lane in self._blocked.pop(task.lane.place, []) if self._is_current(lane.home))
        return self._is_current(task.lane.home)

    def _is_current(self, home: TaskPartition) -> bool:
        return self._partitions.get(home.number) is home

    def _finish(self, task: Task) -> None:
        lane = task.lane
        lane.home.ledger.finish(task.record.offset)
        lane.home.changed = True
        lane.tasks.popleft()
        if lane.taken:
            lane.taken -= 1
            if lane.taken:
                self._ahead_taken -= 1
            else:
                self._heads_taken -= 1
        self._advance(lane)
        self._admit(lane.home)

    # --- transactions -----------------------------------------------------------------------------------------------

    def transaction(self, now_ms: int) -> InvokeStep | None:
        """What to commit now, if anything. Follow it with `committed` or `aborted`, or drop all partitions."""
        self._take(now_ms)
        return self.finish()

    def finish(self) -> InvokeStep | None:
        """As `transaction`, but begin nothing new."""
        changed = [home for home in self._partitions.values() if home.changed or home.outputs]
        if not changed:
            return None
        self._under_way = {home: home.outputs for home in changed}
        outputs = [output for home in changed for output in home.outputs]
        commits = {home.number: home.ledger.commit() for home in changed}
        for home in changed:
            home.outputs = []
            home.changed = False
        return InvokeStep(outputs, commits)

    def aborted(self) -> None:
        """Nothing of the last transaction has happened: the next one makes up for it."""
        for home, outputs in self._under_way.items():
            home.outputs = outputs + home.outputs
            home.changed = True
        self._under_way = {}

    def committed(self) -> None:
        """The last transaction is durable: what it took may be invoked."""
        self._under_way = {}
        for task in self._taking:
            task.state = State.READY
            if task.lane.tasks[0] is task:
                self._ready.append(task.lane)
        self._taking = []

    def _take(self, now_ms: int) -> None:
        """Heads of lanes first, so that no lane waits for another's tasks that are only taken ahead."""
        for lane in list(self._takers):
            room = self._heads_taken < self._concurrency and (lane.pace is None or lane.pace.may_take())
            if lane.taken == 0 and room:
                self._take_next(lane, now_ms)
                self._heads_taken += 1
        for lane in [lane for lane in self._takers if lane.pace is None]:
            while 0 < lane.taken <= _AHEAD_PER_LANE and self._ahead_taken < self._concurrency and lane in self._takers:
                self._take_next(lane, now_ms)
                self._ahead_taken += 1

    def _take_next(self, lane: Lane, now_ms: int) -> None:
        task = lane.tasks[lane.taken]
        task.state = State.TAKING
        lane.taken += 1
        if lane.taken == len(lane.tasks):
            del self._takers[lane]
        lane.home.ledger.take(task.record.offset)
        self._taking.append(task)
        if lane.pace is not None:
            lane.pace.unbegun += 1
        task.started_ms = now_ms
        self._note(task, TAKEN, now_ms)

    def _note(
        self, task: Task, outcome: str, ended_ms: int, *, status: str | None = None, error: str | None = None
    ) -> None:
        task.lane.home.outputs.append(self._outcomes.note(task, outcome, ended_ms, status=status, error=error))
