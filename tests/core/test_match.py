"""The match stage: who gets an event, under which key, and at what cost."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from eventbus.events import Event
from eventbus.formats import (
    ACTION_HEADER,
    VERSION,
    ActionFact,
    Source,
    Trace,
    UsedEvent,
    action_fact,
    dead_letter,
    encode_fact,
    trigger_fact,
)
from eventbus.hashing import action_id
from eventbus.names import Kind
from sensors.filters.gate import compile_gate
from sensors.filters.spec import Filters
from sensors.match import Matcher
from sensors.plan import SensorPlan
from sensors.scripts import ScriptHost
from tests.core.builders import NAME, TOPOLOGY, as_read, event_record, make_plan

PARENT = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"


def matcher(**conditions: str) -> Matcher:
    return Matcher(make_plan(conditions), TOPOLOGY, "0")


def test_an_event_goes_to_every_trigger_that_wants_it_once() -> None:
    outputs = matcher(join="a && b", direct="a || c", other="c && d").outputs(event_record(Event.new("shop", "a")))
    assert [output.topic for output in outputs] == [NAME.topic(Kind.TRIGGER), NAME.topic(Kind.ACTION)]


def test_one_record_lists_all_dependencies_that_the_event_satisfies() -> None:
    plan = make_plan({"t": "a && b"})
    same = msgspec.structs.replace(plan.dependencies[1], event_name="a")
    plan = SensorPlan.of(plan.name, plan.owner, [plan.dependencies[0], same], plan.triggers.values())
    [output] = Matcher(plan, TOPOLOGY, "0").outputs(event_record(Event.new("shop", "a")))
    assert trigger_fact(as_read(output, 0)).dependencies == ("a", "b")


def test_an_alternative_that_needs_two_events_makes_the_whole_trigger_join() -> None:
    [output] = matcher(t="a || (b && c)").outputs(event_record(Event.new("shop", "a")))
    assert output.topic == NAME.topic(Kind.TRIGGER)


@pytest.mark.parametrize(
    ("attributes", "matched"),
    [
        ({"source": "shop", "type": "x", "subject": "a"}, True),
        ({"source": "shop", "type": "a"}, True),
        ({"source": "shop", "type": "a", "subject": "elsewhere"}, True),
        ({"source": "shop", "type": "x", "subject": "elsewhere"}, False),
        ({"source": "other", "type": "a", "subject": "a"}, False),
    ],
)
def test_an_event_is_found_by_its_source_and_its_subject_or_type(attributes: dict[str, str], matched: bool) -> None:
    event = Event({"specversion": "1.0", "id": "1", **attributes})
    assert bool(matcher(t="a").outputs(event_record(event))) is matched


def test_actions_of_one_key_share_a_partition_and_those_without_a_key_spread() -> None:
    match = matcher(t="a")
    keyed = [match.outputs(event_record(Event.new("shop", "a", partitionkey="k"), offset=n))[0] for n in range(20)]
    spread = [match.outputs(event_record(Event.new("shop", "a"), offset=n))[0] for n in range(20)]
    assert {(output.key, output.partition) for output in keyed} == {(b"t\0k", keyed[0].partition)}
    assert {output.key for output in spread} == {b"t\0"}
    assert {output.partition for output in spread} == set(range(TOPOLOGY.action_partitions))


@pytest.mark.parametrize("trace", [None, Trace(PARENT, "k=v")])
@pytest.mark.parametrize("name", ["t", "0", 'quoted "0,0,0]" ü'])
def test_a_direct_action_says_what_the_general_encoder_would(name: str, trace: Trace | None) -> None:
    event = Event.new("shop", "a", id="e1", **({"traceparent": PARENT, "tracestate": "k=v"} if trace else {}))
    record = event_record(event, offset=7)
    [output] = Matcher(make_plan({name: "a || b"}), TOPOLOGY, name).outputs(record)
    [reference] = [(record.topic, record.partition, 7, "shop", "e1")]
    assert dict(output.headers)[ACTION_HEADER] == encode_fact(
        ActionFact(
            version=VERSION,
            id=action_id(str(NAME), name, [reference]),
            trigger=name,
            events=(UsedEvent(("a",), Source(record.partition, 7, record.timestamp)),),
            generation=make_plan({"t": "a"}).owner.generation,
            replica=name,
            trace=trace,
        )
    )


def test_the_key_of_a_foreign_producers_record_counts() -> None:
    record = msgspec.structs.replace(event_record(Event.new("shop", "a")), key=b"theirs")
    assert matcher(t="a").outputs(record)[0].key == b"t\0theirs"


def test_the_trace_headers_of_kafka_instrumentation_are_carried_along() -> None:
    record = event_record(Event.new("shop", "a"))
    traced = msgspec.structs.replace(
        record, headers=[*record.headers, ("traceparent", PARENT.encode()), ("tracestate", b"x=1")]
    )
    assert action_fact(as_read(matcher(t="a").outputs(traced)[0], 0)).trace == Trace(PARENT, "x=1")


def test_a_record_that_is_no_event_is_dead_lettered_whole() -> None:
    record = msgspec.structs.replace(event_record(Event.new("shop", "a")), headers=[("x", None)], value=b"\xff")
    [output] = matcher(t="a").outputs(record)
    assert (output.value, output.headers[0]) == (b"\xff", ("x", None))
    assert dead_letter(as_read(output, 0)).reason == "invalid-event"


def calls_made(function: Callable[[], Any]) -> int:
    """How many functions are called, which does not depend on the machine's mood."""
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        function()
    finally:
        sys.setprofile(None)
    return calls


def test_an_event_that_concerns_nobody_costs_the_same_with_1_or_1000_triggers() -> None:
    record = event_record(Event.new("elsewhere", "nothing"))
    small = Matcher(make_plan({"t": "a && b"}), TOPOLOGY, "0")
    large = Matcher(make_plan({f"t{number}": "a && b" for number in range(1000)}), TOPOLOGY, "0")
    small.outputs(record)
    assert calls_made(lambda: small.outputs(record)) == calls_made(lambda: large.outputs(record))


@pytest.mark.parametrize("meant_for", ["ns/bus/sensor", "ns/bus/other", "sensor"])
def test_a_replayed_copy_is_for_the_sensor_that_it_names_only(meant_for: str) -> None:
    matched = meant_for == str(NAME)
    copy = Event.new("shop", "a", replayfor=meant_for, replayof="0:17")
    match = matcher(join="a && b", direct="a")
    assert [bool(match.outputs(event_record(copy))), match.asked_for_by(copy) != []] == [matched, matched]


def test_who_asks_for_an_event_is_told_by_source_and_name() -> None:
    match = matcher(join="a && b", direct="a || c")
    asked = [match.asked_for_by(Event.new("shop", name)) for name in "abd"]
    assert asked == [["a"], ["b"], []]
    assert match.asked_for_by(Event.new("elsewhere", "a")) == []


def test_a_filter_on_the_context_can_tell_copies_from_originals() -> None:
    plan = make_plan({"t": "a"})
    gate = compile_gate(Filters.model_validate({"context": {"replayof": "0:17"}}), "and", None, ScriptHost())
    picky = [msgspec.structs.replace(plan.dependencies[0], gate=gate)]
    match = Matcher(SensorPlan.of(plan.name, plan.owner, picky, plan.triggers.values()), TOPOLOGY, "0")
    assert match.outputs(event_record(Event.new("shop", "a"))) == []
    copy = Event.new("shop", "a", replayfor=str(NAME), replayof="0:17")
    assert len(match.outputs(event_record(copy))) == 1
