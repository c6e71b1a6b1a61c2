"""A backtest comes to what the sensor comes to: the examples, simulated sensors, and cases made up for it."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from eventbus.events import Event
from eventbus.formats import FLUSH_HEADER, REDRIVEN_HEADER, action_fact, flush, header
from eventbus.hashing import partition_of, slot_key
from eventbus.names import Kind
from eventbus.ports import Record
from sensors.audit.reference import ENDLESS, Reference, Span
from sensors.explain import _sent_at
from sensors.rehearsal import Rehearsal
from sensors.scenarios import Firing, Scenario, find_scenarios
from sensors.spark.backtest import Backtest
from sensors.spark.comparison import compare
from sensors.spark.workers import ACTION, HELD
from sensors.spec.loader import make_manifest
from tests.examples.samples import ROOT
from tests.sim.simulation import Simulation
from tests.sim.specs import NAME
from tests.spark.manifests import sensor
from tests.spark.rows import deputy, event_record, explained, manifest, matched, outcomes_of, table, topology
from tests.spark.simulations import run_simulation

pytestmark = pytest.mark.timeout(900)  # a busy machine takes a while to start Python for Spark

NOTHING = manifest({"t": {"conditions": "a"}})
Lanes = dict[tuple[str, str], list[str]]


def _event(name: str, id: str, **data: Any) -> Event:
    return Event.new("shop", name, data, id=id)


def _fired(rows: Iterable[Row]) -> list[Row]:
    return [row for row in rows if row["kind"] == ACTION]


def _firings(rows: Iterable[Row]) -> list[Firing]:
    return [Firing(row["trigger"], json.loads(row["events"])) for row in _fired(rows)]


# --- examples ---------------------------------------------------------------------------------------------------------


def test_every_example_comes_to_what_it_promises(spark: SparkSession) -> None:
    scenarios = {str(folder): Scenario.load(folder) for folder in find_scenarios([ROOT])}
    tests = {}
    for name, scenario in scenarios.items():
        records = [event_record(event, n, _sent_at(event)) for n, event in enumerate(scenario.events)]
        tests[name] = Backtest.of_events(deputy(scenario.sensor.manifest), table(spark, records))
    found = outcomes_of(tests)
    assert len(found) >= 10
    for name, scenario in scenarios.items():
        assert _firings(found[name]) == [each.plain() for each in scenario.expected], name


# --- simulated sensors ------------------------------------------------------------------------------------------------


def _lanes_of_sensor(simulation: Simulation) -> Lanes:
    """The ids of the actions of a trigger and key, in order. Without second copies, and without what failures cause."""
    lanes: Lanes = defaultdict(list)
    for record in simulation.records(NAME.topic(Kind.ACTION)):
        fact = action_fact(record)
        if fact.failure is None and header(record.headers, REDRIVEN_HEADER) is None:
            lanes[fact.trigger, fact.key].append(fact.id)
    return dict(lanes)


def _joined(simulation: Simulation, lanes: Lanes) -> Lanes:
    triggers = simulation.sensors[1].plan.triggers
    return {place: ids for place, ids in lanes.items() if not triggers[place[0]].direct}


def _lanes(rows: Iterable[Row]) -> Lanes:
    lanes: Lanes = defaultdict(list)
    for row in _fired(rows):
        lanes[row["trigger"], row["slot"]].append(row["action"])
    return dict(lanes)


def test_over_the_trigger_topic_it_equals_the_sensor_to_the_record(spark: SparkSession) -> None:
    """Plain and stateful triggers; several partitions; crashes, clocks that jump, and operators who flush."""
    simulated = {str(seed): run_simulation(seed) for seed in (2, 23, 28, 50)}
    tests = {
        name: Backtest.of_triggers(stand_in, table(spark, simulation.records(NAME.topic(Kind.TRIGGER))))
        for name, (simulation, stand_in) in simulated.items()
    }
    found = outcomes_of(tests)
    for name, (simulation, _) in simulated.items():
        expected = _joined(simulation, _lanes_of_sensor(simulation))
        assert sum(map(len, expected.values())) > 30
        assert _lanes(found[name]) == expected, f"seed {name}"
        assert _held(found[name]) == _held_by_reference(simulation), f"seed {name}"


def test_over_one_partition_of_events_it_equals_the_sensor(spark: SparkSession) -> None:
    """Also where the broker's clock goes back. What an operator has flushed is not in the event topic."""
    simulated = {str(seed): run_simulation(seed) for seed in (2, 9, 12, 45)}
    tests = {
        name: Backtest.of_events(stand_in, table(spark, simulation.records(NAME.event_topic)))
        for name, (simulation, stand_in) in simulated.items()
    }
    found = outcomes_of(tests)
    for name, (simulation, _) in simulated.items():
        assert simulation.topology.event_partitions == 1
        flushed = _flushed(simulation)
        expected, actual = (
            {place: ids for place, ids in lanes.items() if place not in flushed}
            for lanes in (_lanes_of_sensor(simulation), _lanes(found[name]))
        )
        assert sum(map(len, expected.values())) > 30
        assert _joined(simulation, actual) == _joined(simulation, expected), f"seed {name}"
        assert _without_order(actual) == _without_order(expected), f"seed {name}"


