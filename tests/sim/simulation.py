"""One seed: a sensor, its replicas, events, faults, then quiet; and what came of it."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from zlib import crc32

import msgspec

from eventbus import metadata
from eventbus.cloudevents import to_kafka
from eventbus.errors import EventBusError, LogError, Superseded
from eventbus.events import Event
from eventbus.hashing import partition_of
from eventbus.memory import MemoryCluster
from eventbus.memory.groups import Group
from eventbus.metadata import Owner, decode_invoke, decode_join, decode_match
from eventbus.names import BusName, Kind, SensorName, Stage
from eventbus.ports import Committed, Output, Record, TopicSpec
from eventbus.topics import Topology, event_topic, sensor_topics
from sensors.conditions import parse
from sensors.metrics import SensorMetrics
from sensors.plan import DependencyPlan, SensorPlan, TriggerPlan
from sensors.retry import RetryPolicy
from sensors.runner import stages
from sensors.tasks import Delivery
from tests.sim.dice import Dice, Fault
from tests.sim.log import Crash, DelayedEnds, LateMarkers
from tests.sim.processes import Process, Sensor, SimClock, Sink, Surroundings, out_topic
from tests.sim.reference import Span
from tests.sim.verdict import Findings, judge

NAME = SensorName(BusName("sim", "bus"), "s")
SESSION_TIMEOUT, TRANSACTION_TIMEOUT = 6.0, 10.0
_DEPENDENCIES = [DependencyPlan(name, "shop", name) for name in "abcd"] + [DependencyPlan("also-a", "shop", "a")]
_CONDITIONS = (
    "a && b", "a && b && c", "(a && b) || c", "a || b", "a", "also-a && a", "(a && c) || (b && d)", "also-a || d",
    "a && b && c && d", "(a || b) && (c || d)", "also-a && b", "d && c",
)  # fmt: skip
_DELIVERIES = (
    Delivery(at_least_once=True, retry=RetryPolicy(steps=4, duration=0.2)),
    Delivery(at_least_once=False, retry=RetryPolicy(steps=3, duration=0.2)),
    Delivery(at_least_once=False),
    Delivery(at_least_once=False, exactly_once=True),
)
_MAX_SLOTS = 4
_STEPS_AFTER_THE_LAST_EVENT = 100
_TURNS = (0, 1, 2, 2)
"""Stages by number: an action takes several turns of the invoke stage."""
_MAX_NESTING = 2
_SETTLING_ROUNDS = 3000
_MAX_GENERATION = 4


class Report(msgspec.Struct):
    """What one seed came to."""

    seed: int
    events: int
    actions: int
    faults: dict[str, int]
    longest_replay: int
    trace: int
    """A checksum of everything that happened."""
    findings: Findings

    @property
    def clean(self) -> bool:
        return self.findings.clean


class Simulation:
    """Runs once."""

    def __init__(self, seed: int, events: int = 500) -> None:
        self.seed = seed
        self._trace = 0
        self._lines: list[str] | None = None
        self._nesting = 0
        self._clock = SimClock()
        self.dice = dice = Dice(seed, self._note)
        self._events = events
        self._markers = LateMarkers(dice, self._committed)
        self._cluster = MemoryCluster(
            self._clock,
            session_timeout=SESSION_TIMEOUT,
            transaction_timeout=TRANSACTION_TIMEOUT,
            markers=self._markers,
        )
        self._ends = DelayedEnds(self._cluster)
        self.topology = self._create_topics()
        self._sink = Sink(dice)
        self.horizon_records = dice.pick((2, 5, 20, 100, 10_000))
        self._around = Surroundings(
            dice=dice,
            clock=self._clock,
            cluster=self._cluster,
            ends=self._ends,
            topology=self.topology,
            metrics=SensorMetrics(NAME, self._clock),
            sink=self._sink,
            horizon_records=self.horizon_records,
            horizon_ms=dice.pick((2_000, 60_000, 3_600_000)),
            concurrency=dice.pick((2, 8, 64)),
            suspend=self._suspend,
        )
        self._limit = dice.pick((200, 400, metadata.LIMIT))
        self._part_records = dice.pick((1, 3, 500))
        self._burst = dice.pick((8, 30, 60))
        self.sensors = {1: self._first_sensor()}
        self._processes: dict[str, Process] = {}
        self._numbers = count()
        self._published = 0
        self._published_all = False
        self.spans: dict[tuple[Stage, int], list[Span]] = defaultdict(list)
        self.findings = Findings()
        self.longest_replay = 0
        self._archive: dict[tuple[str, int], list[Record]] = defaultdict(list)

    # --- the course of things ---------------------------------------------------------------------------------------

    def run(self) -> Report:
        with _quiet(), _limits(self._limit, self._part_records):
            for slot in range(1 + self.dice.below(_MAX_SLOTS)):
                self._start(str(slot))
            while self._published < self._events:
                self._happen()
            self._published_all = True
            for _ in range(_STEPS_AFTER_THE_LAST_EVENT):
                self._happen()
            self._settle()
            judge(self)
        return Report(
            seed=self.seed,
            events=self._published,
            actions=len(self.records(NAME.topic(Kind.ACTION))),
            faults={str(fault): number for fault, number in sorted(self.dice.counts.items())},
            longest_replay=self.longest_replay,
            trace=self._trace,
            findings=self.findings,
        )

    def trace(self) -> list[str]:
        """Run it and tell everything that happened."""
        self._lines = []
        self.run()
        return self._lines

    def _happen(self) -> None:
        """One thing happens."""
        dice = self.dice
        self._clock.advance(0.1 * dice.fraction())
        choice = dice.fraction()
        if choice < 0.08 and not self._published_all:
            self._publish()
        elif choice < 0.75:
            self._step_someone()
        elif choice < 0.85:
            self._markers.deliver_one()
        elif choice < 0.95:
            self._complete_actions()
        else:
            self._trouble()

    def _trouble(self) -> None:
        dice = self.dice
        for slot in range(_MAX_SLOTS):
            self._trouble_slot(str(slot))
        if dice.strikes(Fault.CLOCK_JUMP):
            self._clock.jumped_ms += int((dice.fraction() - 0.3) * 100_000)
        if dice.strikes(Fault.DELAYED_END):
            self._ends.arrive()
        if dice.strikes(Fault.COMPACTION):
            self._cluster.compact(NAME.topic(Kind.STATE), dice.below(self.topology.trigger_partitions))
        if dice.strikes(Fault.RETENTION):
            self._remove_old_records()
        if len(self.sensors) < _MAX_GENERATION and dice.strikes(Fault.SPEC_CHANGE):
            self._change_spec()
        if not dice.below(20):
            self._clock.advance(8 * dice.fraction())

    def _trouble_slot(self, slot: str) -> None:
        process = self._processes.get(slot)
        if process is None or not process.alive:
            if self.dice.strikes(Fault.START) or (process is not None and self.dice.coin()):
                self._start(slot)
        elif not process.suspended and self.dice.strikes(Fault.STOP):
            self._close(process)
        elif not process.suspended and process.generation < len(self.sensors) and self.dice.coin():
            self._close(process)
            self._start(slot)
        elif process.suspended and self.dice.strikes(Fault.TWIN):
            self._start(slot)

    def _publish(self) -> None:
        for _ in range(1 + self.dice.below(self._burst)):
            number = next(self._numbers)
            name, key = self.dice.pick("abcd"), self.dice.pick(("k1", "k2", "k3", ""))
            extensions = {"partitionkey": key} if key else {}
            event = Event.new("shop", name, id=f"e{number}", type="t", **extensions)
            headers, value = to_kafka(event)
            partitions = self.topology.event_partitions
            partition = partition_of(event.key, partitions) if event.key else number % partitions
            output = Output(NAME.event_topic, partition, event.key, value, headers)
            for _ in range(2 if self.dice.strikes(Fault.DUPLICATE) else 1):
                self._note(f"publish {event.id} {name}")
                self._partition(NAME.event_topic, partition).append(output, self._clock.now_ms())
                self._published += 1

    def _step_someone(self) -> None:
        awake = [process for process in self._processes.values() if process.alive and not process.suspended]
        if awake:
            self._step(self.dice.pick(awake), self.dice.pick(_TURNS))

    def _step(self, process: Process, stage: int) -> None:
        self._note(f"step {process.slot} {stage}")
        try:
            process.step(stage)
        except Crash:
            self._note(f"crash {process.slot} in stage {stage}")
        except Superseded:
            self._close(process)
        except EventBusError as error:
            # Who is suspended for longer than a transaction may last is fenced, too.
            if not (self.dice.counts[Fault.SUSPEND] and "taken over" in str(error)):
                self.findings.unexplained.append(f"replica {process.slot} stopped: {error}")
            self._close(process)

    def _complete_actions(self) -> None:
        busy = [process for process in self._processes.values() if process.alive and process.executor.pending]
        if busy:
            process = self.dice.pick(busy)
            number = min(len(process.executor.pending), 1 + self.dice.below(30))
            self._note(f"complete {number} actions of {process.slot}")
            for _ in range(number):
                process.executor.complete_one()

    def _suspend(self, process: Process) -> None:
        """SIGSTOP in the middle of a call: the others go on. SIGCONT, and the process goes on as if nothing was."""
        if self._nesting == _MAX_NESTING:
            return
        self._note(f"suspend {process.slot}")
        self._nesting += 1
        process.suspended = True
        if self.dice.coin():
            self._clock.advance(SESSION_TIMEOUT * 2 * self.dice.fraction())
        for _ in range(self.dice.below(120)):
            self._happen()
        process.suspended = False
        self._nesting -= 1
        self._note(f"resume {process.slot}")

    def _start(self, slot: str) -> None:
        self._note(f"start {slot} generation {len(self.sensors)}")
        self._processes[slot] = Process(self._around, self.sensors[len(self.sensors)], slot)

    def _close(self, process: Process) -> None:
        self._note(f"close {process.slot}")
        try:
            process.close()
        except Crash:
            pass
        except LogError as error:
            self._note(f"close {process.slot}: {error}")
            process.kill()

    def _settle(self) -> None:
        """The faults stop. Everything has to come to rest by itself."""
        self.dice.calm()
        for slot, process in list(self._processes.items()):
            if process.alive and process.generation < len(self.sensors):
                self._close(process)  # the new spec is rolled out to the end
            if not process.alive:
                self._start(slot)
        for _ in range(_SETTLING_ROUNDS):
            self._clock.advance(0.5)
            self._markers.deliver_one()
            for process in list(self._processes.values()):
                self._work_off(process)
            if self._at_rest():
                return
        self.findings.unexplained.append("the sensor has not come to rest")

    def _work_off(self, process: Process) -> None:
        while process.executor.pending:
            process.executor.complete_one()
        for stage in range(3):
            if process.alive:
                self._step(process, stage)
        if not process.alive:
            self._start(process.slot)

    def _at_rest(self) -> bool:
        try:
            for stage in Stage:
                topic = NAME.input_topic(stage)
                for partition, committed in self._cluster.committed(NAME.group(stage), topic).items():
                    if committed is None or self._lag(stage, topic, partition, committed):
                        return False
        except LogError:
            return False
        return not any(process.executor.pending for process in self._processes.values() if process.alive)

    def _lag(self, stage: Stage, topic: str, partition: int, committed: Committed) -> bool:
        log = self._partition(topic, partition)
        if log.last_stable_offset < log.end:
            return True
        position = committed.offset
        if stage is Stage.JOIN:
            position = decode_join(committed.offset, committed.metadata).position
        return bool(log.read(position, 1)[0])

    # --- faults of the log ------------------------------------------------------------------------------------------

    def _remove_old_records(self) -> None:
        """What no stage needs any more may be gone at any time. (A released action is needed once more.)"""
        stage = self.dice.pick((Stage.MATCH, Stage.JOIN))
        topic = NAME.input_topic(stage)
        try:
            committed = self._cluster.committed(NAME.group(stage), topic)
        except LogError:
            return
        for partition, commit in committed.items():
            if commit is not None:
                log = self._partition(topic, partition)
                self._archive[topic, partition] += [
                    entry.record
                    for entry in log._entries
                    if entry.offset < commit.offset and entry.record is not None and entry.visible
                ]
                self._cluster.truncate(topic, partition, commit.offset)

    def _change_spec(self) -> None:
        """Some triggers get another condition, one may go, one may come. Replicas learn of it when they restart."""
        last = self.sensors[len(self.sensors)]
        conditions = {name: str(trigger.condition) for name, trigger in last.plan.triggers.items()}
        for name in list(conditions):
            if self.dice.coin():
                conditions[name] = self.dice.pick(_CONDITIONS)
        if self.dice.coin():
            del conditions[self.dice.pick(list(conditions))]
        conditions[f"t{len(conditions) + 100 * len(self.sensors)}"] = self.dice.pick(_CONDITIONS)
        deliveries = {name: last.deliveries.get(name) or self.dice.pick(_DELIVERIES) for name in conditions}
        generation = len(self.sensors) + 1
        self.sensors[generation] = _sensor(generation, conditions, deliveries)

    # --- what is written down ---------------------------------------------------------------------------------------

    def _committed(self, group: Group, staged: dict[tuple[str, int], Committed]) -> None:
        """A commit has become visible."""
        stage = Stage(group.name.rpartition("-")[2])
        for (_, partition), commit in staged.items():
            self._note(f"commit {stage} {partition} {commit.offset} {commit.metadata}")
            spans = self.spans[stage, partition]
            owner, end = _position(stage, commit)
            if stage is Stage.JOIN:
                self.longest_replay = max(self.longest_replay, end - commit.offset)
            if spans and (end < spans[-1].end or owner.generation < spans[-1].generation):
                self.findings.went_back.append(f"{stage}[{partition}] from {spans[-1]} to {end}")
            spans.append(Span(owner.generation, end))

    def _note(self, line: str) -> None:
        self._trace = crc32(line.encode(), self._trace)
        if self._lines is not None:
            self._lines.append(f"{self._clock.monotonic():9.3f} {'  ' * self._nesting}{line}")

    def records(self, topic: str) -> list[Record]:
        """All committed records of a topic, those included that retention has removed."""
        found = []
        for partition in self._cluster._broker.topics[topic].partitions:
            found += self._archive[topic, partition.number]
            found += [entry.record for entry in partition._entries if entry.record is not None and entry.visible]
        return found

    @property
    def sink(self) -> Sink:
        return self._sink

    @property
    def cluster(self) -> MemoryCluster:
        return self._cluster

    @property
    def clock(self) -> SimClock:
        return self._clock

    # --- parts ------------------------------------------------------------------------------------------------------

    def _create_topics(self) -> Topology:
        events, internal = 1 + self.dice.below(4), 1 + self.dice.below(3)
        specs = [event_topic(NAME.bus, events), *sensor_topics(NAME, internal), TopicSpec(out_topic(NAME), 1, {})]
        self._cluster.create(specs)
        return Topology(
            event_partitions=events,
            trigger_partitions=internal,
            action_partitions=internal,
            invocation_partitions=internal,
            dlq_partitions=internal,
        )

    def _first_sensor(self) -> Sensor:
        number = self.dice.pick((1, 2, 4, 8))
        conditions = {f"t{index}": self.dice.pick(_CONDITIONS) for index in range(number)}
        return _sensor(1, conditions, {name: self.dice.pick(_DELIVERIES) for name in conditions})

    def _partition(self, topic: str, partition: int):  # type: ignore[no-untyped-def]
        return self._cluster._broker.partition(topic, partition)


def run_seed(seed: int) -> Report:
    return Simulation(seed).run()


def _sensor(generation: int, conditions: dict[str, str], deliveries: dict[str, Delivery]) -> Sensor:
    names = [dependency.name for dependency in _DEPENDENCIES]
    triggers = [TriggerPlan(name, parse(text, names)) for name, text in conditions.items()]
    owner = Owner(generation, f"digest-{generation}")
    return Sensor(SensorPlan.of(NAME, owner, _DEPENDENCIES, triggers), deliveries)


def _position(stage: Stage, commit: Committed) -> tuple[Owner, int]:
    """Whose commit it is, and how far the stage has got."""
    if stage is Stage.MATCH:
        return decode_match(commit.metadata), commit.offset
    if stage is Stage.JOIN:
        join = decode_join(commit.offset, commit.metadata)
        return join.owner, join.position
    return decode_invoke(commit.offset, commit.metadata).owner, 0


@contextmanager
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


@contextmanager
def _limits(metadata_limit: int, part_records: int) -> Iterator[None]:
    """Smaller ones, so that they are met: the code is the same."""
    before = metadata.LIMIT, stages.PART_RECORDS
    metadata.LIMIT, stages.PART_RECORDS = metadata_limit, part_records
    try:
        yield
    finally:
        metadata.LIMIT, stages.PART_RECORDS = before
