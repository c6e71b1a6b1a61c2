"""Replicas as the simulation has them: loops without threads, actions that end when the dice say so."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

import msgspec

from eventbus.clock import ManualClock
from eventbus.memory import MemoryCluster
from eventbus.names import SensorName, Stage
from eventbus.ports import Output
from eventbus.topics import Topology
from sensors.actions.base import Action, ActionCall, ActionError, SpecModel, TransactionalAction
from sensors.audit.invocations import Call, Mishap
from sensors.audit.reference import ENDLESS
from sensors.deadletters import DeadLetters
from sensors.invoke import Invoker
from sensors.metrics import SensorMetrics, StageMetrics
from sensors.pauses import Pauses
from sensors.plan import SensorPlan
from sensors.runner.executor import Completion
from sensors.runner.guard import TopicGuard
from sensors.runner.invoke_stage import InvokeStage
from sensors.runner.logic import StageLogic
from sensors.runner.loop import StageLoop
from sensors.runner.stages import JoinStage, MatchStage
from sensors.tasks import Delivery
from tests.sim.dice import Dice, Fault
from tests.sim.log import Crash, DelayedEnds, LateMarkers, SimCluster, SimConsumer

_DRAIN_SECONDS = 5.0
INVOKE = 2


class SimClock(ManualClock):
    """The wall clock may jump; the monotonic one may not."""

    jumped_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.jumped_ms


class SimMetrics(StageMetrics):
    """Nobody reads them here, and to count takes time. But whoever drops what it knows must own up to it."""

    def __init__(self, metrics: SensorMetrics, stage: Stage, clock: ManualClock, process: Process) -> None:
        super().__init__(metrics, stage, clock, metrics.name)
        self._process = process
        self._stage = stage

    def aborted(self) -> None:
        if self._stage is Stage.INVOKE:
            self._process.suffers(Fault.ABORT)

    def received(self, records: int) -> None:
        pass

    def committed(self, outputs: Sequence[Output]) -> None:
        pass


class Sink:
    """The world that actions act upon, with a ledger of its own."""

    def __init__(self, dice: Dice) -> None:
        self._dice = dice
        self.calls: list[Call] = []

    def call(self, action: str, replica: str) -> str:
        if self._dice.strikes(Fault.ACTION_UNSENT):
            raise ActionError("simulated: not sent", retriable=True, sent=False)
        failed = self._dice.strikes(Fault.ACTION_SENT)
        refused = not failed and self._dice.strikes(Fault.ACTION_REFUSED)
        self.calls.append(Call(action, replica, 0, 0, succeeded=not (failed or refused)))
        if failed:
            raise ActionError("simulated: 503", retriable=True, sent=True, status="503")
        if refused:
            raise ActionError("simulated: 400", retriable=False, sent=True, status="400")
        return "ok"


class SimAction:
    """Calls the sink."""

    Spec: ClassVar[type[SpecModel]] = SpecModel

    def __init__(self, sink: Sink, replica: str) -> None:
        self._sink = sink
        self._replica = replica

    def invoke(self, call: ActionCall) -> str:
        return self._sink.call(call.id, self._replica)

    def close(self) -> None:
        """Nothing is held here."""


class SimWriter:
    """Writes to the bus's own cluster: exactly once."""

    Spec: ClassVar[type[SpecModel]] = SpecModel

    def __init__(self, topic: str, replica: str) -> None:
        self._topic = topic
        self._replica = replica

    def outputs(self, call: ActionCall) -> Sequence[Output]:
        return [Output(self._topic, 0, call.id.encode(), self._replica.encode())]

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
    markers: LateMarkers
    ends: DelayedEnds
    mishaps: list[Mishap]
    topology: Topology
    metrics: SensorMetrics
    sink: Sink
    horizon_records: int
    horizon_ms: int
    concurrency: int
    batch: int
    """No transaction has more records than that: larger ones would never get through the mishaps."""
    suspend: Callable[[Process], None]
    outlast: Callable[[Process, str], None]
    pauses: Callable[[], Pauses]


