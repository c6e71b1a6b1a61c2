"""Filters and transforms in the match stage, and what the stages behind it get."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventbus import Bus, Event
from eventbus.clock import ManualClock
from eventbus.cloudevents import from_json
from eventbus.formats import action_fact, dead_letter, trigger_fact
from eventbus.metadata import JoinCommit
from eventbus.names import Kind
from eventbus.ports import Output, Record
from eventbus.stateformats import HeldKey, decode_state_key
from sensors.actionrecords import events_by_dependency
from sensors.actions.base import ActionCall
from sensors.audit.actions import Letters, check_balance
from sensors.audit.reference import ENDLESS, Reference, Span
from sensors.explain import Explainer
from sensors.filters.candidate import Rejection, ScriptError
from sensors.filters.gate import Gate
from sensors.join import JoinPartition
from sensors.match import Matcher
from sensors.metrics import SensorMetrics
from sensors.plan import DependencyPlan, SensorPlan
from sensors.runner.stages import MatchStage
from sensors.sensor import Sensor
from sensors.spec.loader import load_text
from tests.core.builders import TOPOLOGY, as_read, event_record
from tests.filters.builders import plan_of
from tests.filters.test_paths import UNHURRIED

NUMBER = {"filters": {"data": [{"path": "n", "type": "number", "value": ["1"]}]}}
OTHER = {"filters": {"data": [{"path": "n", "type": "number", "value": ["2"]}]}}
ORDER = Event.new("shop", "order", {"n": 1}, id="1")


def _transformed(plan: SensorPlan, **transforms: bytes | str) -> SensorPlan:
    """With transforms that need no worker: bytes are the new data, text is the error."""

    def gate(result: bytes | str) -> Gate:
        def transform(_data: bytes) -> bytes:
            if isinstance(result, str):
                raise ScriptError(result)
            return result

        return Gate(transform, None, ("transform",))

    dependencies = [
        DependencyPlan(
            each.name,
            each.source,
            each.event_name,
            gate(transforms[each.name]) if each.name in transforms else each.gate,
        )
        for each in plan.dependencies
    ]
    return SensorPlan.of(plan.name, plan.owner, dependencies, plan.triggers.values())


def _outputs(plan: SensorPlan, event: Event = ORDER, offset: int = 0) -> list[Output]:
    return Matcher(plan, TOPOLOGY, "0").outputs(event_record(event, offset=offset))


def _documents(output: Output) -> dict[str, Any]:
    """The data of each dependency in an action."""
    fact = action_fact(as_read(output, 0))
    return {name: event.json() for name, [event] in events_by_dependency(fact, output.value).items()}


# --- filters --------------------------------------------------------------------------------------------------------


def test_only_dependencies_whose_filters_let_it_pass_get_an_event() -> None:
    plan = plan_of({"one": NUMBER, "two": OTHER, "any": {}}, {"t": "one && two && any"})
    [output] = _outputs(plan)
    assert trigger_fact(as_read(output, 0)).dependencies == ("any", "one")


def test_an_event_that_nobody_lets_pass_goes_nowhere() -> None:
    assert _outputs(plan_of({"two": OTHER}, {"direct": "two"})) == []


def test_a_direct_action_lists_the_dependencies_that_let_it_pass() -> None:
    [output] = _outputs(plan_of({"one": NUMBER, "two": OTHER, "any": {}}, {"t": "one || two || any"}))
    assert _documents(output) == {"any": {"n": 1}, "one": {"n": 1}}


def test_rejections_are_reported_by_dependency() -> None:
    told: list[tuple[str, Rejection]] = []
    plan = plan_of({"one": NUMBER, "two": OTHER, "unused": OTHER}, {"t": "one || two"})
    Matcher(plan, TOPOLOGY, "0", lambda *rejected: told.append(rejected)).outputs(event_record(ORDER))
    assert told == [("two", Rejection("data", "`n` is 1, not = 2"))]


def test_a_record_of_an_event_that_passes_is_the_same_as_without_filters() -> None:
    filtered, plain = plan_of({"one": NUMBER}, {"t": "one"}), plan_of({"one": {}}, {"t": "one"})
    assert _outputs(filtered) == _outputs(plain)
    filtered, plain = (plan_of({"one": more, "two": {}}, {"t": "one && two"}) for more in (NUMBER, {}))
    assert _outputs(filtered) == _outputs(plain)


# --- transforms -----------------------------------------------------------------------------------------------------


def test_the_transformed_event_is_what_the_action_gets() -> None:
    event = Event.new("shop", "order", {"n": 1}, id="1", region="eu")
    [output] = _outputs(_transformed(plan_of({"a": {}}, {"t": "a"}), a=b'{"m":2}'), event)
    fact = action_fact(as_read(output, 0))
    [[got]] = events_by_dependency(fact, output.value).values()
    assert (got.json(), got.id, got.attributes["region"]) == ({"m": 2}, "1", "eu")
    assert fact.id == action_fact(as_read(_outputs(plan_of({"a": {}}, {"t": "a"}), event)[0], 0)).id


def test_filters_see_what_the_transform_has_made() -> None:
    plan = plan_of(
        {
            "d": {
                "transform": {"jq": "{n: (.n + 1)}"},
                "filters": {"data": [{"path": "n", "type": "number", "value": ["2"]}], "script": "return event.n == 2"},
            }
        },
        {"t": "d"},
    )
    [output] = _outputs(plan)
    assert _documents(output) == {"d": {"n": 2}}
    assert _outputs(plan, Event.new("shop", "order", {"n": 2}, id="2")) == []


def test_an_event_without_data_has_nothing_to_transform() -> None:
    event = Event.new("shop", "order", id="1")
    [output] = _outputs(_transformed(plan_of({"a": {}}, {"t": "a"}), a=b'{"m":2}'), event)
    assert from_json(bytes(output.value or b"")[1:-1]) == event


def test_a_transform_that_fails_makes_one_dead_letter_and_the_others_go_on() -> None:
    plan = _transformed(plan_of({"a": {}, "b": {}, "c": {}}, {"t": "a || b || c"}), a="boom", b="bang")
    letter, action = _outputs(plan)
    fact = dead_letter(as_read(letter, 0))
    assert (fact.reason, fact.detail) == ("transform-failed", "dependency `a`: boom; dependency `b`: bang")
    assert (letter.topic, letter.value) == (plan.name.topic(Kind.DLQ), ORDER.data)
    assert _documents(action) == {"c": {"n": 1}}


def test_data_that_is_not_json_cannot_be_transformed() -> None:
    event = Event.new("shop", "order", b"x", id="1", datacontenttype="text/plain")
    [letter] = _outputs(_transformed(plan_of({"a": {}}, {"t": "a"}), a=b"{}"), event)
    assert dead_letter(as_read(letter, 0)).detail == "dependency `a`: the data is text/plain, not JSON"


def test_a_direct_trigger_fires_once_with_the_document_of_the_first_dependency() -> None:
    plan = _transformed(plan_of({"z": {}, "b": {}, "c": {}}, {"t": "z || c || b"}), b=b'{"b":1}', c=b'{"b":1}')
    [output] = _outputs(plan)
    assert _documents(output) == {"b": {"b": 1}, "c": {"b": 1}}


# --- different documents of one event in the join -------------------------------------------------------------------


def _join(plan: SensorPlan, commit: JoinCommit | None = None, **more: int) -> JoinPartition:
    return JoinPartition(plan, TOPOLOGY, 0, commit or JoinCommit(plan.owner, 0, 0, {}), "0", **more)


def _two_documents(condition: str) -> SensorPlan:
    return _transformed(plan_of({"a": {}, "b": {}, "c": NUMBER}, {"t": condition}), a=b'{"for":"a"}', b=b'{"for":"b"}')


def test_one_record_carries_the_documents_of_all_dependencies_and_the_action_has_them() -> None:
    plan = _two_documents("a && b")
    [record] = _outputs(plan)
    assert trigger_fact(as_read(record, 0)).dependencies == ("a", "b")
    step = _join(plan).step([as_read(record, 0)])
    assert step is not None
    [action] = step.outputs
    assert _documents(action) == {"a": {"for": "a"}, "b": {"for": "b"}}
    fact = action_fact(as_read(action, 0))
    assert [used.dependencies for used in fact.events] == [("a",), ("b",)]
    plain = _join(plan_of({"a": {}, "b": {}}, {"t": "a && b"})).step(
        [as_read(_outputs(plan_of({"a": {}, "b": {}}, {"t": "a && b"}))[0], 0)]
    )
    assert plain is not None
    assert fact.id == action_fact(as_read(plain.outputs[0], 0)).id, "two documents of an event are one event"


def test_an_event_arrives_once_however_many_documents_it_has() -> None:
    plan = _two_documents("a || (b && c)")
    held = _outputs(plan, Event.new("shop", "order", {"n": 1}, id="c"))
    join = _join(plan)
    records = [as_read(held[0], 0), as_read(_outputs(plan, ORDER, offset=1)[0], 1)]
    step = join.step(records)
    assert step is not None
    assert not list(join.held("t")), "nothing of the event is left to be used again"


@pytest.mark.parametrize("horizon", [0, 1000], ids=["spilled", "in the log"])
def test_held_documents_survive_a_restart(horizon: int) -> None:
    plan = _two_documents("a && b && c")
    not_for_c = Event.new("shop", "order", {"n": 2}, id="1")
    record = as_read(_outputs(plan, not_for_c)[0], 0)
    step = _join(plan, horizon_records=horizon).step([record, _unrelated(plan, 1)])
    assert step is not None
    spilled = [output for output in step.outputs if output.topic == plan.name.topic(Kind.STATE)]
    assert len(spilled) == (2 if horizon == 0 else 0)
    restored = _join(plan, step.commit, horizon_records=horizon)
    for output in spilled:
        key = decode_state_key(as_read(output, 0))
        assert isinstance(key, HeldKey)
        restored.load(key, as_read(output, 0))
    restored.loaded()
    if step.commit.marks:
        restored.step([record, _unrelated(plan, 1)])
    held = {name: from_json(event.document).json() for _, name, event in restored.held("t")}
    assert held == {"a": {"for": "a"}, "b": {"for": "b"}}


def _unrelated(plan: SensorPlan, offset: int) -> Record:
    """Something that makes the record before it old."""
    return Record(plan.name.topic(Kind.TRIGGER), 0, offset, 0, None, b"garbage", [])


# --- the audit ------------------------------------------------------------------------------------------------------


def test_the_audit_misses_nothing_that_was_filtered_and_everything_that_was_not() -> None:
    plan = plan_of({"one": NUMBER, "unused": {}}, {"t": "one"})
    reference = Reference({1: plan})
    filtered = Event.new("shop", "order", {"n": 2}, id="2")
    reference.match([event_record(ORDER), event_record(filtered, offset=1)], [Span(1, ENDLESS)])
    assert [match.source.offset for match in reference.matched] == [0]


def test_the_audit_wants_one_dead_letter_of_an_event_that_cannot_be_transformed() -> None:
    plan = _transformed(plan_of({"a": {}, "b": {}}, {"t": "a || b"}), a="boom", b="bang")
    reference = Reference({1: plan})
    reference.match([event_record(ORDER)], [Span(1, ENDLESS)])
    letters = [as_read(output, 0) for output in _outputs(plan)]
    for found, violations in ((letters, []), ([], ["lost"]), (letters * 2, ["duplicated"])):
        told = check_balance(reference, plan.name.event_topic, [], set(), Letters.of(found))
        assert [violation.breach for violation in told] == violations


# --- explain --------------------------------------------------------------------------------------------------------


def test_explain_tells_why_an_event_was_filtered() -> None:
    explainer = Explainer(plan_of({"one": NUMBER, "two": OTHER}, {"t": "one && two"}))
    explanation = explainer.feed(ORDER)
    assert explanation.matched == {"t": ["one"]}
    assert explanation.filtered == {"two": "data: `n` is 1, not = 2"}
    assert explanation.unmatched is None
    neither = explainer.feed(Event.new("shop", "order", {"n": 3}, id="3"))
    assert (neither.matched, set(neither.filtered), neither.unmatched) == ({}, {"one", "two"}, None)


def test_explain_tells_why_a_transform_failed() -> None:
    explanation = Explainer(_transformed(plan_of({"a": {}}, {"t": "a"}), a="boom")).feed(ORDER)
    assert (explanation.filtered, explanation.fired) == ({"a": "transform: boom"}, [])


@pytest.mark.parametrize(
    ("time", "passes"),
    [("2026-01-01T12:00:00Z", True), ("2026-01-01T12:00:00+05:00", False), ("nonsense", False), (None, False)],
)
def test_explain_takes_the_events_own_time_for_want_of_a_log(time: str | None, passes: bool) -> None:
    plan = plan_of({"noon": {"filters": {"time": {"start": "12:00:00", "stop": "13:00:00"}}}}, {"t": "noon"})
    event = Event.new("shop", "order", id="1", **({} if time is None else {"time": time}))
    assert bool(Explainer(plan).feed(event).fired) is passes


# --- on a bus -------------------------------------------------------------------------------------------------------

MANIFEST = """\
apiVersion: argoproj.io/v1alpha1
kind: Sensor
metadata: {name: filtered}
spec:
  dependencies:
    - name: large
      eventSourceName: shop
      eventName: order
      transform: {jq: '{n: .n, doubled: (.n * 2)}'}
      filters:
        data: [{path: n, type: number, comparator: '>', value: ['10']}]
        context: {region: eu}
  triggers:
    - template: {name: t, log: {}}
