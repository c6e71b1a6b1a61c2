"""Stateful triggers: by key, within a window, by count, once, without repeats, reset by the calendar."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventbus.formats import FLUSH_HEADER
from eventbus.names import Kind
from eventbus.ports import Record
from eventbus.stateformats import FiredKey, HeldKey, SeenKey, decode_state_key
from sensors.deadletters import EXPIRED_EVENT, FLUSHED, INVALID_RECORD, NO_KEY, SPEC_CHANGED
from sensors.plan import DependencyPlan, SensorPlan
from tests.core.builders import EXAMPLES, NAME
from tests.core.keyed import NAMES, Desk, stateful_plan

BY_ORDER: dict[str, Any] = {"correlate": {"by": "data.order"}, "within": "10m"}


def desk(condition: str = "a && b", **rules: Any) -> Desk:
    return Desk(stateful_plan({"t": condition}, rules))


# --- correlate ------------------------------------------------------------------------------------------------------


def test_only_events_that_agree_on_the_value_are_joined() -> None:
    t = desk(**BY_ORDER)
    assert t.arrive("a", 0, order=1) == []
    assert t.arrive("b", 1, order=2) == []
    assert t.arrive("a", 2, order="2") == ["2: a2 b1"], "a number and its text are the same value"
    assert t.arrive("b", 3, order=1.0) == ["1: a0 b3"]
    assert t.held() == []
    assert not t.state
    t.check()


def test_the_latest_event_of_a_key_wins_and_other_keys_do_not_mind() -> None:
    t = desk(**BY_ORDER)
    t.arrive("a", 0, order=1, id="old")
    t.arrive("a", 1, order=1, id="new")
    t.arrive("a", 2, order=2, id="other")
    assert t.let_go == ["old superseded"]
    assert t.arrive("b", 3, order=1, id="b") == ["1: new b"]
    assert t.held() == ["other"]


def test_each_dependency_may_have_the_value_somewhere_else() -> None:
    t = desk(correlate={"by": {"a": "data.order", "b": "$.shipment.order"}}, ttl="1h")
    t.arrive("a", 0, order="x")
    t.arrive("b", 1, shipment={"order": "y"})
    assert t.arrive("b", 2, shipment={"order": "x"}) == ["x: a0 b2"]
    t.check()


def test_one_event_may_have_another_key_for_each_dependency_that_it_satisfies() -> None:
    plan = stateful_plan({"t": "a && b"}, {"correlate": {"by": {"a": "data.left", "b": "data.right"}}, "ttl": "1h"})
    both = [DependencyPlan(name, "shop", "a") for name in "ab"]
    t = Desk(SensorPlan.of(plan.name, plan.owner, both, plan.triggers.values()))
    t.arrive("a", 0, left=1, right=2)
    assert t.arrive("a", 1, left=2, right=3) == ["2: a1 a0"]
    t.check()


def test_an_event_without_the_value_is_a_dead_letter_unless_it_is_to_be_ignored() -> None:
    strict = desk(**BY_ORDER)
    lax = desk(correlate={"by": "data.order", "onMissing": "ignore"}, ttl="1h")
    for t, reasons in ((strict, [NO_KEY] * 4), (lax, [])):
        t.arrive("a", 0)
        t.arrive("a", 0, order=None)
        t.arrive("a", 0, order="")
        t.arrive("a", 0, order={"id": 1})
        assert t.reasons() == reasons
        assert t.held() == []
        t.check()


def test_what_a_key_holds_survives_a_restart() -> None:
    t = desk(**BY_ORDER)
    for order in range(5):
        t.arrive("a", order, order=order)
    t.restart()
    assert t.arrive("b", 9, order=3) == ["3: a3 b5"]
    assert len(t.held()) == 4
    t.check()


# --- within, ttl ----------------------------------------------------------------------------------------------------


def test_events_that_are_too_far_apart_are_not_joined() -> None:
    t = desk(within="10s")
    t.arrive("a", 0, id="a")
    assert t.arrive("b", 10.001, id="b") == []
    assert t.let_go == ["a expired"]
    assert t.arrive("a", 20.001, id="a2") == ["a2 b"], "just within"
    t.check()


def test_of_two_events_the_older_one_goes_even_if_it_arrives_last() -> None:
    t = desk(within="10s")
    t.arrive("a", 100, id="a")
    assert t.arrive("b", 80, id="late") == []
    assert t.let_go == ["late expired"]
    assert t.held() == ["a"]
    t.check()


def test_newer_is_what_was_appended_later_whoever_arrives_first() -> None:
    t = desk(within="10s")
    t.arrive("a", 5, id="newer")
    t.arrive("a", 3, id="older")
    assert t.let_go == ["older superseded"]
    assert t.arrive("b", 6, id="b") == ["newer b"]


def test_a_partition_that_lags_behind_does_not_lose_its_pairs() -> None:
    """Its events are old by the partition's clock, but not by each other."""
    t = desk(**BY_ORDER)
    t.arrive("a", 10_000, order="other")
    t.arrive("a", 100, order="lagging", id="a")
    assert t.arrive("b", 101, order="lagging", id="b") == ["lagging: a b"]
    t.check()


