"""Replicas as the simulation has them: loops without threads, actions that end when the dice say so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

import msgspec

from eventbus.clock import ManualClock
from eventbus.memory import MemoryCluster
from eventbus.names import SensorName, Stage
from eventbus.ports import Output
from eventbus.topics import Topology
from sensors.actions.base import Action, ActionCall, ActionError, SpecModel, TransactionalAction
from sensors.deadletters import DeadLetters
from sensors.invoke import Invoker
from sensors.metrics import SensorMetrics
from sensors.plan import SensorPlan
from sensors.runner.executor import Completion
from sensors.runner.guard import TopicGuard
from sensors.runner.invoke_stage import InvokeStage
from sensors.runner.logic import StageLogic
from sensors.runner.loop import StageLoop
from sensors.runner.stages import JoinStage, MatchStage
from sensors.tasks import Delivery
from tests.sim.dice import Dice, Fault
from tests.sim.log import Crash, DelayedEnds, SimCluster

_DRAIN_SECONDS = 5.0
_INVOKE = 2


class SimClock(ManualClock):
    """The wall clock may jump; the monotonic one may not."""

    jumped_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.jumped_ms


class Sink:
    """The world that actions act upon, with a ledger of its own."""

    def __init__(self, dice: Dice) -> None:
        self._dice = dice
        self.seen: Counter[str] = Counter()
        self.succeeded: Counter[str] = Counter()

    def call(self, action: str) -> str:
        if self._dice.strikes(Fault.ACTION_UNSENT):
            raise ActionError("simulated: not sent", retriable=True, sent=False)
        self.seen[action] += 1
        if self._dice.strikes(Fault.ACTION_SENT):
            raise ActionError("simulated: 503", retriable=True, sent=True, status="503")
        if self._dice.strikes(Fault.ACTION_REFUSED):
            raise ActionError("simulated: 400", retriable=False, sent=True, status="400")
        self.succeeded[action] += 1
        return "ok"


class SimAction:
    """Calls the sink."""

    Spec: ClassVar[type[SpecModel]] = SpecModel

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def invoke(self, call: ActionCall) -> str:
        return self._sink.call(call.id)

    def close(self) -> None:
        """Nothing is held here."""


class SimWriter:
    """Writes to the bus's own cluster: exactly once."""

    Spec: ClassVar[type[SpecModel]] = SpecModel

    def __init__(self, topic: str) -> None:
        self._topic = topic

    def outputs(self, call: ActionCall) -> Sequence[Output]:
        return [Output(self._topic, 0, call.id.encode(), call.trigger.encode())]

    def close(self) -> None:
        """Nothing is held here."""


class SimExecutor:
    """Work waits until the simulation lets one of its actions end."""

    def __init__(self, dice: Dice, clock: ManualClock) -> None:
        self._dice = dice
        self._clock = clock
        self.pending: list[Callable[[], Completion]] = []
        self.deeds = 0
        """How many actions have ended."""
        self._done: list[Completion] = []

    def submit(self, work: Callable[[], Completion]) -> None:
        self.pending.append(work)

    def complete(self, number: int) -> None:
        for _ in range(number):
            self._done.append(self._take()())
        self.deeds += number

    def completions(self, timeout: float) -> list[Completion]:
        if not self._done and timeout:
            if self._dice.strikes(Fault.ACTION_HANGS):
                self._clock.advance(_DRAIN_SECONDS)
            elif self.pending and self._dice.coin():
                self.complete(1)
            else:
                self._clock.advance(timeout)
        done, self._done = self._done, []
        return done

    def die(self) -> None:
        """What was under way may still reach its target, and nobody hears of it."""
        while self.pending:
            work = self._take()
            if self._dice.strikes(Fault.ACTION_DIED):
                work()

    def close(self) -> None:
        """Nothing is held here."""

    def _take(self) -> Callable[[], Completion]:
        return self.pending.pop(self._dice.below(len(self.pending)))


class Sensor(msgspec.Struct, frozen=True):
    """One generation of the spec."""

    plan: SensorPlan
    deliveries: Mapping[str, Delivery]


