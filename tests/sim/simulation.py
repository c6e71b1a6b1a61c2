"""One seed: a sensor, its replicas, events, faults, then quiet; and what came of it."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from eventbus import metadata
from eventbus.errors import EventBusError, LogError, Superseded
from eventbus.memory import MemoryCluster
from eventbus.memory.topics import Partition
from eventbus.names import Kind, Stage
from eventbus.ports import Record, TopicSpec
from eventbus.topics import Topology, event_topic, sensor_topics
from sensors.audit.commits import replayed_by
from sensors.audit.invocations import Mishap
from sensors.audit.violations import Violation
from sensors.metrics import SensorMetrics
from sensors.runner import stages
from tests.sim.dice import Dice, Fault
from tests.sim.journal import Journal
from tests.sim.log import Crash, DelayedEnds, LateMarkers
from tests.sim.operator import Operator
from tests.sim.processes import INVOKE, Process, Sensor, SimClock, Sink, Surroundings, out_topic
from tests.sim.settling import settle
from tests.sim.shop import Shop
from tests.sim.specs import NAME, Specs
from tests.sim.verdict import verdict_on

SESSION_TIMEOUT, TRANSACTION_TIMEOUT = 6.0, 10.0
_MAX_SLOTS = 4
_STEPS_AFTER_THE_LAST_EVENT = 150
_STAGES = range(len(Stage))
_IDLE_SECONDS = 3.0
_MAX_NESTING = 2
_TURNS_WITHOUT_A_ZOMBIE = 6


class Report(msgspec.Struct):
    """What one seed came to."""

    seed: int
    events: int
    actions: int
    faults: dict[str, int]
    longest_replay: int
    trace: int
    """A checksum of everything that happened."""
    given_up: int
    """At-most-once actions that nobody was called for."""
    violations: list[Violation]

    @property
    def clean(self) -> bool:
        return not self.violations


class Simulation:
    """Runs once."""

    def __init__(self, seed: int, events: int = 500) -> None:
        self.seed = seed
        self.clock = SimClock()
        self.journal = Journal(self.clock)
        self.dice = dice = Dice(seed, self.journal.note)
        self.markers = LateMarkers(dice, self.journal.committed)
        self.cluster = MemoryCluster(
            self.clock,
            session_timeout=SESSION_TIMEOUT,
            transaction_timeout=TRANSACTION_TIMEOUT,
            markers=self.markers,
        )
        self._ends = DelayedEnds(self.cluster)
        self.topology = self._create_topics()
        self.sink = Sink(dice)
        self.mishaps: list[Mishap] = []
        self.horizon_records = dice.pick((2, 5, 20, 100, 10_000))
        self._around = Surroundings(
            dice=dice,
            clock=self.clock,
            cluster=self.cluster,
            markers=self.markers,
            mishaps=self.mishaps,
            ends=self._ends,
            topology=self.topology,
            metrics=SensorMetrics(NAME, self.clock),
            sink=self.sink,
            horizon_records=self.horizon_records,
            horizon_ms=dice.pick((2_000, 60_000, 3_600_000)),
            concurrency=dice.pick((2, 8, 64)),
            batch=dice.pick((10, 40, 150)),
            suspend=self._suspend,
            outlast=self._outlast,
            pauses=lambda: self._operator.pauses,
        )
        self._limit = dice.pick((200, 400, metadata.LIMIT))
        self._part_records = 1 + self._around.batch // dice.pick((1, 3, 8))
        self._shop = Shop(
            dice, self.clock, self.journal, self.cluster._broker.topics[NAME.event_topic].partitions, events
        )
        self._specs = Specs(dice)
        triggers = self.cluster._broker.topics[NAME.topic(Kind.TRIGGER)].partitions
        self._operator = Operator(seed, self.clock, self.journal, triggers)
        self.processes: dict[str, Process] = {}
        self._started = 0

    # --- the course of things ---------------------------------------------------------------------------------------

    def run(self) -> Report:
        with _quiet(), _uncollected(), _limits(self._limit, self._part_records):
            for slot in range(1 + self.dice.below(_MAX_SLOTS)):
                self.start(str(slot))
            while self._shop.open:
                self._happen()
            for _ in range(_STEPS_AFTER_THE_LAST_EVENT):
                self._happen()
            self._calm_down()
            verdict = verdict_on(self)
        return Report(
            seed=self.seed,
            events=self._shop.published,
            actions=verdict.actions,
            faults={str(fault): number for fault, number in sorted(self.dice.counts.items())},
            longest_replay=max(map(replayed_by, self.journal.commits), default=0),
            trace=self.journal.trace,
            given_up=len(verdict.given_up),
            violations=[*self.journal.violations, *verdict.violations],
        )

    def trace(self) -> Report:
        """Run it and write down everything that happens."""
        self.journal.lines = []
        return self.run()

    def _happen(self) -> None:
        """One thing happens."""
        dice = self.dice
        self.clock.advance(0.1 * dice.fraction())
        choice = dice.fraction()
        if choice < self._shop.rate and self._shop.open:
            self._shop.publish()
        elif choice < 0.85:
            self._step_someone()
        elif choice < 0.95:
            self.markers.deliver_one()
        else:
            self._trouble()

    def _trouble(self) -> None:
        dice = self.dice
        for slot in range(_MAX_SLOTS):
            self._trouble_slot(str(slot))
        if dice.strikes(Fault.CLOCK_JUMP):
            self.clock.jumped_ms += int((dice.fraction() - 0.3) * 100_000)
        if dice.strikes(Fault.DELAYED_END):
            self._ends.arrive()
        if dice.strikes(Fault.COMPACTION):
            self.cluster.compact(NAME.topic(Kind.STATE), dice.below(self.topology.trigger_partitions))
        if dice.strikes(Fault.RETENTION):
            self._remove_old_records()
        if self._specs.may_change() and dice.strikes(Fault.SPEC_CHANGE):
            self._specs.change()
        self._operator.look(list(self._specs.latest.plan.triggers))
        if not dice.below(20):
            self.clock.advance(8 * dice.fraction())

    def _trouble_slot(self, slot: str) -> None:
        process = self.processes.get(slot)
        if process is None or not process.alive:
            if self.dice.strikes(Fault.START) or (process is not None and self.dice.coin()):
                self.start(slot)
        elif not process.suspended and self.dice.strikes(Fault.STOP):
            self._close(process)
        elif not process.suspended and process.generation < len(self.sensors) and self.dice.coin():
            self._close(process)
            self.start(slot)
        elif process.suspended and self.dice.strikes(Fault.TWIN):
            self.start(slot)

    def _remove_old_records(self) -> None:
        """What no stage needs any more may be gone at any time. (A released action is needed once more.)"""
        stage = self.dice.pick((Stage.MATCH, Stage.JOIN))
        topic = NAME.input_topic(stage)
        try:
            committed = self.cluster.committed(NAME.group(stage), topic)
        except LogError:
            return
        for partition, commit in committed.items():
            if commit is not None:
                self.journal.remove(self.log_of(topic, partition), commit.offset)

    # --- processes --------------------------------------------------------------------------------------------------

    def _step_someone(self) -> None:
        """A turn of a stage that has something to do. If there is none, time passes until something is due."""
        awake = self._awake()
        restless = [(process, stage) for process in awake for stage in _STAGES if not process.has_rested(stage)]
        if restless:
            process, stage = self.dice.pick(restless)
            if stage == INVOKE:
                process.executor.complete(self.dice.below(1 + len(process.executor.pending)))
            self.step(process, stage)
        elif self.dice.coin():
            self.markers.deliver_one()
        else:
            self.clock.advance(_IDLE_SECONDS * self.dice.fraction())
            for process in awake:
                process.heartbeat()
            with self.cluster._broker.looking():
                pass  # whatever is due now happens

    def _awake(self) -> list[Process]:
        return [process for process in self.processes.values() if process.alive and not process.suspended]

    def step(self, process: Process, stage: int) -> None:
        self.journal.note(f"step {process.slot} {stage}")
        try:
            process.step(stage)
        except Crash:
            self.journal.note(f"crash {process.slot} in stage {stage}")
        except Superseded:
            self._close(process)
        except EventBusError as error:
            # Who is suspended for longer than a transaction may last is fenced, too.
            if not (self.dice.counts.keys() & {Fault.SUSPEND, Fault.ZOMBIE} and "taken over" in str(error)):
                self.journal.complain(f"the replica has stopped: {error}", process.replica)
            self._close(process)

    @contextmanager
    def _stopped(self, process: Process) -> Iterator[None]:
        """SIGSTOP in the middle of a call: the others go on. SIGCONT, and the process goes on as if nothing was."""
        self.journal.note(f"suspend {process.slot}")
        self.journal.nesting += 1
        process.suspended = True
        yield
        process.suspended = False
        self.journal.nesting -= 1
        self.journal.note(f"resume {process.slot}")

    def _suspend(self, process: Process) -> None:
        if self.journal.nesting < _MAX_NESTING:
            with self._stopped(process):
                if self.dice.coin():
                    self.clock.advance(SESSION_TIMEOUT * 2 * self.dice.fraction())
                for _ in range(self.dice.below(40)):
                    self._happen()

    def _outlast(self, process: Process, topic: str) -> None:
        """It is stopped for longer than its session, and for less than its transaction: only the group fences it.

        Meanwhile the others take over what it was about to commit.
        """
        stage = next(number for number, stage in enumerate(Stage) if NAME.input_topic(stage) == topic)
        if self.journal.nesting < _MAX_NESTING:
            with self._stopped(process):
                self.clock.advance(SESSION_TIMEOUT + self.dice.fraction())
                for _ in range(_TURNS_WITHOUT_A_ZOMBIE):
                    awake = self._awake()
                    if awake:
                        self.step(self.dice.pick(awake), stage)

    def start(self, slot: str) -> None:
        self.journal.note(f"start {slot} generation {len(self.sensors)}")
        self._started += 1
        self.processes[slot] = Process(self._around, self._specs.latest, slot, f"{slot}.{self._started}")

    def _close(self, process: Process) -> None:
        self.journal.note(f"close {process.slot}")
        try:
            process.close()
        except Crash:
            pass
        except LogError as error:
            self.journal.note(f"close {process.slot}: {error}")
            process.suffers("could not leave in order")
            process.kill()

    def _calm_down(self) -> None:
        """The faults stop. Everything has to come to rest by itself."""
        self.dice.calm()
        for _ in range(self._specs.late_changes):
            self._roll_out()
            settle(self)
            self._specs.change()
        self._roll_out()
        at_rest = settle(self)
        self._operator.resume(self.cluster)
        if not at_rest or not settle(self):
            self.journal.complain("the sensor has not come to rest")

    def _roll_out(self) -> None:
        """All replicas run, with the latest spec."""
        for slot, process in list(self.processes.items()):
            if process.alive and process.generation < len(self.sensors):
                self._close(process)
            if not process.alive:
                self.start(slot)

    # --- what the judge asks for ------------------------------------------------------------------------------------

    @property
    def sensors(self) -> dict[int, Sensor]:
        """By generation."""
        return self._specs.sensors

    def records(self, topic: str) -> list[Record]:
        """All committed records of a topic, those included that retention has removed."""
        logs = self.cluster._broker.topics[topic].partitions
        return [record for log in logs for record in self.journal.records(log)]

    def log_of(self, topic: str, partition: int) -> Partition:
        return self.cluster._broker.partition(topic, partition)

    # --- parts ------------------------------------------------------------------------------------------------------

    def _create_topics(self) -> Topology:
        events, internal = 1 + self.dice.below(4), 1 + self.dice.below(3)
        specs = [event_topic(NAME.bus, events), *sensor_topics(NAME, internal), TopicSpec(out_topic(NAME), 1, {})]
        self.cluster.create(specs)
        return Topology(
            event_partitions=events,
            trigger_partitions=internal,
            action_partitions=internal,
            invocation_partitions=internal,
            dlq_partitions=internal,
        )


def run_seed(seed: int) -> Report:
    return Simulation(seed).run()


@contextmanager
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


@contextmanager
def _uncollected() -> Iterator[None]:
    """A seed does not live for long: to look for cycles once it is over saves a quarter of its time."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextmanager
def _limits(metadata_limit: int, part_records: int) -> Iterator[None]:
    """Smaller ones, so that they are met: the code is the same."""
    before = metadata.LIMIT, stages.PART_RECORDS
    metadata.LIMIT, stages.PART_RECORDS = metadata_limit, part_records
    try:
        yield
    finally:
        metadata.LIMIT, stages.PART_RECORDS = before
