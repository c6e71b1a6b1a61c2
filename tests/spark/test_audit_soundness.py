"""What an audit must not miss, however odd, and what it must not take for a fault, however odd."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec
import pytest

from eventbus.formats import (
    ACTION_HEADER,
    FLUSH_HEADER,
    REDRIVEN_HEADER,
    STATE_HEADER,
    TRIGGER_HEADER,
    VERSION,
    action_fact,
    dead_letter,
    encode_fact,
    trigger_fact,
)
from eventbus.names import Kind, Stage
from eventbus.ports import Output, Record
from eventbus.stateformats import HeldKey, StateFact, encode_state_key
from sensors.deadletters import (
    ACTION_FAILED,
    EXPIRED_EVENT,
    INVALID_RECORD,
    PAUSED,
    SPEC_CHANGED,
    DeadLetters,
)
from sensors.redrive import original
from sensors.spark.audit import audit
from sensors.spark.history import EVENT, Commits
from sensors.spark.records import Missing, Range
from tests.spark.rows import table
from tests.spark.tampering import Later, about, given_up_twice, letter, put, report_on, too_large, without
from tests.spark.worked import AT_MOST_ONCE, REPLICA, TOPOLOGY, Worked, note

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

replace = msgspec.structs.replace


# --- what it must not miss --------------------------------------------------------------------------------------------


class Careless(Worked):
    """Its match stage has written a record for the wrong dependency, and another one to the wrong partition."""

    def topic(self, kind: Kind, outputs: Iterable[Output]) -> list[Record]:
        wanted = list(outputs)
        if kind is Kind.TRIGGER:
            own = [n for n, each in enumerate(wanted) if each.topic == self.name.topic(kind) and _is_of(each, b"both")]
            self.misplaced, self.mistaken = own[4], own[9]
            wanted[own[4]] = replace(wanted[own[4]], partition=1 - wanted[own[4]].partition)
            fact = trigger_fact(Record("", 0, 0, 0, None, None, wanted[own[9]].headers))
            other = ("b",) if fact.dependencies == ("a",) else ("a",)
            changed = encode_fact(replace(fact, dependencies=other))
            wanted[own[9]] = replace(wanted[own[9]], headers=[(TRIGGER_HEADER, changed)])
            self.wronged = [trigger_fact(Record("", 0, 0, 0, None, None, wanted[n].headers)).source for n in own]
        return super().topic(kind, wanted)


def _is_of(output: Output, trigger: bytes) -> bool:
    return (output.key or b"").startswith(trigger)


def test_a_record_for_the_wrong_dependency_or_in_the_wrong_partition_is_found(spark: SparkSession) -> None:
    """Though all that came of it is what had to come of it."""
    worked = Careless()
    report = report_on(worked.history(spark), worked)
    wrong = {
        f"{worked.name.event_topic}[{source.partition}]@{source.offset}"
        for source in (worked.wronged[4], worked.wronged[9])
    }
    named = {event for each in report.violations if "content is not what" in each.what for event in each.events}
    assert named == wrong


def test_an_action_that_says_something_else_of_its_events_is_found(spark: SparkSession) -> None:
    worked = Worked()
    changed = worked.action("both", 3)
    fact = action_fact(changed)
    turned = replace(fact, events=fact.events[::-1])
    moved = worked.action("keyed", 1)
    keyless = worked.action("both", 6)
    worked.actions = [
        replace(each, headers=[(ACTION_HEADER, encode_fact(turned))])
        if each is changed
        else replace(each, key=b"keyed\0other")
        if each is moved
        else replace(each, key=None, value=None)
        if each is keyless
        else each
        for each in worked.actions
    ]
    report = report_on(worked.history(spark), worked)
    assert len(report.violations) == 3
    for record in (changed, moved, keyless):
        [said] = about(report.violations, record)
        assert "content is not what" in said


def test_what_no_mode_allows_is_found_whatever_it_looks_like(spark: SparkSession) -> None:
    worked = Worked()
    never_taken = worked.action(AT_MOST_ONCE, 2)
    worked.notes = [each for each in worked.notes if each.action != action_fact(never_taken).id or each.attempt]
    taken_elsewhere = worked.action(AT_MOST_ONCE, 7)
    elsewhere = worked.action("both")
    stray = replace(note(taken_elsewhere, "taken", replica="9"), partition=elsewhere.partition, offset=elsewhere.offset)
    worked.notes.append(stray)
    given_up = next(each for each in worked.letters if dead_letter(each).reason == ACTION_FAILED)
    driven_back = put(worked.actions, original(dead_letter(given_up), given_up))
    put_aside = worked.action("both", 3)
    fact = action_fact(put_aside)
    letter(worked, put_aside, PAUSED, trigger=fact.trigger, action=fact.id)
    invented = replace(action_fact(worked.action(AT_MOST_ONCE, 8)), id="f" * 32)
    headers = [(ACTION_HEADER, encode_fact(invented)), (REDRIVEN_HEADER, b"1")]
    from_nowhere = put(worked.actions, Output(worked.name.topic(Kind.ACTION), 0, b"", b"[]", headers))
    worked.notes += [note(from_nowhere, "taken"), note(from_nowhere, "succeeded", status="204")]
    nobody_can_read = put(worked.actions, Output(worked.name.topic(Kind.ACTION), 0, b"x", b"hello", [("h", b"1")]))

    report = report_on(worked.history(spark), worked)
    expected = {
        "never taken": never_taken,
        "driven back and forgotten": driven_back,
        "put aside and done": put_aside,
        "driven back from nowhere": from_nowhere,
        "unreadable": nobody_can_read,
    }
    for what, record in expected.items():
        assert len(about(report.violations, record)) == 1, what
    assert [each for each in report.violations if each.replica == "9" and "without an action" in each.what]
    assert len(report.violations) == len(expected) + 1


def test_a_sensor_whose_commits_are_forgotten_is_not_acquitted(spark: SparkSession) -> None:
    worked = Worked()
    lost = worked.action("both", 2)
    worked.actions.remove(lost)
    worked.forget_invocations(lost)
    history = replace(worked.history(spark), commits=Commits({}, {}, {}))
    report = report_on(history, worked)
    assert report.clean
    assert not report.proved
    assert report.forgotten == ["match", "join", "invoke"]


# --- what is no fault -------------------------------------------------------------------------------------------------


def test_what_is_odd_and_in_order_is_no_violation(spark: SparkSession) -> None:
    worked = Worked()
    _strange_trigger_records(worked)
    given_up_twice(worked)
    too_large(worked)
    dropped = worked.action("both", 1)
    fact = action_fact(dropped)
    worked.forget_invocations(dropped)
    letter(worked, dropped, SPEC_CHANGED, trigger=fact.trigger, action=fact.id)
    paused = worked.action("both", 4)
    fact = action_fact(paused)
    waiting = letter(worked, paused, PAUSED, trigger=fact.trigger, action=fact.id)
    worked.notes = [each for each in worked.notes if each.action != fact.id]
    resumed = put(worked.actions, original(dead_letter(waiting), waiting))
    worked.notes.append(note(resumed, "succeeded", status="204"))
    for headers in ([("h", b"1")], [(ACTION_HEADER, b'{"v":1,"id":"x","t":"both"}')]):
        stranger = put(worked.actions, Output(worked.name.topic(Kind.ACTION), 0, b"x", b"hello", headers))
        letter(worked, stranger, INVALID_RECORD)
    report = report_on(worked.history(spark), worked)
    assert report.violations == []


def _strange_trigger_records(worked: Worked) -> None:
    """One that cannot be read, and an operator's wish for a slot that holds nothing."""
    partition = 1
    topic = worked.name.topic(Kind.TRIGGER)
    commit = worked.join_commits[partition]
    broken = Record(topic, partition, commit.position, 2_000_000, b"both\0", b"{}", [(TRIGGER_HEADER, b"?")])
    flush = b'{"v":1,"t":"keyed","f":false,"k":"nobody"}'
    wish = Record(topic, partition, commit.position + 1, 2_000_000, b"keyed\0nobody", None, [(FLUSH_HEADER, flush)])
    worked.triggers += [broken, wish]
    worked.join_commits[partition] = replace(commit, position=commit.position + 2)
    letter(worked, broken, INVALID_RECORD, Stage.JOIN)


