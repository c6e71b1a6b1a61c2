"""Hands that tamper with what a sensor has left behind, and whoever looks at it then."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from eventbus.formats import (
    ACTION_HEADER,
    TRIGGER_HEADER,
    Failure,
    Source,
    UsedEvent,
    action_fact,
    dead_letter,
    encode_fact,
    trigger_fact,
)
from eventbus.metadata import JoinCommit
from eventbus.names import Kind, Stage
from eventbus.ports import Output, Record
from sensors.audit.violations import Violation, place_of
from sensors.deadletters import ACTION_FAILED, DeadLetters
from sensors.dlqactions import dlq_action
from sensors.join import JoinPartition
from sensors.redrive import original
from sensors.spark.audit import audit
from sensors.spark.history import History
from sensors.spark.records import Missing, Range
from sensors.spark.report import AuditReport
from tests.spark.manifests import logged
from tests.spark.rows import table
from tests.spark.worked import MANIFEST, REPLICA, TOPOLOGY, Worked, note

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

replace = msgspec.structs.replace


def report_on(history: History, worked: Worked) -> AuditReport:
    return audit(history, worked.deputy, Range())


def letter(worked: Worked, record: Record, reason: str, stage: Stage = Stage.INVOKE, **about: Any) -> Record:
    made = DeadLetters.of_stage(worked.name, stage, TOPOLOGY, REPLICA).of(record, reason, "", **about)
    return put(worked.letters, made)


def put(log: list[Record], output: Output) -> Record:
    """At the end of a log, where there is room."""
    offset = max((each.offset for each in log), default=0) + 1000
    record = Record(output.topic, output.partition, offset, 4_000_000, output.key, output.value, output.headers)
    log.append(record)
    return record


def forge(
    worked: Worked, like: Record, events: Sequence[Source] | None = None, *, key: bytes | None = None, **changes: Any
) -> Record:
    """An action that nothing has called for, and that was invoked. None: it says that it is of the same events."""
    fact = action_fact(like)
    if events is not None:
        used = tuple(UsedEvent((name,), source) for name, source in zip("ab", events, strict=False))
        fact = replace(fact, events=used)
    fact = replace(fact, **{"id": f"{len(worked.actions):032x}", **changes})
    headers = [(ACTION_HEADER, encode_fact(fact))]
    forged = put(worked.actions, Output(like.topic, like.partition, key or like.key, like.value, headers))
    worked.invoke(forged)
    return forged


def arrive(worked: Worked, record: Record) -> Record:
    """One more record of the trigger topic, and all that the sensor's own join makes of it."""
    join = JoinPartition(worked.plan, TOPOLOGY, record.partition, JoinCommit(worked.owner, 0, 0, {}), REPLICA)
    join.step([each for each in worked.triggers if each.partition == record.partition])
    record = replace(record, offset=worked.join_commits[record.partition].position)
    worked.triggers.append(record)
    step = join.step([record])
    assert step is not None
    worked.join_commits[record.partition] = step.commit
    for each in step.outputs:
        if each.topic == worked.name.topic(Kind.ACTION):
            worked.invoke(put(worked.actions, each))
        elif each.topic == worked.name.topic(Kind.DLQ):
            put(worked.letters, each)
    return record


def drive_back(worked: Worked, dead: Record, **changes: Any) -> Record:
    output = original(dead_letter(dead), dead)
    record = Record(output.topic, output.partition, 0, 2_500_000, output.key, output.value, output.headers)
    return arrive(worked, replace(record, **changes))


def forge_trigger_records(worked: Worked, sources: Sequence[Source], *headers: tuple[str, bytes]) -> list[Record]:
    """What comes of them is what has to come of them."""
    like = next(each for each in worked.triggers if trigger_fact(each).trigger == "both")
    forged = []
    for n, source in enumerate(sources):
        fact = encode_fact(replace(trigger_fact(like), dependencies=("ab"[n],), source=source))
        forged.append(arrive(worked, replace(like, timestamp=2_000_000, headers=[(TRIGGER_HEADER, fact), *headers])))
    return forged


def changed(name: str, template: Mapping[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    """The manifest, with something else said of one trigger, or (None) nothing."""
    triggers = [
        _present({**each, **fields, "template": _present({**each["template"], **(template or {})})})
        if each["template"]["name"] == name
        else each
        for each in MANIFEST["spec"]["triggers"]
    ]
    return {**MANIFEST, "spec": {**MANIFEST["spec"], "triggers": triggers}}


def _present(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def about(violations: Iterable[Violation], record: Record) -> list[str]:
    return [str(each) for each in violations if place_of(record) in (each.place, *each.events)]


def given_up_twice(worked: Worked) -> None:
    """Driven back from the dead letters, and in vain again: its dlqTrigger has two actions of one id."""
    before = next(each for each in worked.letters if dead_letter(each).reason == ACTION_FAILED)
    again = put(worked.actions, original(dead_letter(before), before))
    fact = action_fact(again)
    worked.notes.append(note(again, "dead-lettered", status="500"))
    letter(worked, again, ACTION_FAILED, trigger=fact.trigger, action=fact.id, attempts=1)
    sorry = put(worked.actions, dlq_action(again, fact, Failure(fact.id, "refused", 1), REPLICA))
    worked.notes.append(note(sorry, "succeeded", status="204"))


def too_large(worked: Worked) -> None:
    """The log would not take an action, nor the one that was due because another was given up."""
    letters = DeadLetters.of_stage(worked.name, Stage.JOIN, TOPOLOGY, REPLICA)
    refused = worked.action("both", 6)
    worked.actions.remove(refused)
    worked.forget_invocations(refused)
    output = Output(refused.topic, refused.partition, refused.key, refused.value, refused.headers)
    put(worked.letters, letters.of_refused(output, "too large"))
    failed = worked.action("keyed", 2)
    fact = action_fact(failed)
    worked.forget_invocations(failed)
    worked.notes.append(note(failed, "dead-lettered", status="500"))
    letter(worked, failed, ACTION_FAILED, trigger=fact.trigger, action=fact.id, attempts=1)
    put(worked.letters, letters.of_refused(dlq_action(failed, fact, Failure(fact.id, "refused", 1), REPLICA), "large"))


def without(spark: SparkSession, worked: Worked, history: History, firsts: dict[str, tuple[int, int]]) -> History:
    """The same history after retention: which partition of which topic begins where."""
    logs = worked.logs()
    tables, slices, missing = dict(history.tables), dict(history.slices), []
    for kind, (partition, first) in firsts.items():
        left = [each for each in logs[kind] if each.partition != partition or each.offset >= first]
        tables[kind] = table(spark, left)
        before = slices[kind]
        slices[kind] = replace(before, kept={**before.kept, partition: (first, before.kept[partition][1])})
        missing.append(Missing(before.topic, partition, 0, first))
    return replace(history, tables=tables, slices=slices, missing=missing)


def said(report: AuditReport) -> list[str]:
    return [str(each) for each in report.violations]


def found(spark: SparkSession, worked: Worked) -> list[str]:
    return said(report_on(worked.history(spark), worked))


class Later(Worked):
    """The second generation of a sensor, which has one trigger more than the first."""

    manifest: ClassVar = {
        **MANIFEST,
        "spec": {**MANIFEST["spec"], "triggers": [*MANIFEST["spec"]["triggers"], logged("late", "c")]},
    }