class Surroundings(msgspec.Struct, frozen=True):
    """What all processes of a simulation share."""

    dice: Dice
    clock: SimClock
    cluster: MemoryCluster
    ends: DelayedEnds
    topology: Topology
    metrics: SensorMetrics
    sink: Sink
    horizon_records: int
    horizon_ms: int
    concurrency: int
    suspend: Callable[[Process], None]
    outlast: Callable[[Process, str], None]


class Process:
    """One replica, from its start until it ends or is killed."""

    def __init__(self, around: Surroundings, sensor: Sensor, slot: str) -> None:
        self.dice = around.dice
        self.slot = slot
        self.generation = sensor.plan.owner.generation
        self.alive = True
        self.suspended = False
        self._around = around
        self.executor = SimExecutor(around.dice, around.clock)
        plan, topology = sensor.plan, around.topology
        actions: dict[str, Action | TransactionalAction] = {
            name: SimWriter(out_topic(plan.name)) if delivery.exactly_once else SimAction(around.sink)
            for name, delivery in sensor.deliveries.items()
        }
        invoke = InvokeStage(
            plan,
            topology,
            Invoker(plan, sensor.deliveries, topology, slot, concurrency=around.concurrency),
            actions,
            self.executor,
            clock=around.clock,
            metrics=around.metrics,
            drain_seconds=_DRAIN_SECONDS,
        )
        join = JoinStage(plan, topology, slot, horizon_records=around.horizon_records, horizon_ms=around.horizon_ms)
        cluster = SimCluster(around.cluster, around.ends, self)
        guard = TopicGuard(cluster, plan.name, topology, around.clock)
        self.deeds = 0
        self.loops: list[StageLoop] = []
        self.not_before = [0.0, 0.0, 0.0]
        self._rested: list[tuple[int, ...] | None] = [None, None, None]
        broker = around.cluster._broker
        self._logs = [broker.topics[plan.name.input_topic(stage)].partitions for stage in Stage]
        self._groups = [broker.group(plan.name.group(stage)) for stage in Stage]
        logics: list[StageLogic] = [MatchStage(plan, topology, slot, around.metrics, from_latest=False), join, invoke]
        for logic in logics:
            letters = DeadLetters(plan.name, logic.stage, topology, slot)
            metrics = around.metrics.stage(logic.stage)
            self.loops.append(
                StageLoop(
                    cluster, plan.name, logic, letters, slot=slot, clock=around.clock, metrics=metrics, guard=guard
                )
            )

    def point(self) -> None:
        if not self.alive:
            raise Crash
        mishap = self.dice.mishap()
        if mishap is Fault.CRASH:
            self.kill()
            raise Crash
        if mishap is Fault.SUSPEND:
            self._around.suspend(self)

    def outlast(self, topic: str) -> None:
        if self.dice.strikes(Fault.ZOMBIE):
            self._around.outlast(self, topic)

    def step(self, number: int) -> None:
        """One turn of one stage, unless it asked to be left in peace."""
        now = self._around.clock.monotonic()
        if now >= self.not_before[number]:
            deeds = self.deeds
            self.not_before[number] = now + self.loops[number].step(0.0)
            self._rested[number] = self._input(number) if deeds == self.deeds else None

    def has_rested(self, number: int) -> bool:
        """Whether the last turn of this stage found nothing to do, and there is nothing new since."""
        return self._rested[number] == self._input(number)

    def _input(self, number: int) -> tuple[int, ...]:
        """Changes whenever there is something new for a stage: records, transaction markers, members, outcomes."""
        return (
            sum(log.end for log in self._logs[number]),
            self._groups[number].generation,
            self.executor.deeds if number == _INVOKE else 0,
        )

    def kill(self) -> None:
        """SIGKILL: the group and the open transactions learn of it by their time-outs."""
        self.alive = False
        self.executor.die()

    def close(self) -> None:
        for loop in self.loops:
            loop.close()
        self.kill()


def out_topic(name: SensorName) -> str:
    return f"{name.bus.event_topic}-out"