def test_one_action_that_wastoo_large_does_not_excuse_another_that_is_lost(spark: SparkSession) -> None:
    """An action is given up twice; of the two that its dlqTrigger owes, the log has refused one."""
    worked = Worked()
    given_up_twice(worked)
    for sorry in [each for each in worked.actions if action_fact(each).trigger == "keyed/dlq"]:
        worked.actions.remove(sorry)
        worked.forget_invocations(sorry)
        output = Output(sorry.topic, sorry.partition, sorry.key, sorry.value, sorry.headers)
    letters = DeadLetters.of_stage(worked.name, Stage.INVOKE, TOPOLOGY, REPLICA)
    put(worked.letters, letters.of_refused(output, "too large"))
    [violation] = report_on(worked.history(spark), worked).violations
    assert "its dlqTrigger has no action" in violation.what


def test_changed_contents_are_not_out_of_order(spark: SparkSession) -> None:
    worked = Worked()
    changed = [worked.action(AT_MOST_ONCE, number) for number in range(4, 12)]
    worked.actions = [replace(each, value=b"[{}]") if each in changed else each for each in worked.actions]
    report = report_on(worked.history(spark), worked)
    assert [each.breach for each in report.violations] == ["unexplained"] * len(changed)


def test_events_that_wait_for_the_next_sweep_need_no_dead_letter_yet(spark: SparkSession) -> None:
    """When exactly a sensor lets go of what has expired depends on how busy it is."""
    worked = Worked()
    [expired] = [each for each in worked.letters if dead_letter(each).reason == EXPIRED_EVENT]
    worked.letters.remove(expired)
    history = worked.history(spark)
    assert len(report_on(history, worked).violations) == 1
    fact = trigger_fact(expired)
    key = encode_state_key(HeldKey(fact.trigger, fact.key, fact.dependencies[0]))
    state = encode_fact(StateFact(version=VERSION, shape=fact.shape, source=fact.source, arrived=(1, 1)))
    held = Record(worked.name.topic(Kind.STATE), 0, 5, 0, key, expired.value, [(STATE_HEADER, state)])
    still_there = table(spark, [held])
    history = replace(history, tables={**history.tables, Kind.STATE: still_there})
    assert report_on(history, worked).violations == []


