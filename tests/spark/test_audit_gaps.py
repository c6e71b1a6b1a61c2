"""What cannot be known when a beginning is gone, and what strangers have written."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from eventbus.events import Event
from eventbus.formats import ACTION_HEADER, DLQ_HEADER, FLUSH_HEADER, VERSION, Flush, encode_fact, trigger_fact
from eventbus.hashing import partition_of, slot_key
from eventbus.metadata import JoinCommit
from eventbus.names import Kind
from eventbus.ports import Output, Record
from sensors.deadletters import INVALID_RECORD
from sensors.join import JoinPartition
from sensors.spark.audit import audit
from sensors.spark.records import Range
from tests.spark import rows
from tests.spark.tampering import found, letter, put, report_on, said, too_large, without
from tests.spark.worked import Worked

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

replace = msgspec.structs.replace


BOTH = partition_of(slot_key("both", b""), 2)
KEY = next(n for n in range(2, 6) if partition_of(slot_key("keyed", b"o%d" % n), 2) == BOTH)


class Lagging(Worked):
    """While it catches up, one partition of events is far ahead of the other."""

    def topic(self, kind: Kind, outputs: Iterable[Output]) -> list[Record]:
        def rank(output: Output) -> tuple[int, int]:
            source = trigger_fact(Record("", 0, 0, 0, None, None, output.headers)).source
            number = (source.timestamp - 1_000_000) // 1000
            if source.partition == 1:
                return (0 if number <= 53 else 2), number
            return (1 if number <= 8 * KEY + 4 else 3), number

        wanted = [each for each in outputs if each.topic == self.name.topic(kind)]
        return super().topic(kind, sorted(wanted, key=rank) if kind is Kind.TRIGGER else wanted)


def test_nobody_knows_the_clock_when_the_beginning_is_gone(spark: SparkSession) -> None:
    worked = Lagging()
    assert worked.verdict().violations == []
    history = worked.history(spark)
    assert said(report_on(history, worked)) == []
    facts = [(each, trigger_fact(each).source) for each in worked.triggers if each.partition == BOTH]
    ahead = [each for each, source in facts if source.partition == 1 and source.timestamp <= 1_053_000]
    history = without(spark, worked, history, {Kind.TRIGGER: (BOTH, ahead[-1].offset + 1)})
    assert said(report_on(history, worked)) == []


def test_what_was_too_large_when_the_letter_about_it_is_gone(spark: SparkSession) -> None:
    worked = Worked()
    too_large(worked)
    history = without(spark, worked, worked.history(spark), {Kind.DLQ: (0, worked.letters[-1].offset + 1)})
    assert said(report_on(history, worked)) == []


def _stranger(worked: Worked, fact: bytes) -> None:
    output = Output(worked.name.topic(Kind.ACTION), 0, b"x", b"hello", [(ACTION_HEADER, fact)])
    letter(worked, put(worked.actions, output), INVALID_RECORD)


def test_a_stranger_is_no_fault_of_another_trigger(spark: SparkSession) -> None:
    worked = Worked()
    _stranger(worked, b'{"v":1,"id":"x","t":"both"}')
    assert found(spark, worked) == []
    assert said(audit(worked.history(spark), worked.deputy, Range(), trigger="keyed")) == []


def test_strangers_that_are_almost_ours(spark: SparkSession) -> None:
    worked = Worked()
    _stranger(worked, b'{"id":"x","t":"both","e":[],"g":1}')
    _stranger(worked, b'{"v":1,"id":"y","t":"both","e":[["a"]],"g":"1"}')
    _stranger(worked, b'{"v":1,"id":"z","t":"both","e":[[["a"],["0","1","2"]]],"g":1}')
    assert found(spark, worked) == []


def test_keys_that_nobody_can_read(spark: SparkSession) -> None:
    worked = Worked()
    changed = [worked.action("both", 3), worked.action("both", 4)]
    worked.actions = [replace(each, key=b"\xff\xfe") if each in changed else each for each in worked.actions]
    assert found(spark, worked)


def test_a_dead_letter_that_is_almost_one_of_ours(spark: SparkSession) -> None:
    worked = Worked()
    fact = b'{"v":1,"reason":"invalid-event","stage":"match","partition":0,"offset":3,"timestamp":1006000}'
    put(worked.letters, Output(worked.name.topic(Kind.DLQ), 0, None, b"x", [(DLQ_HEADER, fact)]))
    assert found(spark, worked)


# --- how much came at a time ----------------------------------------------------------------------------------------


def test_a_flush_comes_to_the_same_however_the_records_are_batched() -> None:
    """What was held for an hour is moved by whoever commits in between, and then has no offset to be told apart by."""
    triggers = {"t": {"conditions": "a && b && c"}, "u": {"conditions": "a && b"}}
    deputy = rows.deputy(rows.manifest(triggers), triggers=1)
    plan = deputy.plan
    events = [
        rows.event_record(Event.new("shop", name, {}, id=name, traceparent=f"00-{n:032x}-{n:016x}-01"), n, at)
        for n, (name, at) in enumerate([("a", 1000), ("c", 1000), ("a", 5_000_000)])
    ]
    facts = [(each, trigger_fact(each)) for each in rows.matched(deputy, events)]
    asked = [each for each, fact in facts if fact.trigger == "u" or fact.source.offset < len(events) - 1]
    wanted = [replace(each, offset=n) for n, each in enumerate(asked)]
    fact = encode_fact(Flush(version=VERSION, trigger="t", fire=True))
    topic = plan.name.topic(Kind.TRIGGER)
    wanted.append(Record(topic, 0, len(wanted), 6_000_000, slot_key("t", b""), None, [(FLUSH_HEADER, fact)]))

    def actions(batches: list[list[Record]]) -> list[Any]:
        join = JoinPartition(plan, deputy.topology, 0, JoinCommit(plan.owner, 0, 0, {}), "")
        steps = [join.step(batch) for batch in batches]
        outputs = [output for step in steps if step is not None for output in step.outputs]
        return [output.headers for output in outputs if output.topic == plan.name.topic(Kind.ACTION)]

    assert actions([wanted]) == actions([[each] for each in wanted])
