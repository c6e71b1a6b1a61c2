"""One replica of one sensor: its topics, its three loops, a thread for each, and their common end."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Self

import msgspec
from prometheus_client import CollectorRegistry

from eventbus.clock import Deadline, SystemClock
from eventbus.errors import EventBusError, FatalError
from eventbus.logfields import carry, fields_logger
from eventbus.names import Stage
from eventbus.ports import Clock, Cluster
from eventbus.topics import Topology
from sensors.actions.base import Action, TransactionalAction
from sensors.deadletters import DeadLetters
from sensors.invoke import CONCURRENCY, Invoker
from sensors.join import HORIZON_MS, HORIZON_RECORDS
from sensors.metrics import SensorMetrics
from sensors.plan import SensorPlan
from sensors.runner.executor import Executor, ThreadExecutor
from sensors.runner.guard import TopicGuard
from sensors.runner.invoke_stage import InvokeStage
from sensors.runner.logic import StageLogic
from sensors.runner.loop import StageLoop
from sensors.runner.slots import Slot
from sensors.runner.stages import JoinStage, MatchStage
from sensors.runner.switch import Switch
from sensors.tasks import Delivery

_POLL_SECONDS = 0.1
_STALL_SECONDS = 60.0
"""With lag and no commit for this long, a replica is unhealthy and should be restarted."""

log = fields_logger("eventbus.sensor")


class Settings(msgspec.Struct, frozen=True):
    """How a replica runs; the sensor's spec says what it does."""

    concurrency: int = CONCURRENCY
    """Actions invoked at a time."""
    drain_seconds: float = 20.0
    """How long running actions may take to finish when partitions are given up or the replica is stopped."""
    horizon_records: int = HORIZON_RECORDS
    """Records after which a held event moves from the trigger topic to the state topic."""
    horizon_ms: int = HORIZON_MS
    """Milliseconds after which it does."""


class Blueprint(msgspec.Struct, frozen=True):
    """Everything about a sensor that a replica needs, made from its manifest."""

    plan: SensorPlan
    deliveries: Mapping[str, Delivery]
    from_latest: bool = True
    logging_fields: Mapping[str, str] = msgspec.field(default_factory=dict)
    """What every log line carries."""


