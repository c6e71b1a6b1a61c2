"""What became of actions, however odd: their modes, their dead letters, and what their dlqTriggers owe."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import msgspec

from eventbus.formats import ACTION_HEADER, Failure, action_fact, dead_letter, encode_fact
from eventbus.metadata import InvokeCommit
from eventbus.names import Kind
from eventbus.ports import Record
from sensors.deadletters import ACTION_FAILED, PAUSED
from sensors.dlqactions import dlq_action
from sensors.redrive import original
from sensors.spark.history import History
from tests.spark.tampering import about, changed, found, given_up_twice, letter, put, report_on, said, without
from tests.spark.worked import AT_MOST_ONCE, REPLICA, Worked, note

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

replace = msgspec.structs.replace


def give_up(worked: Worked, record: Record, *, told: bool = True) -> None:
    fact = action_fact(record)
    worked.notes = [each for each in worked.notes if each.action != fact.id or each.outcome == "taken"]
    worked.notes.append(note(record, "dead-lettered", status="500"))
    if told:
        letter(worked, record, ACTION_FAILED, trigger=fact.trigger, action=fact.id, attempts=1)


def as_of_now(worked: Worked, spark: SparkSession, ends: dict[int, int]) -> History:
    """What comes after these places of the action topic was still under way when the commits were taken."""
    history = worked.history(spark)
    invoke = {partition: InvokeCommit(worked.owner, end, ()) for partition, end in ends.items()}
    return replace(history, commits=replace(history.commits, invoke=invoke))


def ends_of(worked: Worked) -> dict[int, int]:
    return {p: max(each.offset + 1 for each in worked.actions if each.partition == p) for p in (0, 1)}


class Warned(Worked):
    manifest: ClassVar = changed("both", dlqTrigger={"template": {"name": "more", "log": {}}, "atLeastOnce": True})


class Unwarned(Worked):
    manifest: ClassVar = changed("keyed", dlqTrigger=None)


def second(worked: Worked, at: int = 12) -> Worked:
    """The first generation has matched what was before `at`."""
    worked.origins = {1: {0: 0, 1: 0}, 2: {0: at, 1: at}}
    worked.actions = [
        replace(each, headers=[(ACTION_HEADER, encode_fact(replace(action_fact(each), generation=1)))])
        if max(event.source.offset for event in action_fact(each).events) < at
        else each
        for each in worked.actions
    ]
    return worked


def test_a_dlq_trigger_that_was_added_owes_nothing_for_what_came_before(spark: SparkSession) -> None:
    worked = second(Warned(generation=2))
    assert found(spark, worked) == []
    early = worked.action("both", 0)
    assert action_fact(early).generation == 1
    give_up(worked, early)
    assert found(spark, worked) == []


def test_a_dlq_trigger_that_was_removed_had_its_actions(spark: SparkSession) -> None:
    assert found(spark, second(Unwarned(generation=2))) == []


def testgiven_up_twice_and_told_twice_at_most_once(spark: SparkSession) -> None:
    worked = Worked()
    given_up_twice(worked)
    of_failures = [each for each in worked.actions if action_fact(each).trigger == "keyed/dlq"]
    worked.notes = [each for each in worked.notes if each.trigger != "keyed/dlq"]
    for each in of_failures:
        worked.notes += [replace(note(each, outcome), mode="atMostOnce") for outcome in ("taken", "succeeded")]
    assert found(spark, worked) == []


def test_given_up_before_the_gap_and_driven_back_after_it(spark: SparkSession) -> None:
    worked = Worked()
    given_up = next(each for each in worked.letters if dead_letter(each).reason == ACTION_FAILED)
    fact = dead_letter(given_up)
    worked.notes.append(note(put(worked.actions, original(fact, given_up)), "succeeded", status="204"))
    assert found(spark, worked) == []
    history = without(spark, worked, worked.history(spark), {Kind.ACTION: (fact.partition, fact.offset + 1)})
    assert said(report_on(history, worked)) == []


def test_resumed_and_given_up_a_moment_ago(spark: SparkSession) -> None:
    worked = Worked()
    paused = worked.action("keyed", 2)
    fact = action_fact(paused)
    worked.forget_invocations(paused)
    waiting = letter(worked, paused, PAUSED, trigger=fact.trigger, action=fact.id)
    ends = ends_of(worked)
    again = put(worked.actions, original(dead_letter(waiting), waiting))
    give_up(worked, again)
    put(worked.actions, dlq_action(again, fact, Failure(fact.id, "refused", 1), REPLICA))
    assert said(report_on(as_of_now(worked, spark, ends), worked)) == []


def test_a_dlq_action_that_says_something_else(spark: SparkSession) -> None:
    worked = Worked()
    due, other = worked.action("keyed/dlq"), worked.action("keyed", 3)
    fact = replace(action_fact(due), events=action_fact(other).events, id="c" * 32)
    changed = replace(due, value=other.value, headers=[(ACTION_HEADER, encode_fact(fact))])
    worked.actions = [changed if each is due else each for each in worked.actions]
    mine = action_fact(due).id
    worked.notes = [replace(each, action="c" * 32) if each.action == mine else each for each in worked.notes]
    assert found(spark, worked)


def test_a_change_of_the_mode_accuses_nobody(spark: SparkSession) -> None:
    """One action was taken ahead and given back, another was given up and driven back."""
    worked = second(Worked(generation=2))
    ahead = worked.action("both", 3)
    worked.notes = [*(replace(note(ahead, each), mode="atMostOnce") for each in ("taken", "released")), *worked.notes]
    give_up(worked, worked.action(AT_MOST_ONCE, 5))
    told = worked.letters[-1]
    again = put(worked.actions, original(dead_letter(told), told))
    worked.notes.append(replace(note(again, "succeeded", status="204"), mode="atLeastOnce"))
    assert found(spark, worked) == []


def test_what_became_of_an_action_is_told_once_and_everywhere(spark: SparkSession) -> None:
    worked = Worked()
    begun_twice = worked.action(AT_MOST_ONCE, 5)
    worked.notes.append(note(begun_twice, "lost", replica="7"))
    letter_lost = worked.action(AT_MOST_ONCE, 7)
    give_up(worked, letter_lost, told=False)
    done = worked.action("both", 3)
    fact = action_fact(done)
    letter(worked, done, ACTION_FAILED, trigger=fact.trigger, action=fact.id, attempts=1)
    violations = report_on(worked.history(spark), worked).violations
    assert [len(about(violations, each)) for each in (begun_twice, letter_lost, done)] == [1, 1, 1]
    assert len(violations) == 3
