"""Rate limits: no burst, whoever owns what and whoever dies."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import ceil
from typing import NamedTuple, TypeAlias

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventbus.clock import ManualClock
from eventbus.events import Event
from eventbus.metadata import InvokeCommit
from eventbus.ports import Record
from sensors.actions.base import ActionError
from sensors.invoke import Invoker
from sensors.match import Matcher
from sensors.metrics import SensorMetrics
from sensors.retry import RetryPolicy
from sensors.runner.executor import ThreadExecutor
from sensors.runner.invoke_stage import InvokeStage
from sensors.tasks import Delivery, RateLimit, Task
from tests.core.builders import EXAMPLES, OWNER, TOPOLOGY, as_read, event_record, make_plan

PLAN = make_plan({"most": "a", "least": "b", "free": "c"})
PARTITIONS = range(TOPOLOGY.action_partitions)
EPOCH_MS = 1_800_000_000_123
RETRY = RetryPolicy(steps=3, duration=0.5, jitter=0.0, total=1e9)
EPSILON = 1e-5
"""Seconds since 1970 have no more digits than that."""


class Start(NamedTuple):
    at: float
    replica: int
    """Which run of which replica."""


class World:
    """Replicas that share the partitions of one action topic. Every commit succeeds at once."""

    def __init__(self, limit: RateLimit, replicas: int = 1) -> None:
        self.now = 0.0
        self.starts: defaultdict[str, list[Start]] = defaultdict(list)
        self.running: list[tuple[int, Task]] = []
        self._deliveries = {
            "most": Delivery(at_least_once=False, retry=RETRY, limit=limit),
            "least": Delivery(at_least_once=True, retry=RETRY, limit=limit),
            "free": Delivery(at_least_once=True),
        }
        self._logs: list[list[Record]] = [[] for _ in PARTITIONS]
        self._commits = [InvokeCommit(OWNER, 0, ()) for _ in PARTITIONS]
        self._fetched = [0 for _ in PARTITIONS]
        self._runs = 0
        self._cores: list[tuple[int, Invoker]] = []
        self._owners = [number % replicas for number in PARTITIONS]
        self._written = 0
        for replica in range(replicas):
            self._cores.append(self._new_core())
            for number in self.owned(replica):
                self._open(number, replica)
            self.turn(replica)

    @property
    def now_ms(self) -> int:
        return EPOCH_MS + int(self.now * 1000)

    def core(self, replica: int) -> Invoker:
        return self._cores[replica][1]

    def owned(self, replica: int) -> list[int]:
        return [number for number in PARTITIONS if self._owners[number] == replica]

    def arrive(self, trigger: str, key: str, partition: int | None = None) -> None:
        name = {"most": "a", "least": "b", "free": "c"}[trigger]
        event = Event.new("shop", name, id=f"{self._written}", partitionkey=key)
        [output] = Matcher(PLAN, TOPOLOGY, "0").outputs(event_record(event, offset=self._written))
        self._written += 1
        number = output.partition if partition is None else partition
        log = self._logs[number]
        log.append(msgspec.structs.replace(as_read(output, len(log)), partition=number))

    def turn(self, replica: int) -> None:
        """What the loop of a replica does."""
        run, core = self._cores[replica]
        for number in self.owned(replica):
            core.receive(self._logs[number][self._fetched[number] :])
            self._fetched[number] = len(self._logs[number])
        self._start(run, core)
        self._commit(core, core.transaction(self.now_ms) is not None)
        self._start(run, core)

    def end(self, which: int, error: ActionError | None = None) -> None:
        run, task = self.running.pop(which % len(self.running))
        core = next((core for number, core in self._cores if number == run), None)
        if core is None:
            return  # its replica was killed
        if error is None:
            core.succeeded(task, "ok", self.now_ms)
        else:
            core.failed(task, error, self.now, self.now_ms)

    def move(self, number: int, to: int) -> None:
        core = self.core(self._owners[number])
        core.hold([number])
        core.release([number], self.now_ms)
        step = core.finish()
        if step is not None:
            self._commits[number] = step.commits.get(number, self._commits[number])
        core.committed()
        self._commits[number] = core.position(number)
        core.drop(number)
        self._open(number, to)

    def kill(self, replica: int) -> None:
        self._cores[replica] = self._new_core()
        for number in self.owned(replica):
            self._open(number, replica)

    def run_until(self, end: float, replicas: Iterable[int] = (0,)) -> None:
        """Everything succeeds at once, and nobody is asked before it wanted to be."""
        while self.now < end:
            for replica in replicas:
                self.turn(replica)
                while self.running:
                    self.end(0)
                self.turn(replica)
            wakeups = [self.core(replica).next_wakeup() for replica in replicas]
            due = min((wakeup for wakeup in wakeups if wakeup is not None), default=end)
            self.now = min(end, max(due, self.now + 0.001))

    def _new_core(self) -> tuple[int, Invoker]:
        self._runs += 1
        return self._runs, Invoker(PLAN, self._deliveries, TOPOLOGY, "0", concurrency=8)

    def _open(self, number: int, owner: int) -> None:
        self._owners[number] = owner
        self._fetched[number] = self._commits[number].offset
        self.core(owner).open(number, self._commits[number])

    def _start(self, run: int, core: Invoker) -> None:
        for task in core.startable(self.now, self.now_ms):
            self.starts[task.fact.trigger].append(Start(self.now, run))
            self.running.append((run, task))

    def _commit(self, core: Invoker, anything: bool) -> None:
        if anything:
            core.committed()
            for number in PARTITIONS:
                if number in core._partitions:
                    self._commits[number] = core.position(number)


def most_in(starts: Sequence[float], window: float) -> int:
    """The most starts that any time of this length (without its end) has seen."""
    return max((bisect_left(starts, first + window - EPSILON) - index for index, first in enumerate(starts)), default=0)


@pytest.mark.parametrize("trigger", ["most", "least"])
def test_pain_2851_three_per_minute_are_three_and_not_eleven(trigger: str) -> None:
    """A limit of three a minute lets eleven pass at once."""
    world = World(RateLimit(3, 60))
    for number in range(11):
        world.arrive(trigger, f"k{number}")
    world.run_until(250)
    moments = [start.at for start in world.starts[trigger]]
    assert len(moments) == 11
    assert most_in(moments, 60) == 3
    assert all(later - earlier >= 20 - EPSILON for earlier, later in pairwise(moments))
    assert moments[-1] - moments[0] < 201, "it is a limit, not a brake"


def test_a_trigger_without_a_limit_does_not_wait_for_one_that_has() -> None:
    world = World(RateLimit(1, 3600))
    for number in range(5):
        world.arrive("least", f"k{number}")
        world.arrive("free", f"k{number}")
    world.turn(0)
    assert len(world.starts["free"]) == 5


def test_retries_count() -> None:
    world = World(RateLimit(1, 10))
    world.arrive("least", "x")
    world.now = 10.0
    for _ in range(3):
        world.turn(0)
        world.end(0, ActionError("no", retriable=True, sent=True))
        world.now += 9.9
        world.turn(0)
        assert world.running == []
        world.now += 0.2
    assert [start.at for start in world.starts["least"]] == pytest.approx([10.0, 20.1, 30.2])


def test_at_most_once_takes_no_more_than_may_begin_soon() -> None:
    world = World(RateLimit(1, 60))
    for number in range(5):
        world.arrive("most", f"k{number}")
    world.run_until(59)
    taken = sum(lane.taken for home in world.core(0)._partitions.values() for lane in home.lanes.values())
    assert taken <= 1
    begun = len(world.starts["most"])
    world.kill(0)
    world.run_until(600)
    assert len(world.starts["most"]) >= 4, "a kill has cost one action at most"
    assert begun <= 1


def test_who_waits_for_a_limit_is_not_taken_for_stuck() -> None:
    world = World(RateLimit(1, 3600))
    clock = ManualClock()
    stage = InvokeStage(
        PLAN,
        TOPOLOGY,
        world.core(0),
        {},
        ThreadExecutor(1, "unused"),
        clock=clock,
        metrics=SensorMetrics(PLAN.name, clock),
        drain_seconds=0,
    )
    assert not stage.working()
    for trigger in ("most", "least"):
        world.arrive(trigger, "x")
        world.turn(0)
        assert stage.working()
        assert world.running == []


def test_a_fast_limit_is_reached() -> None:
    world = World(RateLimit(100, 1))
    for number in range(300):
        world.arrive("least", f"k{number}")
    world.run_until(3.5)
    assert len(world.starts["least"]) >= 250


def test_two_replicas_share_the_limit_by_the_partitions_they_own() -> None:
    world = World(RateLimit(1, 1), replicas=2)
    for number in range(400):
        world.arrive("least", f"k{number}", partition=number % 3)
    world.run_until(300, replicas=(0, 1))
    runs = [start.replica for start in world.starts["least"]]
    assert len(runs) in range(290, 301)
    assert runs.count(1) in range(195, 202), "two partitions of three"


def test_a_clock_that_is_set_back_neither_stops_nor_hastens_anything() -> None:
    world = World(RateLimit(1, 1))
    for number in range(50):
        world.arrive("least", f"k{number}")
    core = world.core(0)
    core.receive(world._logs[0] + world._logs[1] + world._logs[2])
    moments: list[float] = []
    for step in range(400):
        now = step / 10
        now_ms = EPOCH_MS + step * 100 - (86_400_000 if step >= 200 else 0)
        for task in core.startable(now, now_ms):
            moments.append(now)
            core.succeeded(task, "ok", now_ms)
    assert all(later - earlier >= 1 - EPSILON for earlier, later in pairwise(moments))
    assert len(moments) >= 38


# --- any schedule ---------------------------------------------------------------------------------------------------


class Arrive(NamedTuple):
    trigger: str
    key: str


class End(NamedTuple):
    which: int
    error: str


class Pass(NamedTuple):
    seconds: float


class Turn(NamedTuple):
    replica: int


class Move(NamedTuple):
    number: int
    to: int


class Kill(NamedTuple):
    replica: int


Happening: TypeAlias = Arrive | End | Pass | Turn | Move | Kill
REPLICAS = range(3)
ERRORS = {
    "": None,
    "unsent": ActionError("no", retriable=True, sent=False),
    "sent": ActionError("no", retriable=True, sent=True),
    "final": ActionError("no", retriable=False, sent=True),
}
replicas = st.sampled_from(REPLICAS)
happenings: st.SearchStrategy[Happening] = st.one_of(
    st.builds(Turn, replicas),
    st.builds(Pass, st.sampled_from([0.0, 0.01, 0.1, 0.5, 1.0, 2.5, 7.0, 20.0, 61.0])),
    st.builds(Arrive, st.sampled_from(["most", "least"]), st.sampled_from("xyzuvw")),
    st.builds(End, st.integers(0, 5), st.sampled_from(list(ERRORS))),
    st.builds(Move, st.sampled_from(PARTITIONS), replicas),
    st.builds(Kill, replicas),
)
limits = st.sampled_from([RateLimit(1, 1), RateLimit(3, 60), RateLimit(7, 1), RateLimit(50, 1), RateLimit(1, 10)])


def happen(world: World, happening: Happening) -> None:
    match happening:
        case Arrive(trigger, key):
            world.arrive(trigger, key)
        case End(which, error):
            if world.running:
                world.end(which, ERRORS[error])
        case Pass(seconds):
            world.now += seconds
        case Turn(replica):
            world.turn(replica)
        case Move(number, to):
            world.move(number, to)
        case Kill(replica):
            world.kill(replica)


@settings(max_examples=3 * EXAMPLES, deadline=None)
@given(limit=limits, schedule=st.lists(happenings, min_size=10, max_size=80), data=st.data())
def test_no_schedule_makes_more_attempts_begin_than_the_limit_allows(
    limit: RateLimit, schedule: list[Happening], data: st.DataObject
) -> None:
    world = World(limit, replicas=len(REPLICAS))
    for happening in schedule:
        happen(world, happening)
        if isinstance(happening, Pass | Move | Kill | Arrive):  # a loop looks around after everything that happens
            world.turn(data.draw(replicas) if isinstance(happening, Arrive) else 0)
            world.turn(1)
    interval = limit.seconds / limit.requests
    for starts in world.starts.values():
        moments = [start.at for start in starts]
        for intervals in (1, 2, 3, limit.requests, 5 * limit.requests):
            assert most_in(moments, intervals * interval) <= intervals + 1
        for run in {start.replica for start in starts}:
            mine = [start.at for start in starts if start.replica == run]
            assert most_in(mine, limit.seconds) <= limit.requests
            assert most_in(mine, interval) == 1


@settings(max_examples=EXAMPLES, deadline=None)
@given(limit=limits, schedule=st.lists(happenings, max_size=40))
def test_whatever_has_happened_everything_is_done_as_fast_as_the_limit_allows(
    limit: RateLimit, schedule: list[Happening]
) -> None:
    world = World(limit, replicas=len(REPLICAS))
    for happening in schedule:
        happen(world, happening)
    left = len(schedule)
    turn = max(0.2, limit.seconds / limit.requests)
    patience = ceil((left + 5) * len(PARTITIONS) * 2 * turn) + 10
    world.run_until(world.now + patience, replicas=REPLICAS)
    assert all(world.core(replica).idle() for replica in REPLICAS)