def test_what_nobody_visits_expires_by_the_clock_of_the_partition() -> None:
    t = desk(correlate={"by": "data.order"}, within="10s", ttl="30s", onExpire="deadLetter")
    t.arrive("a", 0, order=1, id="forgotten")
    t.arrive("a", 29, order=2)
    assert t.let_go == []
    t.arrive("a", 31, order=3)
    assert t.let_go == ["forgotten expired"]
    assert t.reasons() == [EXPIRED_EVENT]
    assert sorted(t.held()) == ["a1", "a2"]
    t.check()


def test_events_are_held_for_twice_the_window_by_default() -> None:
    assert stateful_plan({"t": "a && b"}, {"within": "10s"}).triggers["t"].rules.ttl == 20_000  # type: ignore[union-attr]


def test_a_clock_that_jumps_lets_go_of_everything_batch_by_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sensors.keyedslots.SWEEP", 4)
    t = desk(**BY_ORDER)
    for order in range(10):
        t.arrive("a", 0, order=order)
    left = []
    for _ in range(4):
        t.arrive("b", 36_000, order="x", id="b")
        left.append(len(t.held()))
    assert left == [7, 3, 1, 1], "four of ten slots with every batch; then only b is left"


# --- count ----------------------------------------------------------------------------------------------------------


def test_a_dependency_may_need_several_events_and_the_action_gets_all() -> None:
    t = desk(count={"a": 3})
    for number in range(3):
        assert t.arrive("a", number) == []
    assert t.arrive("b", 9) == ["a0 a1 a2 b3"]
    assert not t.state
    t.check()


def test_of_more_events_than_needed_the_newest_stay() -> None:
    t = desk(count={"a": 2})
    for number in range(4):
        t.arrive("a", number)
    t.restart()
    assert t.let_go == ["a0 superseded", "a1 superseded"]
    assert t.arrive("b", 9) == ["a2 a3 b4"]


def test_one_dependency_alone_can_be_counted() -> None:
    t = desk("a", count={"a": 2})
    assert [t.arrive("a", second) for second in range(4)] == [[], ["a0 a1"], [], ["a2 a3"]]


# --- onceWithin -----------------------------------------------------------------------------------------------------


def test_pain_1765_it_fires_once_within_the_span_and_again_after_it() -> None:
    """There is no way to fire once for a burst of events."""
    t = desk("a", onceWithin="60s")
    assert t.arrive("a", 0) == ["a0"]
    t.restart()
    assert t.arrive("a", 59.999) == []
    assert t.arrive("a", 60) == ["a2"]
    assert t.let_go == ["a1 suppressed"]
    t.check()


def test_the_span_counts_for_each_key() -> None:
    t = desk("a", onceWithin="60s", **BY_ORDER)
    assert [t.arrive("a", second, order=second % 2) for second in range(4)] == [["0: a0"], ["1: a1"], [], []]


def test_events_from_long_before_a_firing_may_still_fire() -> None:
    """A partition lags behind: an hour before the firing is not within a minute of it."""
    t = desk("a", onceWithin="60s")
    t.arrive("a", 7200)
    assert t.arrive("a", 3600) == ["a1"]
    assert t.arrive("a", 3610) == []
    assert t.arrive("a", 7210) == [], "the first one is remembered"
    t.check()


# --- dedupe ---------------------------------------------------------------------------------------------------------


def test_problem_10_the_same_event_counts_once() -> None:
    """Kafka sensors of argo-events know no event ids: what is delivered again fires again."""
    t = desk("a", dedupe={"within": "10m"})
    assert t.arrive("a", 0, id="x") == ["x"]
    t.restart()
    assert t.arrive("a", 599, id="x") == []
    assert t.arrive("a", 600.001, id="x") == ["x"], "after ten minutes it is another event"
    assert t.let_go == ["x duplicate"]
    t.check()


def test_a_repeat_does_not_leave_a_stale_half_behind() -> None:
    t = desk(dedupe={"within": "10m"})
    t.arrive("a", 0, id="x")
    assert t.arrive("b", 1, id="y") == ["x y"]
    t.arrive("a", 2, id="x")
    assert t.held() == []


def test_what_must_not_repeat_may_be_a_value_of_the_data() -> None:
    t = desk("a", dedupe={"by": "data.delivery", "within": "10m"})
    assert t.arrive("a", 0, delivery=7) == ["a0"]
    assert t.arrive("a", 1, delivery=7) == []
    assert t.arrive("a", 2) == ["a2"], "without a value it cannot be a repeat"
    assert t.arrive("a", 3) == ["a3"]


