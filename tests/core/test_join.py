"""The join against a machine that never crashes, over random logs, crashes, aborts and changes of the spec."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventbus.events import Event
from eventbus.formats import DLQ_HEADER, TRIGGER_HEADER, Trace, TriggerFact, action_fact, dead_letter, header
from eventbus.metadata import LIMIT, JoinCommit, decode_join, encode_join
from eventbus.names import Kind
from eventbus.ports import Output, Record
from eventbus.stateformats import HeldKey, decode_state_key
from sensors.join import JoinPartition, JoinStep
from sensors.match import Matcher
from sensors.plan import SensorPlan
from tests.core.builders import (
    EXAMPLES,
    NAME,
    OWNER,
    TOPOLOGY,
    action_summary,
    as_read,
    event_record,
    make_plan,
    trigger_record,
)

CONDITIONS = {"p0": "a && b", "p1": "a && b && c", "p2": "(a && b) || (c && d)", "p3": "a || (b && c)"}


def partition(plan: SensorPlan, commit: JoinCommit | None = None, **horizon: int) -> JoinPartition:
    return JoinPartition(plan, TOPOLOGY, 0, commit or JoinCommit(OWNER, 0, 0, {}), "replica", **horizon)


class Store:
    """What survives a crash: the log, the compacted state, the actions, and the last commit as Kafka keeps it."""

    def __init__(self, plan: SensorPlan) -> None:
        self.plan = plan
        self.log: list[Record] = []
        self.state: dict[bytes, Record] = {}
        self.actions: list[tuple[str, tuple[str, ...]]] = []
        self.dead: list[Output] = []
        self.committed = (0, encode_join(JoinCommit(OWNER, 0, 0, {})))

    def write(self, outputs: Sequence[Output], commit: JoinCommit) -> None:
        for number, output in enumerate(outputs):
            if output.topic == NAME.topic(Kind.ACTION):
                self.actions.append(action_summary(output))
            elif output.topic == NAME.topic(Kind.DLQ):
                self.dead.append(output)
            elif output.value is None:
                self.state.pop(output.key or b"", None)
            else:
                self.state[output.key or b""] = as_read(output, number)
        self.committed = (commit.offset, encode_join(commit))

    def restored(self, **horizon: int) -> JoinPartition:
        commit = decode_join(*self.committed)
        fresh = partition(self.plan, commit, **horizon)
        for record in self.state.values():
            key = decode_state_key(record)
            assert isinstance(key, HeldKey)
            fresh.load(key, record)
        fresh.loaded()
        replayed = [record for record in self.log if commit.offset <= record.offset < commit.position]
        step = fresh.step(replayed)
        if step is not None:
            self.write(step.outputs, step.commit)
        return fresh


def actions_of(step: JoinStep) -> list[tuple[str, tuple[str, ...]]]:
    return [action_summary(output) for output in step.outputs if output.topic == NAME.topic(Kind.ACTION)]


def reference(plan: SensorPlan, log: Sequence[Record]) -> list[tuple[str, tuple[str, ...]]]:
    """A machine that never crashes, written as plainly as possible."""
    held: dict[str, dict[str, str]] = {}
    actions = []
    for record in log:
        fact = msgspec.json.decode(header(record.headers, TRIGGER_HEADER) or b"", type=TriggerFact)
        slot = held.setdefault(fact.trigger, {})
        for name in fact.dependencies:
            slot[name] = f"e{record.offset}"
        if plan.triggers[fact.trigger].condition.holds(slot):
            by_event: dict[str, list[str]] = {}
            for name, event in sorted(slot.items()):
                by_event.setdefault(event, []).append(name)
            used = tuple(f"{name}={event}" for event, names in by_event.items() for name in names)
            actions.append((fact.trigger, used))
            slot.clear()
    return actions


arrivals = st.lists(
    st.tuples(st.sampled_from(sorted(CONDITIONS)), st.lists(st.sampled_from("abcd"), min_size=1, max_size=2)),
    max_size=80,
)


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    arrivals,
    st.sampled_from([0, 3, 20, 10_000]),
    st.lists(st.tuples(st.integers(1, 12), st.sampled_from(["commit", "abort", "crash"])), min_size=1, max_size=30),
)
def test_crashes_and_aborts_change_nothing(
    arrivals: list[tuple[str, list[str]]], horizon: int, schedule: list[tuple[int, str]]
) -> None:
    plan = make_plan(CONDITIONS)
    store = Store(plan)
    offset = 0
    for trigger, names in arrivals:
        fitting = sorted(set(names) & plan.triggers[trigger].condition.names)
        if fitting:
            store.log.append(trigger_record(plan, trigger, fitting, offset))
            offset += 2  # transaction markers take offsets too
    machine = store.restored(horizon_records=horizon)
    turn = 0
    while machine.position <= (store.log[-1].offset if store.log else -1):
        count, fate = schedule[turn % len(schedule)] if turn < 200 else (12, "commit")
        turn += 1
        batch = [record for record in store.log if record.offset >= machine.position][:count]
        step = machine.step(batch)
        assert step is not None
        assert len(encode_join(step.commit)) <= LIMIT
        if fate != "abort":
            store.write(step.outputs, step.commit)
        if fate != "commit":
            machine = store.restored(horizon_records=horizon)
    assert store.actions == reference(plan, store.log)
    assert store.dead == []


def test_an_action_carries_the_events_of_all_dependencies() -> None:
    plan = make_plan({"t": "(a && b) || (c && d)"})
    log = [trigger_record(plan, "t", [name], offset) for offset, name in enumerate("cab")]
    step = partition(plan).step(log)
    assert step is not None
    assert [action_summary(output) for output in step.outputs] == [("t", ("a=e1", "b=e2", "c=e0"))]


def test_one_event_that_matches_two_dependencies_is_used_once() -> None:
    plan = make_plan({"t": "a && b"})
    step = partition(plan).step([trigger_record(plan, "t", ["a", "b"], 0)])
    assert step is not None
    fact = action_fact(as_read(step.outputs[0], 0))
    assert [used.dependencies for used in fact.events] == [("a", "b")]


def test_the_latest_event_of_a_dependency_wins() -> None:
    plan = make_plan({"t": "a && b"})
    log = [trigger_record(plan, "t", [name], offset) for offset, name in enumerate("aab")]
    step = partition(plan).step(log)
    assert step is not None
    assert [action_summary(output) for output in step.outputs] == [("t", ("a=e1", "b=e2"))]


def test_the_commit_stays_at_the_oldest_held_event() -> None:
    plan = make_plan({"t": "a && b", "u": "a && c"})
    log = [trigger_record(plan, "t", ["a"], 4), trigger_record(plan, "u", ["c"], 7)]
    step = partition(plan).step(log)
    assert step is not None
    assert (step.commit.offset, step.commit.position) == (4, 8)
    assert {mark.offset for mark in step.commit.marks.values()} == {4, 7}


def test_what_is_held_beyond_the_horizon_moves_to_the_state_topic() -> None:
    plan = make_plan({"t": "a && b", "u": "a && c"})
    machine = partition(plan, horizon_records=5)
    machine.step([trigger_record(plan, "t", ["a"], 0)])
    step = machine.step([trigger_record(plan, "u", ["a"], 9)])
    assert step is not None
    assert [output.topic for output in step.outputs] == [NAME.topic(Kind.STATE)]
    assert step.commit.offset == 9


def test_what_is_held_for_longer_than_an_hour_moves_to_the_state_topic() -> None:
    plan = make_plan({"t": "a && b", "u": "a && c"})
    machine = partition(plan)
    machine.step([trigger_record(plan, "t", ["a"], 0, timestamp=1_000)])
    step = machine.step([trigger_record(plan, "u", ["a"], 1, timestamp=1_001 + 3_600_000)])
    assert step is not None
    assert [output.topic for output in step.outputs] == [NAME.topic(Kind.STATE)]


def test_a_firing_removes_what_was_spilled() -> None:
    plan = make_plan({"t": "a && b"})
    machine = partition(plan, horizon_records=0)
    spilled = machine.step([trigger_record(plan, "t", ["a"], 0), trigger_record(plan, "t", ["a"], 1)])
    fired = machine.step([trigger_record(plan, "t", ["b"], 2)])
    assert spilled is not None
    assert fired is not None
    stored = [output.key for output in spilled.outputs]
    assert [(output.topic, output.key, output.value is None) for output in fired.outputs[1:]] == [
        (NAME.topic(Kind.STATE), stored[0], True)
    ]
    assert fired.commit.offset == fired.commit.position


def test_more_triggers_than_the_metadata_has_room_for() -> None:
    names = {f"trigger-with-a-long-name-{number}": "a && b" for number in range(1000)}
    plan = make_plan(names)
    machine = partition(plan)
    step = machine.step([trigger_record(plan, name, ["a"], offset) for offset, name in enumerate(names)])
    assert step is not None
    spilled = [output for output in step.outputs if output.topic == NAME.topic(Kind.STATE)]
    assert len(encode_join(step.commit)) <= LIMIT
    assert len(spilled) + len(step.commit.marks) == 1000
    assert len(step.commit.marks) > 200


def test_a_changed_condition_keeps_what_fits_and_parks_the_rest() -> None:
    old = make_plan({"t": "a && b && c", "gone": "a && b"})
    store = Store(old)
    store.log = [
        trigger_record(old, "t", ["a"], 0),
        trigger_record(old, "t", ["c"], 1),
        trigger_record(old, "gone", ["a"], 2),
    ]
    step = store.restored().step(store.log)
    assert step is not None
    store.write(step.outputs, step.commit)

    store.plan = make_plan({"t": "a && d"})
    machine = store.restored()
    letters = [dead_letter(as_read(output, 0)) for output in store.dead]
    assert [(letter.reason, letter.trigger, letter.offset) for letter in letters] == [
        ("spec-changed", "t", 1),
        ("spec-changed", "gone", 2),
    ]
    assert [name for _, name, _ in machine.held("t")] == ["a"]

    store.restored()
    assert len(store.dead) == 2, "what was parked is not parked again"
    fired = store.restored().step([trigger_record(store.plan, "t", ["d"], 3)])
    assert fired is not None
    assert actions_of(fired) == [("t", ("a=e0", "d=e3"))]


def test_what_is_held_is_parked_when_one_event_becomes_enough() -> None:
    """Nothing more comes to be joined, so it would wait for ever."""
    store = Store(make_plan({"t": "a && b"}))
    store.log = [trigger_record(store.plan, "t", ["a"], 0)]
    step = store.restored().step(store.log)
    assert step is not None
    store.write(step.outputs, step.commit)
    store.plan = make_plan({"t": "a || b"})
    assert not list(store.restored().held("t"))
    assert [dead_letter(as_read(output, 0)).reason for output in store.dead] == ["spec-changed"]


def test_a_changed_condition_that_is_true_already_waits_for_the_next_arrival() -> None:
    old = make_plan({"t": "a && b && c"})
    store = Store(old)
    store.log = [trigger_record(old, "t", ["a"], 0), trigger_record(old, "t", ["b"], 1)]
    step = store.restored().step(store.log)
    assert step is not None
    store.write(step.outputs, step.commit)
    store.plan = make_plan({"t": "a && b"})
    machine = store.restored()
    assert store.actions == []
    fired = machine.step([trigger_record(store.plan, "t", ["b"], 2)])
    assert fired is not None
    assert actions_of(fired) == [("t", ("a=e0", "b=e2"))]


def test_an_event_that_was_superseded_is_not_parked() -> None:
    """Found by the simulator: the state topic still had the older event when its trigger was removed."""
    old = make_plan({"t": "a && b"})
    store = Store(old)
    store.log = [trigger_record(old, "t", ["a"], 0), trigger_record(old, "t", ["a"], 1)]
    for horizon, record in zip((0, 100), store.log, strict=True):
        step = store.restored(horizon_records=horizon).step([record])
        assert step is not None
        store.write(step.outputs, step.commit)
    assert store.state
    store.plan = make_plan({"other": "a && b"})
    store.restored()
    assert [dead_letter(as_read(output, 0)).offset for output in store.dead] == [1]
    assert not any(record.value for record in store.state.values())


def test_what_one_spec_has_parked_the_next_one_does_not_park_again() -> None:
    """Found by the simulator: two changes of the spec, with a record that had fitted only the first."""
    first = make_plan({"t": "c && d"})
    store = Store(first)
    second = make_plan({"t": "a && b"})
    store.log = [trigger_record(second, "t", ["a"], 0), trigger_record(first, "t", ["c"], 1)]
    store.plan = second
    step = store.restored().step(store.log)
    assert step is not None
    store.write(step.outputs, step.commit)
    store.plan = make_plan({"other": "a && b"})
    store.restored()
    assert [dead_letter(as_read(output, 0)).offset for output in store.dead] == [1, 0]


def test_spilled_events_of_a_removed_trigger_are_parked_and_deleted() -> None:
    old = make_plan({"t": "a && b"})
    store = Store(old)
    store.log = [trigger_record(old, "t", ["a"], 0), trigger_record(old, "t", ["a"], 1)]
    step = store.restored(horizon_records=0).step(store.log)
    assert step is not None
    store.write(step.outputs, step.commit)
    assert len(store.state) == 1
    store.plan = make_plan({"u": "c && d"})
    store.restored()
    assert store.state == {}
    assert [dead_letter(as_read(output, 0)).trigger for output in store.dead] == ["t"]


@pytest.mark.parametrize(
    ("value", "headers"),
    [
        (b'{"specversion":"1.0","id":"x"', None),
        (b"{}", None),
        (None, None),
        (b'{"source":"s","id":"x"}', [(TRIGGER_HEADER, b'{"t":')]),
        (b'{"source":"s","id":"x"}', []),
    ],
)
def test_a_broken_record_is_dead_lettered_and_does_not_stop_the_partition(
    value: bytes | None, headers: list[tuple[str, bytes]] | None
) -> None:
    plan = make_plan({"t": "a && b"})
    good = trigger_record(plan, "t", ["a"], 1)
    broken = msgspec.structs.replace(
        trigger_record(plan, "t", ["a"], 0), value=value, **({} if headers is None else {"headers": headers})
    )
    step = partition(plan).step([broken, good])
    assert step is not None
    letter = dead_letter(as_read(step.outputs[0], 0))
    assert (letter.reason, letter.offset) == ("invalid-record", 0)
    assert step.outputs[0].value == value
    assert step.commit.position == 2


def test_match_and_join_carry_the_trace_of_the_completing_event() -> None:
    plan = make_plan({"t": "a && b"})
    parent = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"
    matcher = Matcher(plan, TOPOLOGY, "replica")
    first = matcher.outputs(event_record(Event.new("shop", "a", id="1"), offset=0))
    second = matcher.outputs(event_record(Event.new("shop", "b", id="2", traceparent=parent), offset=1))
    step = partition(plan).step([as_read(first[0], 0), as_read(second[0], 1)])
    assert step is not None
    assert action_fact(as_read(step.outputs[0], 0)).trace == Trace(parent)
    assert header(step.outputs[0].headers, DLQ_HEADER) is None
