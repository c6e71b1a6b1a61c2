"""The audit finds what is wrong and names it as the checks of the simulator do; and finds nothing where nothing is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from eventbus.cloudevents import to_kafka
from eventbus.events import Event
from eventbus.formats import action_fact, dead_letter, trigger_fact
from eventbus.names import Kind
from eventbus.ports import Record
from sensors.audit.violations import Breach, Violation, place_of
from sensors.deadletters import EXPIRED_EVENT, INVALID_EVENT
from sensors.spark.audit import audit
from sensors.spark.bookkeeping import keep_accounts
from sensors.spark.judgement import acquit
from sensors.spark.records import Missing, Range
from sensors.spark.report import FIRING, AuditReport
from sensors.spark.routing import cuts_of
from tests.spark.worked import AT_MOST_ONCE, BUS, Worked, note

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMED_BY_BOTH = ("I1", "I2", "I7")
"""Invariants that both sides judge in full. (Of the rest, Spark judges the dead letters.)"""


def report_on(spark: SparkSession, worked: Worked, trigger: str | None = None) -> AuditReport:
    return audit(worked.history(spark), worked.deputy, Range(), trigger=trigger)


def both_verdicts(spark: SparkSession, worked: Worked) -> tuple[AuditReport, set[str], set[str]]:
    """The audit's report, and what both sides find, in words."""
    report = report_on(spark, worked)
    return report, _said(report.violations), _said(worked.verdict().violations)


def _said(violations: list[Violation]) -> set[str]:
    return {str(each) for each in violations if each.invariant in NAMED_BY_BOTH}


def test_a_sensor_that_has_kept_its_promises_is_told_so(spark: SparkSession) -> None:
    worked = Worked()
    assert worked.verdict().violations == []
    report = report_on(spark, worked)
    assert report.violations == []
    assert report.clean
    assert report.not_judged == {}
    expected = {
        name: sum(action_fact(record).trigger == name for record in worked.actions)
        for name in ("both", "each", "keyed", "keyed/dlq")
    }
    assert {each.trigger: each.fired for each in report.triggers} == expected
    assert {each.trigger: each.held for each in report.triggers}["both"] == 1
    [given_up] = [each for each in report.triggers if each.trigger == "keyed"]
    assert (given_up.dead_lettered, given_up.succeeded) == (1, given_up.fired - 1)
    assert report.dead_letters == {"action-failed": 1, "expired": 1, "invalid-event": 1}
    assert report.records[BUS.event_topic] == len(worked.events)
    assert report.records[worked.name.topic(Kind.TRIGGER)] == len(worked.triggers)
    assert report.records[worked.name.topic(Kind.INVOCATION)] == len(worked.notes)
    assert (report.first, report.last) == (worked.events[0].timestamp, worked.events[-1].timestamp)
    assert {each.stage for each in report.latencies if each.trigger == "both"} >= {FIRING}
    assert sum(each.fired for each in report.hours) == len(worked.actions)


def test_a_sensor_that_has_kept_its_promises_is_acquitted_without_a_second_look(spark: SparkSession) -> None:
    worked = Worked()
    accounts = keep_accounts(worked.history(spark), worked.deputy)
    assert acquit(accounts) is not None
    accounts.release()