def _without_order(lanes: Lanes) -> Lanes:
    """Actions for which one event is enough spread over partitions: their order is that of the event's own key."""
    return {place: sorted(ids) for place, ids in lanes.items()}


def _held(rows: Iterable[Row]) -> set[tuple[object, ...]]:
    return {
        (row["trigger"], row["slot"], row["reason"], tuple(json.loads(row["sources"])[0]))
        for row in rows
        if row["kind"] == HELD
    }


def _held_by_reference(simulation: Simulation) -> set[tuple[object, ...]]:
    """What is held in the end, says a machine that shares nothing with the product's join."""
    reference = Reference({1: simulation.sensors[1].plan})
    records = defaultdict(list)
    for record in simulation.records(NAME.topic(Kind.TRIGGER)):
        records[record.partition].append(record)
    for each in records.values():
        reference.join(each, [Span(1, ENDLESS)])
    return {(*place, (source.partition, source.offset, source.timestamp)) for *place, source in reference.held}


def _flushed(simulation: Simulation) -> set[tuple[str, str]]:
    records = simulation.records(NAME.topic(Kind.TRIGGER))
    wanted = [flush(record) for record in records if header(record.headers, FLUSH_HEADER) is not None]
    return {(each.trigger, each.key) for each in wanted}


# --- order and time ---------------------------------------------------------------------------------------------------


def test_partitions_keep_their_order_and_meet_by_time(spark: SparkSession) -> None:
    """Partition 0 has a clock that goes back: c was appended after a, and so is taken after it."""
    sensor = manifest({"pair": {"conditions": "a && c"}, "b": {"conditions": "b"}})
    first = [("a", "a1", 5000), ("c", "c1", 3000), ("c", "c2", 6000), ("a", "a2", 7000)]
    second = [("a", "a0", 4000), ("b", "b1", 5500)]
    records = [event_record(_event(name, id), n, at, 0) for n, (name, id, at) in enumerate(first)]
    records += [event_record(_event(name, id), n, at, 1) for n, (name, id, at) in enumerate(second)]
    test = Backtest.of_events(deputy(sensor, events=2), table(spark, records))
    assert [str(each) for each in test.expected()] == [
        '{"events":{"a":"a1","c":"c1"},"trigger":"pair"}',
        '{"events":{"b":"b1"},"trigger":"b"}',
        '{"events":{"a":"a2","c":"c2"},"trigger":"pair"}',
    ]
    test.close()