def test_the_same_value_of_another_dependency_is_no_repeat() -> None:
    t = desk(dedupe={"by": "data.order", "within": "10m"}, **BY_ORDER)
    t.arrive("a", 0, order=1)
    assert t.arrive("b", 1, order=1) == ["1: a0 b1"]
    t.check()


def test_one_event_does_not_have_to_forget_everything_that_was_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sensors.keyed._FORGOTTEN_AT_ONCE", 10)
    monkeypatch.setattr("sensors.keyedslots.SWEEP", 1)
    t = desk("a", dedupe={"within": "10s"})
    for number in range(100):
        t.publish("a", 0, id=f"e{number}")
    t.work()
    before = len(t.state)
    assert t.arrive("a", 100, id="e50") == ["e50"], "it is long ago, forgotten or not"
    assert before - len(t.state) <= 20
    t.restart()
    for _ in range(10):
        t.arrive("b", 100)  # of no trigger
        t.arrive("a", 100, id="e50")
    assert len(t.state) == 1
    t.check()


# --- conditionsReset ------------------------------------------------------------------------------------------------


def test_problem_14_events_on_both_sides_of_a_reset_are_not_joined() -> None:
    """Each replica resets by its own clock, later, and never the event that arrives."""
    t = desk(conditionsReset=[{"byTime": {"cron": "0 * * * *"}}])
    t.arrive("a", 3599, id="before")
    assert t.arrive("b", 3600, id="b") == []
    assert t.let_go == ["before reset"]
    assert t.arrive("a", 7199, id="a") == ["a b"]
    t.check()


def test_pain_1543_a_reset_is_not_missed_while_the_sensor_is_down() -> None:
    """A reset that was due while the sensor did not run never happened."""
    t = desk(conditionsReset=[{"byTime": {"cron": "0 * * * *"}}])
    t.arrive("a", 3000)
    t.publish("b", 4000)
    t.restart()
    t.work()
    assert t.fired() == []
    assert t.let_go == ["a0 reset"]


def test_a_reset_counts_in_its_own_time_zone() -> None:
    t = desk(conditionsReset=[{"byTime": {"cron": "0 0 * * *", "timezone": "Asia/Tokyo"}}])
    t.arrive("a", 14 * 3600)  # 23:00 in Tokyo
    assert t.arrive("b", 16 * 3600) == []
    assert t.arrive("a", 17 * 3600) == ["a2 b1"]


# --- what is kept ---------------------------------------------------------------------------------------------------


def test_what_comes_and_goes_within_a_batch_leaves_no_trace() -> None:
    t = desk(**BY_ORDER)
    for order in range(100):
        t.publish("a", order, order=order)
        t.publish("b", order, order=order)
    t.work()
    assert len(t.actions) == 100
    assert not t.state


def test_deadlines_of_slots_that_are_gone_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sensors.keyedslots._STALE_DEADLINES", 50)
    t = desk(**BY_ORDER)
    t.arrive("a", 0, order="patient")
    for order in range(500):
        t.arrive("a", 0, order=order)
        t.arrive("b", 0, order=order)
    assert len(t.join._keyed._deadlines) <= 51
    assert len(t.join._keyed._awaited) <= 51
    t.arrive("a", 2000, order="late", id="late")
    assert t.held() == ["late"], "the patient one has expired all the same"


def test_memories_are_forgotten_when_nobody_can_ask_for_them() -> None:
    t = desk("a", onceWithin="1s", dedupe={"within": "2s"}, **BY_ORDER)
    t.arrive("a", 0, order=1)
    kinds = [type(decode_state_key(record)) for record in t.state.values()]
    assert sorted(kinds, key=str) == [FiredKey, SeenKey]
    t.arrive("a", 3, order=2)
    keys = [decode_state_key(record) for record in t.state.values()]
    assert {key.key for key in keys if not isinstance(key, HeldKey)} == {"2"}  # type: ignore[union-attr]


# --- the spec changes -----------------------------------------------------------------------------------------------


def test_a_plain_trigger_becomes_a_stateful_one_and_back() -> None:
    plain, within = stateful_plan({"t": "a && b && c"}), stateful_plan({"t": "a && b && c"}, {"within": "10s"})
    t = Desk(plain)
    t.arrive("a", 0, id="a")
    t.restart(within)
    t.work()
    assert t.held() == ["a"]
    t.arrive("b", 5, id="b")
    t.restart(plain)
    t.work()
    assert sorted(t.held()) == ["a", "b"]
    assert t.arrive("c", 100, id="c") == ["a b c"]
    assert not t.state


