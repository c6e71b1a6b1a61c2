"""From evidence to the most likely answer, without a broker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from eventbus.events import Event
from eventbus.names import Stage
from sensors.conditions import parse
from sensors.deadletters import PAUSED
from sensors.diagnosis import FAR_BEHIND_MS, FAR_BEHIND_RECORDS, Diagnosis, diagnose
from sensors.evidence import (
    Evidence,
    Firing,
    HeldEvent,
    Invoked,
    Recent,
    RecentEvents,
    StageProgress,
    Tally,
    TriggerEvidence,
    TriggerState,
)
from sensors.explain import Explainer
from sensors.filters.gate import compile_gate
from sensors.filters.spec import Filters
from sensors.plan import DependencyPlan, SensorPlan, TriggerPlan
from sensors.scripts import ScriptHost
from sensors.spec.joins import JoinSpec
from tests.core.builders import NAME, OWNER

NOW = 1_700_000_000_000
UP_TO_DATE = [StageProgress(stage, 1, 0) for stage in Stage]
FIRED = Firing("action-1", NOW - 5000, {"a": "a1", "b": "b1"}, invoked=Invoked("succeeded", 1, NOW))


def make_plan(conditions: str = "a && b", rules: Mapping[str, Any] | None = None) -> SensorPlan:
    """The trigger `t`; `b` must not be heavy."""
    light = Filters.model_validate({"data": [{"path": "weight", "type": "number", "comparator": "<", "value": ["30"]}]})
    condition = parse(conditions, "ab")
    trigger = TriggerPlan(
        "t", condition, JoinSpec.model_validate({"name": "t", **(rules or {})}).rules(condition.names)
    )
    gate = compile_gate(light, "and", None, ScriptHost())
    dependencies = [DependencyPlan("a", "shop", "paid"), DependencyPlan("b", "store", "packed", gate)]
    return SensorPlan.of(NAME, OWNER, dependencies, [trigger])


def recent(*events: Event, plan: SensorPlan | None = None, key: str | None = None) -> Recent:
    """What these events did, one second after the other."""
    plan = plan or make_plan()
    explainer = Explainer(plan)
    counted = RecentEvents(plan, ["t"], key)
    for number, event in enumerate(events):
        counted.note(event, explainer.feed(event, NOW + 1000 * number))
    return counted.finish()["t"]


def paid(**data: Any) -> Event:
    return Event.new("shop", "paid", data, id="paid")


def packed(**data: Any) -> Event:
    return Event.new("store", "packed", {"weight": 1, **data}, id="packed")


def holding(dependency: str = "a", missing: str = "b", key: str = "") -> TriggerState:
    held = HeldEvent(dependency, "shop", "held", NOW - 120_000, 0, 0)
    return TriggerState("t", "a && b", [held], [[missing]], key)


def told(seen: Recent | None = None, **facts: Any) -> Diagnosis:
    """The diagnosis of the trigger `t`, of which all is well but for these facts."""
    trigger = TriggerEvidence(
        trigger="t",
        condition="a && b",
        asks_for={"a": ("shop", "paid"), "b": ("store", "packed")},
        joins=True,
        held=[],
        recent=seen or Recent(),
        last=None,
        waiting=Tally(),
        waiting_since=None,
        dead_letters={},
    )
    about_trigger = {name: value for name, value in facts.items() if name in TriggerEvidence.__struct_fields__}
    evidence = Evidence(
        sensor="ns/bus/s",
        now=NOW,
        stages=UP_TO_DATE,
        other_generation=None,
        events=7,
        since=NOW - 60_000,
        unreadable=Tally(),
        triggers=[msgspec.structs.replace(trigger, **about_trigger)],
        dead_letters={},
    )
    about_sensor = {name: value for name, value in facts.items() if name not in about_trigger}
    [diagnosis] = diagnose(msgspec.structs.replace(evidence, **about_sensor))
    return diagnosis


def stages(**changed: StageProgress) -> list[StageProgress]:
    return [changed.get(stage, StageProgress(stage, 1, 0)) for stage in Stage]


# --- the sensor -----------------------------------------------------------------------------------------------------


def test_a_sensor_that_does_not_run_answers_everything() -> None:
    answer = told(stages=[StageProgress(stage, 0, 3, NOW) for stage in Stage], held=[holding()], last=FIRED).answer
    assert (answer.code, answer.text) == ("not-running", "The sensor does not run: there is no replica.")
    partly = told(stages=stages(join=StageProgress("join", 0, 0))).answer
    assert partly.text == "The sensor does not run: there is no replica that does join."


@pytest.mark.parametrize(
    ("progress", "lags"),
    [
        (StageProgress("join", 1, 1, NOW - FAR_BEHIND_MS - 1), True),
        (StageProgress("join", 1, FAR_BEHIND_RECORDS + 1, NOW), True),
        (StageProgress("join", 1, FAR_BEHIND_RECORDS, NOW - FAR_BEHIND_MS), False),
        (StageProgress("match", 1, 5000, NOW - 600_000), True),
        (StageProgress("invoke", 1, 5000, NOW - 600_000), False),  # that is told by the actions that wait
    ],
)
def test_a_stage_that_is_far_behind_is_the_answer(progress: StageProgress, lags: bool) -> None:
    diagnosis = told(stages=stages(**{progress.stage: progress}), held=[holding()])
    assert (diagnosis.answer.code == "lagging") is lags


def test_a_trigger_that_joins_nothing_does_not_care_about_the_join() -> None:
    late = stages(join=StageProgress("join", 0, 5000, 0))
    diagnosis = told(joins=False, stages=late)
    assert diagnosis.answer.code == "absent"
    assert not any("join" in finding.text for finding in diagnosis.findings)


def test_a_pause_is_the_answer_whatever_is_held() -> None:
    letters = {PAUSED: Tally(2, "0:7", "")}
    diagnosis = told(paused_since=NOW - 90_000, held=[holding()], dead_letters=letters)
    assert diagnosis.answer.code == "paused"
    assert diagnosis.answer.text == "It is paused since 1 min. Kept for `eventbus resume`: 2 actions."
    assert "paused since 1 min" in [finding.text for finding in diagnosis.findings]


def test_another_version_than_the_one_asked_about_is_the_answer() -> None:
    diagnosis = told(other_generation=3, held=[holding()])
    assert diagnosis.answer.code == "other-version"
    assert "generation 3" in diagnosis.answer.text


# --- what is waited for ---------------------------------------------------------------------------------------------


def test_what_never_came_is_absent() -> None:
    answer = told(recent(paid()), held=[holding()]).answer
    assert answer.code == "absent"
    assert answer.text == ("It holds a since 2 min and waits for b: there is no store/packed among the last 7 events.")


def test_a_filter_is_named_with_an_example() -> None:
    diagnosis = told(recent(paid(), packed(weight=31), packed(weight=32)), held=[holding()])
    assert diagnosis.answer.code == "filtered"
    [finding] = [each.text for each in diagnosis.findings if "filtered" in each.text]
    assert finding.startswith("b: 2 filtered by data, such as packed: ")
    assert "weight" in finding


@pytest.mark.parametrize(("source", "name"), [("store", "Packed"), ("store", "packd"), ("stores", "packed")])
def test_names_that_look_alike_are_near_misses(source: str, name: str) -> None:
    seen = recent(paid(), *(Event.new(source, name, id="like") for _ in range(3)))
    answer = told(seen, held=[holding()]).answer
    assert answer.code == "near-miss"
    assert f"3 events came as {source}/{name}, and b asks for store/packed" in answer.text


def test_other_names_of_the_right_source_are_told_but_are_no_answer() -> None:
    diagnosis = told(recent(Event.new("store", "opened", id="o"), Event.new("bank", "closed")), held=[holding()])
    assert diagnosis.answer.code == "absent"
    assert [each.text for each in diagnosis.findings if "nobody asks for" in each.text] == [
        "1 event store/opened that nobody asks for, such as o"
    ]


def test_a_copy_for_another_sensor_is_not_counted() -> None:
    copy = Event.new("store", "packed", {"weight": 1}, replayfor="ns/bus/other", replayof="0:1")
    assert recent(copy).matched == {}


BY_ORDER = {"correlate": {"by": "data.order"}, "within": "1h"}


def test_events_without_a_key_are_the_answer() -> None:
    plan = make_plan(rules=BY_ORDER)
    answer = told(recent(paid(order=1), packed(), plan=plan), held=[holding(key="1")]).answer
    assert answer.code == "no-key"
    assert answer.text.startswith(
        "With the key 1 it holds a since 2 min and waits for b: 1 event without a correlation"
    )


def test_without_a_key_and_ignored_is_the_same_answer() -> None:
    plan = make_plan(rules=BY_ORDER | {"correlate": {"by": "data.order", "onMissing": "ignore"}})
    assert told(recent(paid(order=1), packed(), plan=plan), held=[holding(key="1")]).answer.code == "no-key"


@pytest.mark.parametrize("asked", ["1", None])
def test_events_with_other_keys_are_the_answer(asked: str | None) -> None:
    seen = recent(paid(order=1), packed(order=2), plan=make_plan(rules=BY_ORDER), key=asked)
    assert list(seen.other_keys) == ([] if asked is None else ["b"])
    answer = told(seen, held=[holding(key="1")]).answer
    assert answer.code == "other-key"
    assert answer.text.endswith("b came last with another key, 2 (packed).")


def test_the_slot_that_waits_longest_is_told() -> None:
    young = msgspec.structs.replace(holding(key="2"), held=[HeldEvent("a", "shop", "x", NOW, 0, 0)])
    assert told(held=[young, holding(key="1")]).answer.text.startswith("With the key 1 ")


def test_counts_that_are_not_reached_are_told_as_such() -> None:
    answer = told(recent(paid()), held=[holding(missing="b (1 of 3)")]).answer
    assert "waits for b (1 of 3): " in answer.text


# --- what fired -----------------------------------------------------------------------------------------------------


def test_an_action_that_failed_goes_before_what_is_held() -> None:
    failed = msgspec.structs.replace(FIRED, invoked=Invoked("dead-lettered", 3, NOW, "503", "unavailable"))
    answer = told(last=failed, held=[holding()]).answer
    assert answer.code == "action-failed"
    assert answer.text.endswith("attempt 3 dead-lettered, 503, unavailable.")


def test_actions_that_wait_are_the_answer() -> None:
    answer = told(last=FIRED, waiting=Tally(4, "action-9"), waiting_since=NOW - 3_600_000).answer
    assert answer.code == "not-invoked"
    assert answer.text == "It has fired, and 4 actions are not finished, the oldest since 1 h 0 min: action-9."


def test_a_trigger_that_fired_says_so() -> None:
    answer = told(recent(paid(), packed()), last=FIRED).answer
    assert (answer.code, answer.text) == (
        "fired",
        "It fired 5 s ago, and nothing has come since: attempt 1 succeeded.",
    )
    assert told(recent(paid(), packed())).answer.code == "unknown"


@pytest.mark.parametrize(
    ("rules", "events", "code"),
    [
        ({"onceWithin": "1h"}, [paid(), packed(), paid(), packed()], "suppressed"),
        ({"dedupe": {"by": "id", "within": "1h"}}, [paid(), packed(), paid()], "duplicate"),
        ({"within": "1s"}, [paid(), paid(), packed(weight=99), packed()], "expired"),
    ],
)
def test_events_that_were_let_go_are_the_answer(rules: dict[str, Any], events: list[Event], code: str) -> None:
    answer = told(recent(*events, plan=make_plan(rules=rules)), last=FIRED).answer
    assert answer.code == code


def test_what_was_let_go_before_a_firing_is_no_answer() -> None:
    seen = recent(paid(), paid(), packed(weight=99), packed(), paid(), plan=make_plan(rules={"within": "1s"}))
    assert seen.let_go["expired"].count == 1
    assert told(seen, last=FIRED).answer.code == "fired"


def test_what_is_missing_because_it_expired_is_told() -> None:
    seen = recent(paid(), paid(), packed(weight=99), packed(), plan=make_plan(rules={"within": "1s"}))
    answer = told(seen, held=[holding("b", missing="a")]).answer
    assert answer.code == "expired"
    assert answer.text.endswith("waits for a: paid got too old to be joined with what came later.")


def test_dead_letters_are_told_by_reason() -> None:
    letters = {"action-failed": Tally(2, "0:7", "no answer")}
    diagnosis = told(dead_letters=letters)
    assert [each.text for each in diagnosis.findings if each.about == "dead"] == [
        "2 dead letters action-failed, such as 0:7: no answer"
    ]


def test_findings_come_in_the_order_in_which_one_would_look() -> None:
    diagnosis = told(recent(paid()), held=[holding()], last=FIRED, dead_letters={"expired": Tally(1, "0:1", "x")})
    assert list(dict.fromkeys(each.about for each in diagnosis.findings)) == [
        "sensor",
        "holds",
        "events",
        "fired",
        "dead",
    ]


def test_many_near_misses_are_bounded() -> None:
    seen = recent(*(Event.new("store", f"{number:04}") for number in range(500)), Event.new("store", "packt"))
    assert len(seen.near) == 20
    assert seen.near[0].meant == "b"