def test_planted_faults_of_actions_and_invocations_are_each_found_and_named(spark: SparkSession) -> None:
    worked = Worked()
    lost_joined, lost_direct = worked.action("both", 2), worked.action("each", 3)
    for lost in (lost_joined, lost_direct):
        worked.actions.remove(lost)
        worked.forget_invocations(lost)
    forged = _forged_action(worked)
    repeated = msgspec.structs.replace(worked.action("keyed", 3), offset=901)
    changed = worked.action("both", 6)
    worked.actions[worked.actions.index(changed)] = msgspec.structs.replace(changed, value=b"[{}, {}]")
    worked.actions += [forged, repeated]
    worked.notes += [note(forged, "taken"), note(forged, "succeeded"), note(repeated, "succeeded")]
    never_invoked, twice = worked.action("both", 4), worked.action(AT_MOST_ONCE, 9)
    worked.forget_invocations(never_invoked)
    worked.notes += [note(twice, "taken", replica="3"), note(twice, "succeeded", replica="3")]
    orphan = msgspec.structs.replace(note(twice, "succeeded", replica="5"), action="0" * 32)
    worked.notes.append(orphan)

    report, by_spark, by_checks = both_verdicts(spark, worked)
    of_content = {each for each in by_spark if "content is not what" in each}
    assert by_spark - of_content == by_checks
    [content] = of_content
    assert place_of(changed) in content
    words = {
        f"I1 lost: the action {action_fact(lost_joined).id} is not there": lost_joined,
        f"I1 lost: the action {action_fact(lost_direct).id} is not there": lost_direct,
        "I1 unexplained: an action that nothing has caused": forged,
        "I2 duplicated: an event that was used already": repeated,
        f"I7 lost: the action {action_fact(never_invoked).id} was never dealt with": never_invoked,
        f"I7 duplicated: the action {action_fact(twice).id} may be called once, and was 2 times": twice,
        f"I7 unexplained: an invocation (succeeded) without an action: {'0' * 32}": twice,
    }
    for beginning, record in words.items():
        found = [each for each in by_spark if each.startswith(beginning)]
        assert len(found) == 1, beginning
        assert f"trigger {action_fact(record).trigger}" in found[0], "and names the trigger"
        assert "replica " in found[0], "and the replica"
    assert not report.clean
    assert report.counts[Breach.LOST] == 3


def test_actions_in_the_wrong_order_are_found(spark: SparkSession) -> None:
    worked = Worked()
    first = worked.action("each")
    one, other = [each for each in worked.actions if _lane(each) == _lane(first)][1:3]
    swapped = {one.offset: other, other.offset: one}
    worked.actions = [
        msgspec.structs.replace(swapped[each.offset], offset=each.offset) if each in (one, other) else each
        for each in worked.actions
    ]
    notes = {action_fact(each).id: each for each in worked.actions}
    worked.notes = [
        msgspec.structs.replace(each, offset=notes[each.action].offset, partition=notes[each.action].partition)
        for each in worked.notes
    ]
    report, by_spark, by_checks = both_verdicts(spark, worked)
    assert by_spark == by_checks
    assert report.counts == {Breach.OUT_OF_ORDER: 1}


def test_planted_faults_of_trigger_records_and_dead_letters_are_found(spark: SparkSession) -> None:
    worked = Worked()
    removed = next(each for each in worked.triggers if trigger_fact(each).trigger == "both")
    again = next(each for each in worked.triggers if trigger_fact(each).trigger == "keyed")
    worked.triggers.remove(removed)
    last = max(each.offset for each in worked.triggers if each.partition == again.partition)
    worked.triggers.append(msgspec.structs.replace(again, offset=last + 1))
    commit = worked.join_commits[again.partition]
    worked.join_commits[again.partition] = msgspec.structs.replace(commit, position=last + 2)
    invalid = next(each for each in worked.letters if dead_letter(each).reason == INVALID_EVENT)
    worked.letters.remove(invalid)
    due = worked.action("keyed/dlq")
    worked.actions.remove(due)
    worked.forget_invocations(due)
    report, by_spark, by_checks = both_verdicts(spark, worked)
    assert by_spark == by_checks
    said = "\n".join(map(str, report.violations))
    assert "I3 lost: an event is not in the trigger topic" in said
    assert "I2 duplicated: a trigger record that is there already" in said
    assert "an event that cannot be read" in said or "is not in the dead letters" in said
    assert "its dlqTrigger has no action" in said