def test_a_dead_letter_that_was_written_a_moment_later_is_no_fault(spark: SparkSession) -> None:
    worked = Worked()
    [trigger, key, dependency, source] = next(each for each in worked.held if each[0] == "keyed")
    fact = replace(
        trigger_fact(worked.triggers[0]), trigger=trigger, key=key, source=source, dependencies=(dependency,)
    )
    place = next(
        each for each in worked.triggers if trigger_fact(each).source == source and trigger_fact(each).key == key
    )
    letter(worked, replace(place, headers=[(TRIGGER_HEADER, encode_fact(fact))]), EXPIRED_EVENT, trigger=trigger)
    assert report_on(worked.history(spark), worked).violations == []


# --- what is gone -----------------------------------------------------------------------------------------------------


def _firsts(worked: Worked) -> dict[str, tuple[int, int]]:
    """Topics lose their beginnings at different times."""
    third = action_fact(worked.action("both", 2)).joined
    assert third is not None
    actions = [each for each in worked.actions if each.partition == worked.action("both").partition]
    return {
        EVENT: (0, 4),
        Kind.TRIGGER: third,
        Kind.ACTION: (actions[0].partition, actions[len(actions) // 3].offset),
        Kind.INVOCATION: (0, len(worked.notes) // 3),
        Kind.DLQ: (0, 2),
    }


@pytest.mark.parametrize("kind", [EVENT, Kind.TRIGGER, Kind.ACTION, Kind.INVOCATION, Kind.DLQ])
def test_nobody_is_accused_of_what_retention_has_removed(spark: SparkSession, kind: str) -> None:
    worked = Worked()
    gone = {kind: _firsts(worked)[kind]}
    report = report_on(without(spark, worked, worked.history(spark), gone), worked)
    assert report.violations == []
    assert not report.proved


def test_a_gap_in_the_middle_is_like_a_beginning_that_is_gone(spark: SparkSession) -> None:
    """As in an archive that has missed something, and somebody has accepted that."""
    worked = Worked()
    partition, first = _firsts(worked)[Kind.ACTION]
    history = worked.history(spark)
    left = [each for each in worked.actions if each.partition != partition or not first <= each.offset < first + 9]
    gap = Missing(worked.name.topic(Kind.ACTION), partition, first, first + 9)
    tables = {**history.tables, Kind.ACTION: table(spark, left)}
    report = report_on(replace(history, tables=tables, missing=[gap]), worked)
    assert report.violations == []
    assert not report.proved


def test_an_action_that_was_put_aside_is_not_blamed_when_the_letter_about_it_is_gone(spark: SparkSession) -> None:
    worked = Worked()
    paused = worked.action("both", 4)
    fact = action_fact(paused)
    waiting = letter(worked, paused, PAUSED, trigger=fact.trigger, action=fact.id)
    worked.forget_invocations(paused)
    resumed = put(worked.actions, original(dead_letter(waiting), waiting))
    worked.notes.append(note(resumed, "succeeded", status="204"))
    gone: dict[str, tuple[int, int]] = {Kind.DLQ: (0, waiting.offset + 1)}
    report = report_on(without(spark, worked, worked.history(spark), gone), worked)
    assert report.violations == []
    assert any("not all invocations or dead letters" in what for what in report.not_judged)


def test_what_comes_after_all_gaps_is_judged(spark: SparkSession) -> None:
    worked = Worked()
    gone = {kind: first for kind, first in _firsts(worked).items() if kind != Kind.DLQ}  # they might have excused it
    lost = [worked.action("both", -2), worked.action(AT_MOST_ONCE, -2)]
    for each in lost:
        worked.actions.remove(each)
        worked.forget_invocations(each)
    report = report_on(without(spark, worked, worked.history(spark), gone), worked)
    assert {f"the action {action_fact(each).id} is not there" for each in lost} == {
        each.what for each in report.violations
    }


def test_a_slot_is_judged_from_an_action_on_whose_completion_is_known(spark: SparkSession) -> None:
    """One that was completed before the time in question does not tell what the slot held when that began."""
    worked = Worked()
    joined = [each for each in worked.actions if action_fact(each).trigger == "both"]
    place = action_fact(joined[3]).joined
    assert place is not None
    own = [each for each in worked.triggers if each.partition == place[0] and trigger_fact(each).trigger == "both"]
    inside = next(number for number, each in enumerate(own) if each.offset == place[1])
    first = own[inside].offset  # it completes an action; what that holds came before
    history = worked.history(spark)
    of_triggers = history.slices[Kind.TRIGGER]
    offsets = {**of_triggers.offsets, place[0]: (first, of_triggers.offsets[place[0]][1])}
    later = [each for each in worked.triggers if each.partition != place[0] or each.offset >= first]
    history = replace(
        history,
        slices={**history.slices, Kind.TRIGGER: replace(of_triggers, offsets=offsets, kept=offsets, complete=False)},
        tables={**history.tables, Kind.TRIGGER: table(spark, later)},
        origins={0: dict.fromkeys(history.slices[EVENT].offsets, 40)},
    )
    assert report_on(history, worked).violations == []


# --- who was in charge ------------------------------------------------------------------------------------------------


TAKEN_OVER = 12
"""From this event on, in each partition."""


def test_each_generation_is_judged_for_what_it_has_matched(spark: SparkSession) -> None:
    worked = Later(generation=2)
    worked.origins = {1: {0: 0, 1: 0}, 2: {0: TAKEN_OVER, 1: TAKEN_OVER}}
    early = [each for each in worked.actions if action_fact(each).trigger == "late" and _is_early(each)]
    assert early
    for each in early:
        worked.actions.remove(each)
        worked.forget_invocations(each)
    worked.actions = [
        replace(each, headers=[(ACTION_HEADER, encode_fact(replace(action_fact(each), generation=1)))])
        if _is_early(each)
        else each
        for each in worked.actions
    ]
    report = report_on(worked.history(spark), worked)
    assert report.violations == []
    assert sum(report.not_judged.values()) > 0

    before = Worked(generation=1)
    assert audit(worked.history(spark), before.deputy, Range()).violations == []

    lost = next(each for each in worked.actions if action_fact(each).trigger == "late")
    worked.actions.remove(lost)
    worked.forget_invocations(lost)
    [violation] = report_on(worked.history(spark), worked).violations
    assert violation.what == f"the action {action_fact(lost).id} is not there"


def _is_early(action: Record) -> bool:
    """Its newest event was matched by the first generation."""
    return max(event.source.offset for event in action_fact(action).events) < TAKEN_OVER