def test_a_clock_is_that_of_a_partition_of_the_trigger_topic(spark: SparkSession) -> None:
    """What a key holds expires by the events of other keys, wherever these are worked on, and by none elsewhere."""
    sensor = manifest({"pair": {"conditions": "a && b", "correlate": {"by": "data.order"}, "ttl": "3s"}})
    late = 99
    there = partition_of(slot_key("pair", str(late).encode()), 2)
    orders = [n for n in range(40) if partition_of(slot_key("pair", str(n).encode()), 2) != there]
    made = [("a", n, 1000) for n in orders] + [("a", late, 10_000)] + [("b", n, 2000) for n in orders]
    events = [event_record(_event(name, f"{name}{n}", order=n), i, at) for i, (name, n, at) in enumerate(made)]
    one, two = deputy(sensor, triggers=1), deputy(sensor, triggers=2)
    found = outcomes_of(
        {
            "events, one partition": Backtest.of_events(one, table(spark, events)),
            "events, two": Backtest.of_events(two, table(spark, events)),
            "triggers, one partition": Backtest.of_triggers(one, table(spark, matched(one, events))),
            "triggers, two": Backtest.of_triggers(two, table(spark, matched(two, events))),
        }
    )
    assert len(orders) > 10
    assert {name: len(_fired(rows)) for name, rows in found.items()} == {
        "events, one partition": 0,
        "events, two": len(orders),
        "triggers, one partition": 0,
        "triggers, two": len(orders),
    }


def test_what_came_of_it_is_counted(spark: SparkSession) -> None:
    """By key, with a window and counts; a dead letter without a key, one that nobody can read, and one that expires."""
    keyed = {"correlate": {"by": "data.order"}, "within": "10s", "onExpire": "deadLetter"}
    sensor = manifest(
        {
            "pair": {"conditions": "a && b", **keyed},
            "three": {"conditions": "c", "count": {"c": 3}, "onceWithin": "1h"},
            "each": {"conditions": "b"},
        }
    )
    hour = 3_600_000
    events = [
        ("a", 0, {"order": 1}), ("b", 1000, {"order": 1}), ("a", 2000, {"order": 2}), ("a", 3000, {}),
        *(("c", 4000 + n, {}) for n in range(6)), ("b", hour + 5000, {"order": 3}), ("nobody's", hour + 6000, {}),
    ]  # fmt: skip
    records = [event_record(Event.new("shop", n, data, id=f"{n}{at}"), i, at) for i, (n, at, data) in enumerate(events)]
    records.append(Record("", 0, len(records), hour + 5000, None, b"{", []))
    partitions = 8  # so that no other event moves the clock by which a2000 expires
    assert len({partition_of(slot_key(*slot), partitions) for slot in (("pair", b"2"), ("pair", b"3"))}) == 2
    test = Backtest.of_events(deputy(sensor, triggers=partitions), table(spark, records))
    totals = test.totals()
    assert [(each.trigger, each.fired, each.held, each.let_go, each.dead_letters) for each in totals.triggers] == [
        ("pair", 1, {"b": 1}, {"expired": 1}, {"expired": 1, "no-correlation-key": 1}),
        ("three", 1, {}, {"suppressed": 3}, {}),
        ("each", 2, {}, {}, {}),
    ]
    assert totals.dead_letters == {"invalid-event": 1}
    assert [(each.start, each.trigger, each.fired) for each in totals.hours] == [
        (0, "each", 1), (0, "pair", 1), (0, "three", 1), (hour, "each", 1),
    ]  # fmt: skip
    assert [(each.trigger, each.key, each.at, each.events) for each in test.first_firings(2)] == [
        ("pair", "1", 1000, {"a": "a0", "b": "b1000"}),
        ("each", "", 1000, {"b": "b1000"}),
    ]
    test.close()