class Process:
    """One replica, from its start until it ends or is killed."""

    def __init__(self, around: Surroundings, sensor: Sensor, slot: str, replica: str) -> None:
        """`replica` tells the processes of one slot apart."""
        self.dice = around.dice
        self.slot = slot
        self.replica = replica
        self.generation = sensor.plan.owner.generation
        self.alive = True
        self.suspended = False
        self._around = around
        self.executor = SimExecutor(around.dice, around.clock)
        plan, topology = sensor.plan, around.topology
        actions: dict[str, Action | TransactionalAction] = {
            name: SimWriter(out_topic(plan.name), replica) if delivery.exactly_once else SimAction(around.sink, replica)
            for name, delivery in sensor.deliveries.items()
        }
        self._invoker = Invoker(plan, sensor.deliveries, topology, replica, concurrency=around.concurrency)
        invoke = InvokeStage(
            plan,
            topology,
            self._invoker,
            actions,
            self.executor,
            clock=around.clock,
            metrics=around.metrics,
            drain_seconds=_DRAIN_SECONDS,
            pauses=around.pauses,
        )
        join = JoinStage(
            plan,
            topology,
            replica,
            around.metrics,
            horizon_records=around.horizon_records,
            horizon_ms=around.horizon_ms,
        )
        cluster = SimCluster(around.cluster, around.markers, around.ends, self)
        guard = TopicGuard(cluster, plan.name, topology, around.clock)
        self.deeds = 0
        self.batch = around.batch
        self.loops: list[StageLoop] = []
        self.not_before = [0.0, 0.0, 0.0]
        self._rested: list[tuple[int, ...] | None] = [None, None, None]
        broker = around.cluster._broker
        self._logs = [broker.topics[plan.name.input_topic(stage)].partitions for stage in Stage]
        self._groups = [broker.group(plan.name.group(stage)) for stage in Stage]
        match = MatchStage(plan, topology, replica, around.metrics, from_latest=False)
        logics: list[StageLogic] = [match, join, invoke]
        for logic in logics:
            letters = DeadLetters.of_stage(plan.name, logic.stage, topology, replica)
            metrics = SimMetrics(around.metrics, logic.stage, around.clock, self)
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
            self.suffers(mishap)
            self.kill()
            raise Crash
        if mishap is Fault.SUSPEND:
            self.suffers(mishap)
            self._around.suspend(self)

    def outlast(self, topic: str) -> None:
        if self.dice.strikes(Fault.ZOMBIE):
            self.suffers(Fault.ZOMBIE)
            self._around.outlast(self, topic)

    def suffers(self, mishap: str) -> None:
        self._around.mishaps.append(Mishap(self.replica, 0, ENDLESS, mishap))

    def step(self, number: int) -> None:
        """One turn of one stage, unless it asked to be left in peace."""
        now = self._around.clock.monotonic()
        if now >= self.not_before[number]:
            deeds = self.deeds
            self.not_before[number] = now + self.loops[number].step(0.0)
            self._rested[number] = self._input(number) if deeds == self.deeds else None

    def has_rested(self, number: int) -> bool:
        """Whether the last turn of this stage found nothing to do, and there is nothing new since."""
        if number == INVOKE and self.executor.pending:
            return False
        return self._rested[number] == self._input(number)

    def heartbeat(self) -> None:
        """What a client's own thread does. Here a poll would do the same, and take longer."""
        for loop in self.loops:
            assert isinstance(loop._consumer, SimConsumer)
            loop._consumer.heartbeat(self._around.clock.monotonic())

    def _input(self, number: int) -> tuple[int, ...]:
        """Changes whenever there is something new for a stage: records, transaction markers, members, outcomes."""
        return (
            sum(self._logs[number][partition].last_stable_offset for partition in self.loops[number]._assignments),
            self._groups[number].generation,
            self._due(number),
        )

    def _due(self, number: int) -> int:
        if number != INVOKE:
            return 0
        wakeup = self.wakeup()
        return self.executor.deeds + (wakeup is not None and wakeup <= self._around.clock.monotonic())

    def idle(self) -> bool:
        """What was taken is not only marked as done: it has been."""
        return not self.executor.pending and self._invoker.idle()

    def wakeup(self) -> float | None:
        """When the invoke stage wants its next turn."""
        return self._invoker.next_wakeup()

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
