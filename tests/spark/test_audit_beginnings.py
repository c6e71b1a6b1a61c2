"""What can be said of a sensor although its beginning is not known, and what of things that never were."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
import pytest

from eventbus.formats import (
    ACTION_HEADER,
    REDRIVE_MARK_HEADER,
    REDRIVEN_HEADER,
    TRIGGER_HEADER,
    Failure,
    Source,
    action_fact,
    dead_letter,
    encode_fact,
    trigger_fact,
)
from eventbus.hashing import dlq_action_id
from eventbus.metadata import InvokeCommit
from eventbus.names import Kind, Stage
from eventbus.ports import Output, Record
from sensors.audit.violations import Breach, place_of
from sensors.deadletters import INVALID_RECORD, PAUSED
from sensors.spark.history import _IN_ORDER
from tests.spark import worked as worked_module
from tests.spark.tampering import (
    about,
    changed,
    forge,
    forge_trigger_records,
    found,
    given_up_twice,
    letter,
    report_on,
    said,
)
from tests.spark.worked import AT_MOST_ONCE, Worked

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

replace = msgspec.structs.replace


# --- without the beginning --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rules", [{}, {"within": None, "ttl": "1h", "onExpire": None}], ids=str)
def test_a_join_that_has_never_fired_is_found_without_the_beginning(spark: SparkSession, rules: dict[str, Any]) -> None:
    class Ruled(Worked):
        manifest: ClassVar = changed("keyed", rules)

    worked = Ruled()
    for lost in [each for each in worked.actions if action_fact(each).joined is not None]:
        worked.actions.remove(lost)
        worked.forget_invocations(lost)
    worked.letters = [each for each in worked.letters if dead_letter(each).action is None]
    violations = report_on(replace(worked.history(spark, since=1), since=1), worked).violations
    assert {"both", "keyed"} <= {each.trigger for each in violations if each.breach is Breach.LOST}


def test_an_action_of_what_was_never_there_is_found_without_the_beginning(spark: SparkSession) -> None:
    worked = Worked()
    sources = Source(0, 10**6, 1), Source(0, 10**6 + 1, 1)
    forged = forge(worked, worked.action("keyed", 3), sources, key=b"keyed\0never", joined=(99, 7))
    assert about(report_on(worked.history(spark, since=1), worked).violations, forged)


def test_a_generation_before_the_first_acquits_nobody(spark: SparkSession) -> None:
    worked = Worked(generation=2)
    worked.origins = {2: {0: 0, 1: 0}}
    lost, changed = worked.action("both", 0), worked.action("keyed", 2)
    older = replace(changed, headers=[(ACTION_HEADER, encode_fact(replace(action_fact(changed), generation=1)))])
    worked.actions = [older if each is changed else each for each in worked.actions if each is not lost]
    worked.forget_invocations(lost)
    assert any("both" in each for each in found(spark, worked))


# --- what never was ---------------------------------------------------------------------------------------------------


def test_a_dlq_action_about_an_action_that_never_was(spark: SparkSession) -> None:
    worked = Worked()
    never = "e" * 32
    due = worked.action("keyed/dlq")
    forged = forge(worked, due, id=dlq_action_id(never), failure=Failure(never, "refused", 1))
    assert about(report_on(worked.history(spark), worked).violations, forged)


def test_what_was_taken_is_not_put_aside_to_be_driven_back(spark: SparkSession) -> None:
    worked = Worked()
    taken = worked.action(AT_MOST_ONCE, 4)
    fact = action_fact(taken)
    worked.notes = [each for each in worked.notes if each.action != fact.id or each.outcome == "taken"]
    letter(worked, taken, PAUSED, trigger=fact.trigger, action=fact.id)
    assert about(report_on(worked.history(spark), worked).violations, taken)


def test_a_trigger_record_that_was_driven_back_from_nowhere(spark: SparkSession) -> None:
    """Of events that the trigger does not even ask for; and what comes of them."""
    worked = Worked()
    nobodys = [each for each in worked.events if ("ce_subject", b"unwanted") in each.headers][:2]
    sources = [Source(each.partition, each.offset, each.timestamp) for each in nobodys]
    driven = forge_trigger_records(worked, sources, (REDRIVEN_HEADER, b"1"))
    violations = report_on(worked.history(spark), worked).violations
    assert all(about(violations, each) for each in driven)


class Disorderly(Worked):
    """Its match stage has put two events of one partition into the trigger topic the wrong way round."""

    def topic(self, kind: Kind, outputs: Iterable[Output]) -> list[Record]:
        written = [each for each in outputs if each.topic == self.name.topic(kind)]
        if kind is Kind.TRIGGER:
            facts = [trigger_fact(Record("", 0, 0, 0, None, None, each.headers)) for each in written]
            own = [n for n, fact in enumerate(facts) if fact.trigger == "both" and fact.source.partition == 0]
            one, other = own[3:5]
            written[one], written[other] = written[other], written[one]
        return super().topic(kind, written)


def test_trigger_records_in_the_wrong_order(spark: SparkSession) -> None:
    worked = Disorderly()
    for violations in (report_on(worked.history(spark), worked).violations, worked.verdict().violations):
        assert {each.breach for each in violations} == {Breach.OUT_OF_ORDER}
        assert "both" in {each.trigger for each in violations}


# --- nobody's fault ---------------------------------------------------------------------------------------------------


def test_two_dlq_actions_of_one_name_are_no_repetition(spark: SparkSession) -> None:
    worked = Worked()
    given_up_twice(worked)
    report = report_on(worked.history(spark), worked)
    assert (report.violations, report.repeated) == ([], [])


class Forgetful(Worked):
    manifest: ClassVar = changed("keyed", {"ttl": "1h"})


@pytest.mark.parametrize(
    "value",
    [
        b"{}",
        b"hello",
        b'{"specversion":"1.0","id":1,"source":"shop","type":"t"}',
        b'{"specversion":"1.0","id":"1","source":"shop","type":"t"} and more',
    ],
)
def test_a_stranger_moves_no_clock(spark: SparkSession, value: bytes) -> None:
    worked = Forgetful()
    like, free = _gap_between_two_of_a_slot(worked)
    fact = replace(trigger_fact(like), source=Source(0, 10**6, 10**13))
    headers = [(TRIGGER_HEADER, encode_fact(fact))]
    stranger = Record(like.topic, like.partition, free, 2_000_000, like.key, value, headers)
    worked.triggers.append(stranger)
    letter(worked, stranger, INVALID_RECORD, Stage.JOIN)
    assert [each for each in found(spark, worked) if place_of(stranger) not in each] == []


def _gap_between_two_of_a_slot(worked: Worked) -> tuple[Record, int]:
    """A record, and an offset after it (a transaction's marker is there) and before the next one of its slot."""
    taken = {(each.partition, each.offset) for each in worked.triggers}
    for number, one in enumerate(worked.triggers):
        others = (each for each in worked.triggers[number + 1 :] if each.key == one.key)
        other = next(others, one) if trigger_fact(one).trigger == "keyed" else one
        for offset in range(one.offset + 1, other.offset):
            if (one.partition, offset) not in taken:
                return one, offset
    raise AssertionError("no gap anywhere")


def test_a_header_of_ours_on_an_event_that_nobody_can_read(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = worked_module._event

    def event(number: int) -> Record:
        record = made(number)
        return replace(record, headers=[*record.headers, (REDRIVE_MARK_HEADER, b"1")])

    monkeypatch.setattr(worked_module, "_event", event)
    assert found(spark, Worked()) == []


def test_what_was_finished_out_of_order_is_not_forgotten(spark: SparkSession) -> None:
    worked = Worked()
    history = worked.history(spark)
    invoke = {}
    for partition, commit in history.commits.invoke.items():
        own = [each for each in worked.actions if each.partition == partition]
        slow = sorted(own, key=lambda each: each.offset)[-3]
        worked.forget_invocations(slow)
        invoke[partition] = InvokeCommit(worked.owner, slow.offset, ((slow.offset + 1, commit.offset),))
    remembered = replace(history.commits, remembered=frozenset(Stage), invoke=invoke)
    report = report_on(replace(worked.history(spark), commits=remembered), worked)
    assert (said(report), report.forgotten) == ([], [])


def test_what_is_held_is_asked_for_before_the_dead_letters() -> None:
    """One transaction writes the letter and removes what was held: who sees neither would accuse."""
    assert _IN_ORDER.index(Kind.STATE) < _IN_ORDER.index(Kind.DLQ)