def test_filters_scripts_and_transforms_run_in_workers(spark: SparkSession) -> None:
    pytest.importorskip("lupa")
    pytest.importorskip("jq")
    sensor = manifest(
        {"pair": {"conditions": "a && b", "correlate": {"by": "data.order"}, "ttl": "1h"}},
        {
            "a": {"filters": {"script": "return event.n > 1"}, "transform": {"jq": '.order = "x"'}},
            "b": {"filters": {"data": [{"path": "n", "type": "number", "comparator": ">", "value": ["1"]}]}},
        },
    )
    made = [
        _event("a", "a1", n=1),
        _event("a", "a2", n=2),
        _event("b", "b1", n=1, order="x"),
        _event("b", "b2", n=2, order="x"),
    ]
    records = [event_record(event, n, n) for n, event in enumerate(made)]
    [expected] = explained(sensor, records)
    rows = outcomes_of({"": Backtest.of_events(deputy(sensor), table(spark, records))})[""]
    assert [(row["slot"], json.loads(row["events"])) for row in _fired(rows)] == [("x", expected.events)]
    assert expected.events == {"a": "a2", "b": "b2"}


def test_a_rehearsal_leaves_nothing_to_a_later_sweep() -> None:
    """A sensor that runs sweeps a thousand slots with a batch; a worker's batches may have five thousand."""
    sensor = manifest({"pair": {"conditions": "a && b", "correlate": {"by": "data.order"}, "ttl": "1s"}})
    stand_in = deputy(sensor, triggers=1)
    rehearsal = Rehearsal(stand_in.plan, topology(), 0, "test")
    for record in matched(stand_in, [event_record(_event("a", f"a{n}", order=n), n, 0) for n in range(2500)]):
        rehearsal.evaluate(record, 0)
    assert len(rehearsal.rest(1001).unused) == 2500
    assert list(rehearsal.held("pair")) == []


# --- two versions -----------------------------------------------------------------------------------------------------


def test_two_versions_are_compared(spark: SparkSession) -> None:
    old = manifest(
        {
            "pair": {"conditions": "a && b"},
            "gone": {"conditions": "c"},
            "sum": {"conditions": "a"},
        },
    )
    new = manifest(
        {
            "pair": {"conditions": "a && b"},
            "come": {"conditions": "b"},
            "sum": {"conditions": "a"},
        },
        {"a": {"filters": {"data": [{"path": "n", "type": "number", "comparator": "<", "value": ["5"]}]}}},
    )
    made = [
        _event("a", "a1", n=1), _event("b", "b1"),  # the same
        _event("a", "a2", n=2), _event("a", "a3", n=9), _event("b", "b2"),  # b2 completes it with another a
        _event("a", "a4", n=9), _event("b", "b3"),  # now b3 is held
        _event("c", "c1"),
    ]  # fmt: skip
    records = table(spark, [event_record(event, n, 1000 * n) for n, event in enumerate(made)])
    before, after = (Backtest.of_events(deputy(each), records) for each in (old, new))
    found = compare(before, after)
    assert [(each.trigger, each.same, each.added, each.removed, each.changed) for each in found.triggers] == [
        ("pair", 1, 0, 1, 1),
        ("come", 0, 3, 0, 0),
        ("sum", 2, 0, 2, 0),
        ("gone", 0, 0, 1, 0),
    ]
    [change] = found.changed
    assert (change.trigger, change.at, change.before, change.after) == (
        "pair", 4000, {"a": "a3", "b": "b2"}, {"a": "a2", "b": "b2"},
    )  # fmt: skip
    assert [each.events for each in found.added] == [{"b": "b1"}, {"b": "b2"}, {"b": "b3"}]
    assert [(each.trigger, each.events) for each in found.removed] == [
        ("sum", {"a": "a3"}),
        ("sum", {"a": "a4"}),
        ("pair", {"a": "a4", "b": "b3"}),
        ("gone", {"c": "c1"}),
    ]
    same = compare(after, after)
    assert not same.differs
    assert sum(each.same for each in same.triggers) == 7
    before.close()
    after.close()


def test_a_firing_with_other_contents_is_changed(spark: SparkSession) -> None:
    pytest.importorskip("jq")
    old = manifest({"t": {"conditions": "a"}})
    new = manifest({"t": {"conditions": "a"}}, {"a": {"transform": {"jq": ".n = 2"}}})
    records = table(spark, [event_record(_event("a", "a1", n=1), 0, 0), event_record(_event("a", "a2", n=2), 1, 0)])
    before, after = (Backtest.of_events(deputy(each), records) for each in (old, new))
    [counts] = compare(before, after).triggers
    assert (counts.same, counts.added, counts.removed, counts.changed) == (1, 0, 0, 1)
    before.close()
    after.close()