class Replica:
    """Runs a sensor in threads of this process. A context manager: leaving it stops the replica."""

    def __init__(
        self,
        cluster: Cluster,
        blueprint: Blueprint,
        topology: Topology,
        actions: Mapping[str, Action | TransactionalAction],
        *,
        slot: Slot,
        clock: Clock | None = None,
        settings: Settings | None = None,
        executor: Executor | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._settings = settings or Settings()
        self._actions = actions
        self._logging_fields = blueprint.logging_fields
        plan, name = blueprint.plan, blueprint.plan.name
        self.name = name
        self.slot = slot.name
        self._claim = slot
        self.metrics = SensorMetrics(name, self._clock)
        self._executor = executor or ThreadExecutor(self._settings.concurrency, f"{name.sensor}-action")
        self.match = MatchStage(plan, topology, slot.name, self.metrics, from_latest=blueprint.from_latest)
        self.join = JoinStage(
            plan,
            topology,
            slot.name,
            self.metrics,
            horizon_records=self._settings.horizon_records,
            horizon_ms=self._settings.horizon_ms,
        )
        self._switch = Switch(cluster, name, self._clock)
        self.invoke = InvokeStage(
            plan,
            topology,
            Invoker(plan, blueprint.deliveries, topology, slot.name, concurrency=self._settings.concurrency),
            actions,
            self._executor,
            clock=self._clock,
            metrics=self.metrics,
            drain_seconds=self._settings.drain_seconds,
            pauses=self._switch.pauses,
        )
        guard = TopicGuard(cluster, name, topology, self._clock)
        self.loops: dict[Stage, StageLoop] = {
            logic.stage: self._loop(cluster, topology, logic, guard) for logic in (self.match, self.join, self.invoke)
        }
        self.metrics.expect(blueprint.deliveries)
        for dependency in plan.dependencies:
            self.metrics.expect_filtered(dependency.name, dependency.gate.reasons if dependency.gate else ())
        for trigger in plan.triggers.values():
            self.metrics.expect_unused(trigger.name, trigger.rules.reasons if trigger.rules else ())
        joined = [trigger.name for trigger in plan.triggers.values() if not trigger.direct]
        self.metrics.watch_held(joined, self.join.held_since)
        self._stopping = threading.Event()
        self._changed = threading.Condition()
        self._failure: EventBusError | None = None
        self._threads: list[threading.Thread] = []

    def _loop(self, cluster: Cluster, topology: Topology, logic: StageLogic, guard: TopicGuard) -> StageLoop:
        return StageLoop(
            cluster,
            self.name,
            logic,
            DeadLetters.of_stage(self.name, logic.stage, topology, self.slot),
            slot=self.slot,
            clock=self._clock,
            metrics=self.metrics.stage(logic.stage),
            guard=guard,
        )

    # --- running ----------------------------------------------------------------------------------------------------

    def start(self) -> Self:
        for stage, loop in self.loops.items():
            thread = threading.Thread(target=self._drive, args=(loop,), name=f"{self.name.sensor}-{stage}", daemon=True)
            self._threads.append(thread)
            thread.start()
        return self

    def _drive(self, loop: StageLoop) -> None:
        carry(self._logging_fields)
        try:
            while not self._stopping.is_set():
                pause = loop.step(_POLL_SECONDS)
                if pause:
                    self._stopping.wait(pause)
        except EventBusError as error:
            self._fail(error)
        except Exception as error:
            log.exception("sensor %s: a bug in this program", self.name)
            self._fail(FatalError(f"{type(error).__name__}: {error}; please report this"))
        finally:
            self._leave(loop)

    def _leave(self, loop: StageLoop) -> None:
        """Give the partitions back, however the loop has ended: others need not wait until the group misses us."""
        try:
            loop.close()
        except EventBusError as error:
            self._fail(error)

    def _fail(self, error: EventBusError) -> None:
        with self._changed:
            self._failure = self._failure or error
            self._stopping.set()
            self._changed.notify_all()

    def paused(self) -> frozenset[str]:
        """The triggers that an operator has paused, as far as it is known here; an empty name stands for all."""
        return frozenset(self.invoke.pauses)

    def stop(self) -> None:
        """Finish what is under way, within the drain time, commit it and leave. Raises what ended the replica early."""
        self._stopping.set()
        deadline = Deadline(self._clock, 2 * self._settings.drain_seconds)
        for thread in self._threads:
            thread.join(deadline.left())
        if not self._threads:  # never started, but its consumers exist
            for loop in self.loops.values():
                loop.close()
        self._executor.close()
        self._switch.close()
        for action in self._actions.values():
            action.close()
        self._claim.release()
        if self._failure is not None:
            raise self._failure

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # --- being watched ----------------------------------------------------------------------------------------------

    @property
    def failure(self) -> EventBusError | None:
        """What made the replica stop by itself."""
        return self._failure

    def ready(self) -> bool:
        """No event that is published from now on can be missed."""
        return not self._stopping.is_set() and all(loop.ready() for loop in self.loops.values())

    def healthy(self) -> bool:
        return not self.complaints()

    @property
    def title(self) -> str:
        return f"sensor {self.name}"

    @property
    def registry(self) -> CollectorRegistry:
        return self.metrics.registry

    def waiting_for(self) -> list[str]:
        """Why it does not take part yet, or no longer."""
        if self.ready():
            return []
        waiting = [f"the {stage} stage is not ready" for stage, loop in self.loops.items() if not loop.ready()]
        return waiting or ["it is stopping"]

    def complaints(self) -> list[str]:
        """Why this replica should be restarted, if it should. One that is being stopped is left in peace."""
        if self._failure is not None:
            return [str(self._failure)]
        if self._stopping.is_set():
            return []
        found = []
        for (stage, loop), thread in zip(self.loops.items(), self._threads, strict=False):
            if not thread.is_alive():
                found.append(f"the {stage} stage has ended")
            elif loop.stalled_seconds() >= _STALL_SECONDS:
                found.append(f"the {stage} stage has lag and has committed nothing for {loop.stalled_seconds():.0f} s")
            elif loop.turn_seconds() >= _STALL_SECONDS + self._settings.drain_seconds:
                found.append(f"the {stage} stage has been stuck in one turn for {loop.turn_seconds():.0f} s")
        return found

    def wait_ready(self, timeout: float = 30.0) -> None:
        """Wait until the replica is ready; raise what ended it instead, or `TimeoutError`."""
        deadline = Deadline(self._clock, timeout)
        while not self.ready():
            self._watch(deadline, "the sensor is not ready")

    def settle(self, timeout: float = 30.0) -> None:
        """Wait until everything that was published before this call is matched, joined, invoked and committed."""
        deadline = Deadline(self._clock, timeout)
        for stage in Stage:
            loop = self.loops[stage]
            loop.observe_eagerly()
            begun = self._clock.monotonic()
            while loop.caught_up_at() < begun:
                self._watch(deadline, f"the {stage} stage has not caught up")

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the replica ends by itself; returns whether it has."""
        with self._changed:
            return self._changed.wait_for(self._stopping.is_set, timeout)

    def _watch(self, deadline: Deadline, complaint: str) -> None:
        if self._failure is not None:
            raise self._failure
        if deadline.over():
            raise TimeoutError(complaint)
        self._stopping.wait(0.01)