"""


def test_on_a_bus_filtered_events_are_counted_by_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVENTBUS_SLOT_DIR", str(tmp_path))
    sensor = Sensor.of(load_text(MANIFEST, "s.yaml")[0])
    calls: list[ActionCall] = []
    sensor.action("t")(calls.append)
    with Bus.memory() as bus, sensor.start(bus) as replica:
        replica.wait_ready()
        assert _filtered(replica.metrics.registry.collect()) == {"data": 0, "context": 0, "transform": 0}
        bus.publish(
            Event.new("shop", "order", {"n": 11}, region="eu"),
            Event.new("shop", "order", {"n": 11}, region="us"),
            Event.new("shop", "order", {"n": 5}, region="eu"),
            Event.new("shop", "order", {"n": 6}, region="eu"),
            Event.new("shop", "order", {"n": "x"}, region="eu"),
            Event.new("shop", "order", b"no json", region="eu"),
        )
        replica.settle()
        counted = _filtered(replica.metrics.registry.collect())
    assert [call.events["large"].json() for call in calls] == [{"n": 11, "doubled": 22}]
    assert counted == {"data": 3, "context": 1, "transform": 1}


def test_what_an_aborted_transaction_has_filtered_is_not_counted() -> None:
    plan = plan_of({"two": OTHER}, {"t": "two"})
    metrics = SensorMetrics(plan.name, ManualClock())
    stage = MatchStage(plan, TOPOLOGY, "0", metrics, from_latest=False)

    def counted() -> float | None:
        labels = {"sensor": str(plan.name), "dependency": "two", "reason": "data"}
        return metrics.registry.get_sample_value("eventbus_filtered_total", labels)

    list(stage.work([event_record(ORDER)]))
    stage.aborted()
    assert counted() is None
    for offset in (0, 1):
        list(stage.work([event_record(ORDER, offset=offset)]))
        stage.committed()
    assert counted() == 2


def _filtered(families: Any) -> Mapping[str, float]:
    return {
        sample.labels["reason"]: sample.value
        for family in families
        for sample in family.samples
        if sample.name == "eventbus_filtered_total"
        and (sample.labels["sensor"], sample.labels["dependency"]) == ("default/default/filtered", "large")
    }


# --- a property -----------------------------------------------------------------------------------------------------


@UNHURRIED
@given(st.lists(st.sampled_from(["one", "two", "all", "none"]), min_size=1, max_size=4), st.sampled_from(["&&", "||"]))
def test_an_event_makes_at_most_one_record_per_trigger(kinds: list[str], operator: str) -> None:
    wanted: dict[str, bytes | str] = {"one": b'{"n":1}', "two": b'{"n":2}', "none": "boom"}
    names = {f"d{number}": kind for number, kind in enumerate(kinds)}
    plan = plan_of({name: {} for name in names}, {"t": f" {operator} ".join(names)})
    plan = _transformed(plan, **{name: wanted[kind] for name, kind in names.items() if kind in wanted})
    outputs = _outputs(plan)
    records: list[Record] = [as_read(output, 0) for output in outputs if output.topic != plan.name.topic(Kind.DLQ)]
    assert len(records) == (0 if set(kinds) == {"none"} else 1)
