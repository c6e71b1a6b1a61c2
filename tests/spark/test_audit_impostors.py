"""Records that claim what never was: dead letters, what was driven back from them, actions and their modes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from eventbus.cloudevents import to_json
from eventbus.events import Event
from eventbus.formats import (
    ACTION_HEADER,
    TRIGGER_HEADER,
    Source,
    action_fact,
    dead_letter,
    encode_fact,
    trigger_fact,
)
from eventbus.names import Kind, Stage
from eventbus.ports import Record
from sensors.deadletters import (
    ACTION_FAILED,
    EXPIRED_EVENT,
    FLUSHED,
    INVALID_EVENT,
    INVALID_RECORD,
    PAUSED,
    SPEC_CHANGED,
)
from sensors.redrive import original
from tests.spark.tampering import about, arrive, drive_back, found, letter, report_on, too_large
from tests.spark.worked import AT_MOST_ONCE, BUS, Worked, note

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

replace = msgspec.structs.replace


def expired(worked: Worked) -> Record:
    return next(each for each in worked.letters if dead_letter(each).reason == EXPIRED_EVENT)


@pytest.mark.parametrize("reason", [FLUSHED, EXPIRED_EVENT])
def test_a_dead_letter_of_an_event_that_a_plain_trigger_still_holds(spark: SparkSession, reason: str) -> None:
    """Nobody has flushed anything, and nothing of `both` can expire."""
    worked = Worked()
    trigger, key, dependency, source = next(each for each in worked.held if each[0] == "both")
    place = next(
        each
        for each in worked.triggers
        if trigger_fact(each).source == source and trigger_fact(each).trigger == trigger
    )
    forged = letter(worked, place, reason, Stage.JOIN, trigger=trigger)
    assert worked.verdict().violations
    assert found(spark, worked), (forged.offset, key, dependency)


@pytest.mark.parametrize("reason", [ACTION_FAILED, PAUSED, SPEC_CHANGED])
def test_a_dead_letter_about_an_action_that_never_was(spark: SparkSession, reason: str) -> None:
    worked = Worked()
    like = worked.action("both", 3)
    never = replace(action_fact(like), id="e" * 32)
    record = replace(like, headers=[(ACTION_HEADER, encode_fact(never))])
    forged = letter(worked, record, reason, trigger="both", action=never.id, attempts=1)
    [said] = about(report_on(worked.history(spark), worked).violations, forged)
    assert f"a dead letter about the action {never.id}, which is not there" in said


@pytest.mark.parametrize("reason", [INVALID_EVENT, EXPIRED_EVENT, ACTION_FAILED])
def test_a_dead_letter_about_a_place_that_never_was(spark: SparkSession, reason: str) -> None:
    worked = Worked()
    far = 10**6
    if reason == INVALID_EVENT:
        record = Record(BUS.event_topic, 0, far, 1_000_000, None, b"?", [("ce_specversion", b"1.0")])
        letter(worked, record, reason, Stage.MATCH)
    elif reason == EXPIRED_EVENT:
        like = next(each for each in worked.triggers if trigger_fact(each).trigger == "keyed")
        fact = replace(trigger_fact(like), source=Source(0, far, 1))
        record = replace(like, offset=far, headers=[(TRIGGER_HEADER, encode_fact(fact))])
        letter(worked, record, reason, Stage.JOIN, trigger="keyed")
    else:
        like = worked.action("both", 3)
        fact_ = replace(action_fact(like), id="e" * 32)
        record = replace(like, offset=far, headers=[(ACTION_HEADER, encode_fact(fact_))])
        letter(worked, record, reason, trigger="both", action=fact_.id, attempts=1)
    assert found(spark, worked)


def test_what_was_driven_back_as_it_was_is_in_order(spark: SparkSession) -> None:
    worked = Worked()
    drive_back(worked, expired(worked))
    assert found(spark, worked) == []


@pytest.mark.parametrize("what", ["value", "dependency", "partition"])
def test_a_trigger_record_that_was_driven_back_says_something_else(spark: SparkSession, what: str) -> None:
    worked = Worked()
    dead = expired(worked)
    fact = trigger_fact(dead)
    changes: dict[str, Any]
    if what == "value":
        other = Event.new("shop", fact.dependencies[0], {"order": fact.key, "paid": True}, id="another")
        changes = {"value": to_json(other)}
    elif what == "dependency":
        other_name = "c" if fact.dependencies == ("a",) else "a"
        headers = [
            (name, encode_fact(replace(fact, dependencies=(other_name,))) if name == TRIGGER_HEADER else raw)
            for name, raw in original(dead_letter(dead), dead).headers
        ]
        changes = {"headers": headers}
    else:
        changes = {"partition": 1 - dead_letter(dead).partition}
    forged = drive_back(worked, dead, **changes)
    assert about(report_on(worked.history(spark), worked).violations, forged)


def test_one_dead_letter_that_was_driven_back_twice(spark: SparkSession) -> None:
    worked = Worked()
    dead = expired(worked)
    drive_back(worked, dead)
    drive_back(worked, dead)
    assert found(spark, worked)


def _damaged(worked: Worked, fact: bytes) -> Record:
    commit, topic = worked.join_commits[1], worked.name.topic(Kind.TRIGGER)
    record = Record(topic, 1, commit.position, 2_000_000, b"both\0", b"{}", [(TRIGGER_HEADER, fact)])
    return arrive(worked, record)


def test_a_damaged_trigger_record_that_is_driven_back_beside_another(spark: SparkSession) -> None:
    """`eventbus redrive` drives back whatever it can; it is in the dead letters once more."""
    worked = Worked()
    _damaged(worked, b'{"v":1,"t":"both"}')
    assert dead_letter(worked.letters[-1]).reason == INVALID_RECORD
    dead = worked.letters[-1]
    drive_back(worked, expired(worked))
    drive_back(worked, dead)
    assert dead_letter(worked.letters[-1]).reason == INVALID_RECORD
    assert found(spark, worked) == []


@pytest.mark.parametrize("damage", [b'"d":["a"]', b'"d":[1],"s":"shape"'])
def test_a_damaged_trigger_record_in_no_order(spark: SparkSession, damage: bytes) -> None:
    """It is in the dead letters. Another record was too large, so that the audit looks twice."""
    worked = Worked()
    _damaged(worked, b'{"v":1,"t":"both","e":[0,0,1],%b}' % damage)
    assert dead_letter(worked.letters[-1]).reason == INVALID_RECORD
    too_large(worked)
    assert found(spark, worked) == []


@pytest.mark.parametrize("what", ["trigger", "key"])
def test_a_dlq_action_that_is_not_what_the_given_up_one_calls_for(spark: SparkSession, what: str) -> None:
    worked = Worked()
    due = worked.action("keyed/dlq")
    fact, key = action_fact(due), due.key
    if what == "trigger":  # it would not be invoked as a dlqTrigger's at all
        fact, key = replace(fact, trigger="both"), b"both\0"
    else:
        key = b"both\0"
    forged = replace(due, key=key, headers=[(ACTION_HEADER, encode_fact(fact))])
    worked.actions = [forged if each is due else each for each in worked.actions]
    worked.notes = [replace(each, trigger=fact.trigger) if each.action == fact.id else each for each in worked.notes]
    assert about(report_on(worked.history(spark), worked).violations, forged)


def test_an_action_that_was_invoked_in_a_mode_that_its_trigger_does_not_have(spark: SparkSession) -> None:
    """The manifest says at most once; it was done twice, and every record of that says: at least once."""
    worked = Worked()
    twice = worked.action(AT_MOST_ONCE, 5)
    worked.forget_invocations(twice)
    worked.notes += [replace(note(twice, "succeeded", status="204"), mode="atLeastOnce") for _ in range(2)]
    assert found(spark, worked)


def test_one_record_of_another_mode_excuses_everything(spark: SparkSession) -> None:
    """One generation of the spec has one mode."""
    worked = Worked()
    twice = worked.action(AT_MOST_ONCE, 5)
    worked.notes += [note(twice, "taken"), note(twice, "succeeded", status="204")]
    worked.notes.append(replace(note(twice, "failed"), mode="atLeastOnce"))
    assert found(spark, worked)


class Littered(Worked):
    """Somebody else has written into its invocation topic: what nobody knows the end of is not listed any more."""

    litter: bytes = b""

    def invocations(self) -> list[Record]:
        own = super().invocations()
        return [*own, Record(self.name.topic(Kind.INVOCATION), 0, len(own), 5_000_000, b"x", self.litter, [])]


def test_a_stranger_in_the_invocation_topic(spark: SparkSession) -> None:
    worked = Littered()
    taken = worked.action(AT_MOST_ONCE, 4)
    worked.notes = [each for each in worked.notes if each.action != action_fact(taken).id or each.outcome == "taken"]
    worked.litter = msgspec.json.encode({"action": action_fact(taken).id})
    report = report_on(worked.history(spark), worked)
    assert len(report.given_up) == 1
