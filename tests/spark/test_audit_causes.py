"""Causes that cannot be, generations that nobody knows of, and commits that are gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from eventbus.errors import ConfigError
from eventbus.formats import (
    ACTION_HEADER,
    REDRIVEN_HEADER,
    TRIGGER_HEADER,
    Source,
    action_fact,
    dead_letter,
    encode_fact,
)
from eventbus.names import Kind, Stage
from eventbus.ports import Record
from sensors.audit.violations import place_of
from sensors.deadletters import ACTION_FAILED, EXPIRED_EVENT
from sensors.redrive import original
from sensors.spark.audit import audit
from sensors.spark.records import Range
from tests.spark.tampering import Later, about, forge, forge_trigger_records, found, put, report_on, said
from tests.spark.worked import AT_MOST_ONCE, Worked, note

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

replace = msgspec.structs.replace


def test_nothing_can_speak_of_what_was_never_there(spark: SparkSession) -> None:
    worked = Worked()
    direct, joined = worked.action(AT_MOST_ONCE, 3), worked.action("both", 3)
    forged = [
        forge(worked, direct, [Source(0, 10**6, 1_000_000)]),
        forge(worked, direct, [Source(99, 0, 1_000_000)]),
        forge(worked, direct, []),
        forge(worked, joined, [Source(0, 10**6, 1), Source(0, 10**6 + 1, 1)], joined=(0, 10**6)),
    ]
    sources = [Source(0, first + n, 1_000_000) for first in (2 * 10**6, 3 * 10**6) for n in range(2)]
    forge_trigger_records(worked, sources[:2])
    forge_trigger_records(worked, sources[2:], (REDRIVEN_HEADER, b"1"))
    called = note(worked.action(AT_MOST_ONCE, 3), "succeeded", status="200")
    worked.notes.append(replace(called, action="d" * 32, partition=99))
    violations = report_on(worked.history(spark), worked).violations
    for record in forged:
        assert about(violations, record), place_of(record)
    for source in sources:
        place = f"{worked.name.event_topic}[{source.partition}]@{source.offset}"
        assert [each for each in violations if place in each.events], place
    assert [each for each in violations if "without an action: dddd" in each.what]


def test_what_was_driven_back_and_what_cannot_be_read_is_looked_at(spark: SparkSession) -> None:
    worked = Worked()
    told = next(each for each in worked.letters if dead_letter(each).reason == ACTION_FAILED)
    again = put(worked.actions, replace(original(dead_letter(told), told), value=worked.action("keyed", 4).value))
    worked.notes.append(note(again, "succeeded", status="204"))
    commit, topic = worked.join_commits[1], worked.name.topic(Kind.TRIGGER)
    broken = Record(topic, 1, commit.position, 2_000_000, b"both\0", b"{}", [(TRIGGER_HEADER, b"?")])
    worked.triggers.append(broken)
    worked.join_commits[1] = replace(commit, position=commit.position + 1)
    violations = report_on(worked.history(spark), worked).violations
    assert len(violations) == len([*about(violations, again), *about(violations, broken)]) == 2


def test_one_generation_that_nobody_knows_of_acquits_all_others(spark: SparkSession) -> None:
    """The first action of `both` is lost, and the last one says that the second generation has written it."""
    worked = Worked()
    lost, last = worked.action("both", 0), worked.action("both", -1)
    later = replace(last, headers=[(ACTION_HEADER, encode_fact(replace(action_fact(last), generation=2)))])
    worked.actions = [later if each is last else each for each in worked.actions if each is not lost]
    worked.forget_invocations(lost)
    assert found(spark, worked)


def test_a_manifest_that_never_ran_accuses_nobody(spark: SparkSession) -> None:
    worked, other = Worked(), Later()
    with pytest.raises(ConfigError, match=r"is not the manifest that the sensor .* runs with as generation 1"):
        audit(worked.history(spark), other.deputy, Range())


def test_dead_letters_that_are_not_judged_are_named(spark: SparkSession) -> None:
    """After the first change of a spec, those of held events never are."""
    worked = Later(generation=2)
    worked.origins = {1: {0: 0, 1: 0}, 2: {0: 0, 1: 0}}
    worked.letters = [each for each in worked.letters if dead_letter(each).reason != EXPIRED_EVENT]
    report = report_on(worked.history(spark), worked)
    assert any("dead letters" in what for what in report.not_judged)


def test_a_part_of_the_commits_is_forgotten(spark: SparkSession) -> None:
    worked = Worked()
    history = worked.history(spark)
    commits = history.commits
    match, join, invoke = ({0: each[0]} for each in (commits.match, commits.join, commits.invoke))
    left = replace(commits, match=match, join=join, invoke=invoke)
    report = report_on(replace(history, commits=left), worked)
    assert said(report) == []
    assert not report.proved
    assert report.forgotten == ["match", "join", "invoke"]


def test_an_archive_remembers_commits_but_not_what_came_after_them(spark: SparkSession) -> None:
    worked = Worked()
    history = worked.history(spark)
    remembered = replace(history.commits, remembered=frozenset(Stage))
    assert report_on(replace(history, commits=remembered), worked).proved
    earlier = {partition: replace(each, offset=each.offset - 10) for partition, each in remembered.match.items()}
    report = report_on(replace(history, commits=replace(remembered, match=earlier)), worked)
    assert report.forgotten == ["match"]