def test_another_way_to_correlate_parks_what_is_held() -> None:
    t = desk(**BY_ORDER)
    t.arrive("a", 0, order=1, customer=2, id="held")
    t.publish("b", 1, order=1, customer=2, id="in-the-log")
    t.restart(stateful_plan({"t": "a && b"}, {"correlate": {"by": "data.customer"}, "within": "10m"}))
    t.work()
    assert t.reasons() == [SPEC_CHANGED] * 2
    assert t.held() == []
    assert not t.state


def test_another_window_keeps_what_is_held() -> None:
    t = desk(**BY_ORDER)
    t.arrive("a", 0, order=1)
    t.restart(stateful_plan({"t": "a && b"}, {**BY_ORDER, "within": "5m", "count": {"b": 2}}))
    t.arrive("b", 1, order=1)
    assert t.arrive("b", 2, order=1) == ["1: a0 b1 b2"]


def test_fewer_events_are_needed_than_are_held() -> None:
    t = desk("a && b", count={"a": 3})
    for number in range(3):
        t.arrive("a", number)
    t.restart(stateful_plan({"t": "a && b"}, {"count": {"a": 2}}))
    assert t.held() == ["a1", "a2"]
    t.restart(stateful_plan({"t": "a && b"}))
    assert t.held() == ["a2"]
    assert len(t.state) == 1
    assert t.arrive("b", 9) == ["a2 b3"]


# --- an operator wants something ------------------------------------------------------------------------------------


@pytest.mark.parametrize("rules", [{}, {"within": "1h"}])
def test_a_trigger_is_flushed(rules: dict[str, Any]) -> None:
    t = desk("a && b && c", **rules)
    t.arrive("a", 0, id="a")
    t.arrive("b", 1, id="b")
    t.restart()
    t.flush(fire=True)
    assert t.fired() == ["a b"]
    assert t.held() == []
    t.arrive("c", 2, id="c")
    t.flush(fire=False)
    assert t.reasons() == [FLUSHED]
    t.restart()
    assert t.held() == []
    assert not t.state
    t.flush(fire=True)
    assert t.fired() == ["a b"], "where nothing is held nothing fires"
    t.check()


def test_a_flush_that_cannot_be_read_is_a_dead_letter() -> None:
    t = desk()
    headers = [(FLUSH_HEADER, b"{")]
    t.log.append(Record(NAME.topic(Kind.TRIGGER), 0, 0, 0, None, None, headers))
    t.work()
    assert t.reasons() == [INVALID_RECORD]


def test_one_key_is_flushed_and_the_others_are_not() -> None:
    t = desk(**BY_ORDER)
    t.arrive("a", 0, order=1)
    t.arrive("a", 1, order=2)
    t.flush("1", fire=True)
    t.flush("unknown", fire=True)
    t.flush("2", fire=True, trigger="unknown")
    assert t.fired() == ["1: a0"]
    assert t.held() == ["a1"]
    t.check()


def test_a_firing_by_hand_counts_for_once_within() -> None:
    t = desk(onceWithin="60s")
    t.arrive("a", 0)
    t.flush(fire=True)
    t.arrive("a", 10)
    assert t.arrive("b", 11) == []
    t.check()


# --- whatever happens -----------------------------------------------------------------------------------------------

spans = st.sampled_from(["1s", "5s", "20s", "100s"])
rules = st.fixed_dictionaries(
    {"within": spans},
    optional={
        "correlate": st.just({"by": "data.key"}),
        "onceWithin": spans,
        "count": st.sampled_from([{}, {"a": 2}, {"a": 3}]),
        "dedupe": st.builds(lambda span: {"within": span}, spans),
        "onExpire": st.sampled_from(["discard", "deadLetter"]),
        "conditionsReset": st.just([{"byTime": {"cron": "* * * * *"}}]),
    },
)
events = st.tuples(st.sampled_from(NAMES), st.integers(0, 3), st.sampled_from([0, 1, 1, 4, 30, -20]), st.integers(0, 9))
deeds = st.tuples(st.integers(1, 9), st.sampled_from(["commit", "commit", "lost", "restart"]))


@settings(max_examples=EXAMPLES, deadline=None)
@given(rules, st.lists(events, max_size=60), st.lists(deeds, min_size=1, max_size=30))
def test_crashes_change_nothing(
    rules: dict[str, Any], events: list[tuple[str, int, int, int]], deeds: list[tuple[int, str]]
) -> None:
    """Against the reference of the audit, which never crashes and shares no code with this."""
    t = Desk(stateful_plan({"t": "a && b", "u": "a && b && c", "v": "a || (b && c)"}, rules))
    now = 0.0
    for name, key, seconds, number in events:
        now = max(0.0, now + seconds)
        t.publish(name, now, key=key, id=f"e{number}")
    for records, deed in deeds:
        t.work(records, lost=deed == "lost")
        if deed == "restart":
            t.restart()
    t.work()
    t.restart()
    t.check()