def test_what_a_mode_allows_is_listed_with_replicas_and_times_and_is_no_violation(spark: SparkSession) -> None:
    worked = Worked()
    taken, repeated = worked.action(AT_MOST_ONCE, 4), worked.action("both", 1)
    worked.notes = [
        each for each in worked.notes if each.action != action_fact(taken).id or each.outcome != "succeeded"
    ]
    worked.notes.append(note(repeated, "succeeded", at=5_000_000, replica="2"))
    report = report_on(spark, worked)
    assert report.clean
    [lost] = report.given_up
    assert (lost.action, lost.trigger, lost.replicas) == (action_fact(taken).id, AT_MOST_ONCE, ("0",))
    [again] = report.repeated
    assert (again.action, again.replicas) == (action_fact(repeated).id, ("0", "2"))
    assert again.times[-1] == 5_000_000
    by_name = {each.trigger: each for each in report.triggers}
    assert (by_name[AT_MOST_ONCE].given_up, by_name["both"].repeated) == (1, 1)


def test_without_the_beginning_slots_are_judged_from_their_first_action_on(spark: SparkSession) -> None:
    worked = Worked()
    first = min(each.offset for each in worked.triggers if each.partition == worked.triggers[0].partition)
    gone = worked.triggers.pop(0)
    assert gone.offset == first
    worked.missing = [Missing(gone.topic, gone.partition, 0, first + 1)]
    lost = worked.action("both", 8)
    worked.actions.remove(lost)
    worked.forget_invocations(lost)
    worked.origins = {0: {0: 20, 1: 20}}
    report = report_on(spark, worked)
    [violation] = report.violations
    assert str(violation).startswith(f"I1 lost: the action {action_fact(lost).id} is not there")
    assert report.missing == worked.missing
    assert sum(report.not_judged.values()) > 0


def test_without_the_beginning_nobody_is_accused_of_dead_letters_that_cannot_be_judged(spark: SparkSession) -> None:
    worked = Worked()
    gone = worked.triggers.pop(0)
    worked.missing = [Missing(gone.topic, gone.partition, 0, gone.offset + 1)]
    worked.origins = {0: {0: 20, 1: 20}}
    accounts = keep_accounts(worked.history(spark), worked.deputy)
    assert accounts.letters.where(f"reason = '{EXPIRED_EVENT}'").count() > 0
    assert acquit(accounts) is not None
    accounts.release()


def test_a_long_sequence_is_cut_where_nothing_is_held_and_comes_to_the_same(spark: SparkSession) -> None:
    worked = Worked()
    accounts = keep_accounts(worked.history(spark), worked.deputy, block=8)
    chunks = cuts_of(accounts.actions, worked.plan, 8)
    assert chunks is not None
    assert max(len(row["cuts"]) for row in chunks.collect()) > 3
    accounts.release()
    clean = audit(worked.history(spark), worked.deputy, Range(), block=8)
    assert (clean.violations, clean.triggers) == ([], report_on(spark, worked).triggers)

    lost = worked.action("both", 4)
    worked.actions.remove(lost)
    worked.forget_invocations(lost)
    found = audit(worked.history(spark), worked.deputy, Range(), block=8)
    assert _said(found.violations) == _said(worked.verdict().violations)


def test_one_trigger_can_be_asked_for(spark: SparkSession) -> None:
    worked = Worked()
    lost = worked.action("both", 2)
    worked.actions.remove(lost)
    worked.forget_invocations(lost)
    assert report_on(spark, worked, "keyed").clean
    report = report_on(spark, worked, "both")
    assert report.counts == {Breach.LOST: 1}
    assert [each.trigger for each in report.triggers] == ["both"]


def _lane(action: Record) -> tuple[object, ...]:
    """What keeps its order."""
    return action.partition, action.key, action_fact(action).events[0].source.partition


def _forged_action(worked: Worked) -> Record:
    """Made by a replica that has seen an event which is not there."""
    headers, value = to_kafka(Event.new("shop", "b", {"order": "x"}, id="forged"))
    unseen = Record(BUS.event_topic, 1, 5, 1_000_000, None, value, headers)
    output = next(each for each in worked.matcher("7").outputs(unseen) if each.topic == worked.name.topic(Kind.ACTION))
    return Record(output.topic, 1, 900, 2_000_000, output.key, output.value, output.headers)
