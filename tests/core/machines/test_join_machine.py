"""The join in a world where anything may happen between two of its steps, against a join to which nothing happens."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations, product
from typing import NamedTuple

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from eventbus import metadata
from eventbus.formats import TRIGGER_HEADER, TriggerFact, dead_letter, header
from eventbus.metadata import JoinCommit, Owner, decode_join, encode_join
from eventbus.names import Kind
from eventbus.ports import Output, Record
from eventbus.stateformats import HeldKey, decode_state_key
from sensors.deadletters import INVALID_RECORD, SPEC_CHANGED
from sensors.join import JoinPartition, JoinStep
from sensors.plan import SensorPlan
from tests.core.builders import NAME, OWNER, TOPOLOGY, action_summary, as_read, make_plan, trigger_record
from tests.core.machines.common import Log, TightMachine, as_test, one_of_many

CONDITIONS = ["a && b", "a && b && c", "a && c", "(a && b) || (c && d)", "b && d", "a || (b && c)", "a || b"]
LONGEST_HEAD = len("j1;99;00000099;9999;99999;")
MARK = len("ttttttssss99,")


class Limits(NamedTuple):
    """How much may stay in the log."""

    horizon_records: int = 1000
    horizon_ms: int = 100_000
    room: int = 1000
    """For marks, in characters."""


LIMITS = [
    *[Limits()] * 5,
    *(Limits(horizon_records=records) for records in (10, 3, 0)),
    *(Limits(horizon_ms=ms) for ms in (50, 10)),
    *(Limits(room=MARK * marks) for marks in (2, 1, 0)),
    Limits(10, 50, 2 * MARK),
]


class Circumstances(NamedTuple):
    """What an event may be like that just arrives."""

    specs_behind: int = 0
    gap: int = 0
    lateness: int = 0
    readable: bool = True


class Arrival(NamedTuple):
    """An event for one trigger, as a match stage writes it that may be behind the join or ahead of it."""

    trigger: int
    dependencies: tuple[str, ...]
    circumstances: Circumstances


class Batch(NamedTuple):
    """What arrives, and how much of all that has arrived is read then."""

    arrivals: list[Arrival]
    read: int


class Arrived(NamedTuple):
    """What a record of the log means, for those who do not want to decode it."""

    offset: int
    trigger: str
    dependencies: tuple[str, ...]
    timestamp: int
    readable: bool

    @property
    def event(self) -> str:
        return f"e{self.offset}"


specs = st.dictionaries(st.sampled_from("tuvw"), st.sampled_from(CONDITIONS), min_size=1, max_size=4)
CIRCUMSTANCES = [
    *[Circumstances(), Circumstances(gap=1), Circumstances(specs_behind=1)] * 3,
    Circumstances(specs_behind=2, gap=2),
    Circumstances(lateness=30),
    Circumstances(gap=2, readable=False),
]
arrivals = one_of_many(
    [
        Arrival(trigger, tuple(names), circumstances)
        for circumstances, names, trigger in product(CIRCUMSTANCES, [*"abcd", *combinations("abcd", 2)], range(4))
    ]
)
batches = st.builds(Batch, st.lists(arrivals, max_size=5), st.sampled_from([100, 8, 3, 2, 1, 0]))
"""Every rule brings a batch: hypothesis leaves out whole rules at random, and without events nothing happens."""


class Unfailing:
    """A join that never stops: it needs no offsets, no marks and no state topic."""

    def __init__(self, plan: SensorPlan) -> None:
        self.plan = plan
        self.held: dict[str, dict[str, str]] = {}
        self.actions: list[tuple[str, tuple[str, ...]]] = []
        self.dead: list[tuple[str, tuple[str, ...], str]] = []
        self.clock = 0

    def change_spec(self, plan: SensorPlan) -> None:
        self.dead += self.misfits(plan)
        self.held, self.plan = self.held_under(plan), plan

    def misfits(self, plan: SensorPlan) -> list[tuple[str, tuple[str, ...], str]]:
        """What would have to be given up if this were the spec."""
        return [
            (SPEC_CHANGED, (name,), event)
            for trigger, slot in self.held.items()
            for name, event in slot.items()
            if name not in _kept(plan, trigger)
        ]

    def held_under(self, plan: SensorPlan) -> dict[str, dict[str, str]]:
        """What would still be held if this were the spec."""
        fitting = {
            trigger: {name: event for name, event in slot.items() if name in _kept(plan, trigger)}
            for trigger, slot in self.held.items()
        }
        return {trigger: slot for trigger, slot in fitting.items() if slot}

    def take(self, arrived: Arrived) -> None:
        if not arrived.readable:
            self.dead.append((INVALID_RECORD, (), arrived.event))
            return
        self.clock = max(self.clock, arrived.timestamp)
        names = [name for name in arrived.dependencies if name in _names(self.plan, arrived.trigger)]
        if not names:
            self.dead.append((SPEC_CHANGED, arrived.dependencies, arrived.event))
            return
        slot = self.held.setdefault(arrived.trigger, {})
        slot.update(dict.fromkeys(names, arrived.event))
        if any(
            alternative <= slot.keys() for alternative in self.plan.triggers[arrived.trigger].condition.alternatives
        ):
            del self.held[arrived.trigger]
            by_event: dict[str, list[str]] = {}
            for name, event in sorted(slot.items()):
                by_event.setdefault(event, []).append(name)
            used = tuple(f"{name}={event}" for event, names in by_event.items() for name in names)
            self.actions.append((arrived.trigger, used))


def _kept(plan: SensorPlan, trigger: str) -> frozenset[str]:
    """The dependencies whose events are held on: where one event is enough, nothing comes any more to join them."""
    alternatives = plan.triggers[trigger].condition.alternatives if trigger in plan.triggers else ()
    return _names(plan, trigger) if any(len(each) > 1 for each in alternatives) else frozenset()


def _names(plan: SensorPlan, trigger: str) -> frozenset[str]:
    return plan.triggers[trigger].condition.names if trigger in plan.triggers else frozenset()


class JoinMachine(TightMachine):
    """One partition of the trigger topic, and the replicas that have it one after the other."""

    partition: JoinPartition
    fetched: int
    """What has been read of the log since the last restart."""
    outputs: list[Output]
    commit: JoinCommit | None
    """What the next transaction would write."""

    @initialize(spec=specs, limits=st.sampled_from(LIMITS))
    def begin(self, spec: Mapping[str, str], limits: Limits) -> None:
        self.limits = limits
        self.limit_metadata(LONGEST_HEAD, limits.room)
        self.plans = [make_plan(spec)]
        self.plan = self.plans[0]
        self.model = Unfailing(self.plan)
        self.log = Log()
        self.arrived: list[Arrived] = []
        self.evaluated = 0
        self.state: list[Record] = []
        self.actions: list[tuple[str, tuple[str, ...]]] = []
        self.dead: list[tuple[str, tuple[str, ...], str]] = []
        self.committed = (0, encode_join(JoinCommit(OWNER, 0, 0, {})))
        self.restart()

    # --- what happens -----------------------------------------------------------------------------------------------

    @rule(batch=batches)
    def a_batch_is_committed(self, batch: Batch) -> None:
        self.apply(batch)
        self.commit_what_is_pending()

    @rule(batch=batches)
    def a_batch_is_part_of_a_larger_transaction(self, batch: Batch) -> None:
        self.apply(batch)

    @rule(batch=batches, committed=st.booleans())
    def a_batch_is_followed_by_a_crash(self, batch: Batch, *, committed: bool) -> None:
        """Or by an abort, which is the same to the join: whatever is not committed is done again."""
        self.apply(batch)
        if committed:
            self.commit_what_is_pending()
        self.restart()

    @rule(spec=specs, batch=batches)
    def the_spec_changes(self, spec: Mapping[str, str], batch: Batch) -> None:
        self.publish(spec)
        self.let_the_latest_spec_take_over()
        self.apply(batch)
        self.commit_what_is_pending()

    @rule(spec=specs, batch=batches)
    def the_spec_changes_for_the_match_stage_first(self, spec: Mapping[str, str], batch: Batch) -> None:
        self.publish(spec)
        self.apply(batch)
        self.commit_what_is_pending()

    @rule(batch=batches)
    def the_latest_spec_takes_over(self, batch: Batch) -> None:
        self.let_the_latest_spec_take_over()
        self.apply(batch)

    @rule(compacted=st.integers(0, 10), tombstones=st.booleans())
    def the_broker_cleans_up(self, compacted: int, *, tombstones: bool) -> None:
        self.log.truncate(self.committed[0])
        latest = {record.key: record for record in self.state[:compacted]}
        kept = [record for record in latest.values() if record.value is not None or not tombstones]
        self.state = sorted(kept, key=lambda record: record.offset) + self.state[compacted:]
        self.restart_is_checked = False

    # --- what follows from it ---------------------------------------------------------------------------------------

    def publish(self, spec: Mapping[str, str]) -> None:
        generation = len(self.plans) + 1
        self.plans.append(make_plan(spec, owner=Owner(generation, f"{generation:08}")))

    def let_the_latest_spec_take_over(self) -> None:
        self.plan = self.plans[-1]
        self.restart()

    def apply(self, batch: Batch) -> None:
        for arrival in batch.arrivals:
            self.log.append(self.matched(arrival, self.log.next_offset(arrival.circumstances.gap)))
        records = self.log.read(self.fetched, batch.read)
        if records:
            self.fetched = records[-1].offset + 1
        self.is_pending(self.partition.step(records))

    def matched(self, arrival: Arrival, offset: int) -> Record:
        behind, _, lateness, readable = arrival.circumstances
        plan = self.plans[-1 - behind % len(self.plans)]
        trigger = sorted(plan.triggers)[arrival.trigger % len(plan.triggers)]
        names = _names(plan, trigger)
        dependencies = tuple(sorted(names.intersection(arrival.dependencies) or names))
        timestamp = max(0, 2 * offset - lateness)
        self.arrived.append(Arrived(offset, trigger, dependencies, timestamp, readable))
        record = trigger_record(plan, trigger, dependencies, offset, timestamp=timestamp)
        return record if readable else msgspec.structs.replace(record, headers=[])

    def is_pending(self, step: JoinStep | None) -> None:
        if step is not None:
            self.outputs += step.outputs
            self.commit = step.commit

    def commit_what_is_pending(self) -> None:
        commit = self.commit
        if commit is None:
            return
        for output in self.outputs:
            self.write(output)
        self.committed = (commit.offset, encode_join(commit))
        self.outputs, self.commit = [], None
        self.model_catches_up(commit.position)
        self.check_commit(commit)
        self.restart_is_checked = False

    def restart(self) -> None:
        """Everything since the last commit is forgotten, and to be done again."""
        self.outputs, self.commit = [], None
        self.restart_is_checked = False
        self.partition = self.restored()
        self.fetched = self.committed[0]
        self.is_pending(self.partition.step([]))

    def restored(self) -> JoinPartition:
        """From what is durable, up to where the log is to be read."""
        partition = JoinPartition(
            self.plan,
            TOPOLOGY,
            0,
            decode_join(*self.committed),
            "replica",
            horizon_records=self.limits.horizon_records,
            horizon_ms=self.limits.horizon_ms,
        )
        for record in self.state:
            key = decode_state_key(record)
            assert isinstance(key, HeldKey)
            partition.load(key, record)
        partition.loaded()
        return partition

    def write(self, output: Output) -> None:
        if output.topic == NAME.topic(Kind.ACTION):
            self.actions.append(action_summary(output))
        elif output.topic == NAME.topic(Kind.DLQ):
            self.dead.append(_dead_summary(output))
        else:
            assert output.topic == NAME.topic(Kind.STATE)
            self.state.append(as_read(output, self.state[-1].offset + 1 if self.state else 0))

    # --- what has to be true ----------------------------------------------------------------------------------------

    def model_catches_up(self, position: int) -> None:
        """A spec that nothing was committed under has left no trace."""
        if self.model.plan is not self.plan:
            self.model.change_spec(self.plan)
        while self.evaluated < len(self.arrived) and self.arrived[self.evaluated].offset < position:
            self.model.take(self.arrived[self.evaluated])
            self.evaluated += 1

    def check_commit(self, commit: JoinCommit) -> None:
        assert self.actions == self.model.actions
        assert sorted(self.dead) == sorted(self.model.dead)
        assert _held(self.partition) == self.model.held
        assert decode_join(*self.committed) == commit
        assert len(self.committed[1]) <= metadata.LIMIT
        assert commit.clock == self.model.clock
        assert commit.position - commit.offset <= self.limits.horizon_records, (
            "a restart reads a bounded piece of the log"
        )
        for trigger in self.partition._slots:
            for _, _, event in self.partition.held(trigger):
                if event.offset is not None:
                    assert event.offset >= commit.offset
                    assert event.source.timestamp >= commit.clock - self.limits.horizon_ms
        stored = {record.key: decode_state_key(record) for record in self.state if record.value is not None}
        for record in self.state:
            if record.value is None:
                stored.pop(record.key, None)
        for key in stored.values():
            assert isinstance(key, HeldKey)
            assert key.dependency in self.model.held.get(key.trigger, {}), "a state record that nobody will remove"

    @invariant()
    def a_restart_finds_what_was_held_and_fires_nothing(self) -> None:
        if self.restart_is_checked:
            return
        self.restart_is_checked = True
        commit = decode_join(*self.committed)
        partition = self.restored()
        replayed = [record for record in self.log.read(commit.offset) if record.offset < commit.position]
        steps = [partition.step([]), partition.step(replayed)]
        outputs = [output for step in steps if step is not None for output in step.outputs]
        assert all(output.topic != NAME.topic(Kind.ACTION) for output in outputs)
        letters = [_dead_summary(output) for output in outputs if output.topic == NAME.topic(Kind.DLQ)]
        assert sorted(letters) == sorted(self.model.misfits(self.plan))
        assert _held(partition) == self.model.held_under(self.plan)


def _held(partition: JoinPartition) -> dict[str, dict[str, str]]:
    held = {
        trigger: {name: event.identity[1] for _, name, event in partition.held(trigger)} for trigger in partition._slots
    }
    return {trigger: slot for trigger, slot in held.items() if slot}


def _dead_summary(output: Output) -> tuple[str, tuple[str, ...], str]:
    """Why, for which dependencies, and which event."""
    letter = dead_letter(as_read(output, 0))
    raw = header(output.headers, TRIGGER_HEADER)
    dependencies = () if raw is None else msgspec.json.decode(raw, type=TriggerFact).dependencies
    return letter.reason, dependencies, msgspec.json.decode(output.value or b"")["id"]


TestJoin = as_test(JoinMachine)