def test_nothing_comes_of_nothing(spark: SparkSession) -> None:
    test = Backtest.of_events(deputy(NOTHING), table(spark, []))
    assert (test.totals().hours, list(test.expected()), compare(test, test).differs) == ([], [], False)
    test.close()


def _compared(spark: SparkSession, old: Any, new: Any, events: list[tuple[str, int]]) -> list[tuple[str, int, int]]:
    made = [Event.new("shop", name, {"n": n}, id=f"{name}{at}") for at, (name, n) in enumerate(events)]
    records = table(spark, [event_record(event, n, 1000 * n) for n, event in enumerate(made)])
    before, after = (Backtest.of_events(deputy(each), records) for each in (old, new))
    return [(each.trigger, each.same, each.changed) for each in compare(before, after).triggers]


def test_what_only_one_version_asks_for_changes_nothing_else(spark: SparkSession) -> None:
    """Not even where a broker's clock was put right: what the event at its peak means to the other one counts, too."""
    triggers = {"pair": {"conditions": "a && b"}, "more": {"conditions": "c"}}
    stand_ins = [deputy(manifest(triggers, each), events=2) for each in ({"c": {"eventName": "other"}}, {})]
    log = [(0, 0, "c", 5000), (0, 1, "a", 3000), (1, 0, "a", 4000), (1, 1, "b", 6000)]
    made = [event_record(_event(name, f"{name}{at}"), offset, at, place) for place, offset, name, at in log]
    tests = [Backtest.of_events(each, table(spark, made), beside=stand_ins) for each in stand_ins]
    assert [(each.trigger, each.same, each.added) for each in compare(*tests).triggers] == [
        ("pair", 1, 0),
        ("more", 0, 1),
    ]


def test_two_versions_that_differ_in_their_generation_only(spark: SparkSession) -> None:
    head = sensor(
        "s", dict.fromkeys("abc", "shop"), [{"template": {"name": "pair", "conditions": "a && b", "log": {}}}]
    )
    old, new = (make_manifest({**head, "metadata": {"name": "s", "generation": each}}) for each in (1, 2))
    assert _compared(spark, old, new, [("a", 1), ("b", 1), ("a", 1), ("b", 1)]) == [("pair", 2, 0)]


def test_what_a_filter_leaves_out_changes_nothing_else(spark: SparkSession) -> None:
    few = {"a": {"filters": {"data": [{"path": "n", "type": "number", "comparator": "<", "value": ["5"]}]}}}
    old, new = (manifest({"pair": {"conditions": "a && b"}}, each) for each in ({}, few))
    events = [("a", 9), ("a", 1), ("b", 1), ("a", 2), ("b", 1)]  # the first is superseded, or not even there
    assert _compared(spark, old, new, events) == [("pair", 2, 0)]


def test_what_is_exported_is_in_the_order_in_which_a_test_sees_it(spark: SparkSession) -> None:
    """One event completes two keys, one for each dependency that it satisfies."""
    by = {"a": "data.x", "b": "data.y", "c": "data.k"}
    made_for = manifest(
        {"t": {"conditions": "(a && c) || (b && c)", "correlate": {"by": by}, "ttl": "1h"}}, {"b": {"eventName": "a"}}
    )
    made = [
        Event.new("shop", "c", {"k": "z"}, id="c1"),
        Event.new("shop", "c", {"k": "b"}, id="c2"),
        Event.new("shop", "a", {"x": "z", "y": "b"}, id="a1"),
    ]
    records = [event_record(each, n, 1000 * n) for n, each in enumerate(made)]
    expected = [str(Firing(each.trigger, each.events)) for each in explained(made_for, records)]
    test = Backtest.of_events(deputy(made_for), table(spark, records))
    exported = [str(each) for each in test.expected()]
    test.close()
    assert len(expected) == 2
    assert exported == expected
