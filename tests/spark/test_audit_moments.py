"""What clocks that differ, and a sensor that goes on while it is audited, make of an honest history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from eventbus.cloudevents import to_kafka
from eventbus.events import Event
from eventbus.formats import (
    TRIGGER_HEADER,
    Source,
    action_fact,
    encode_fact,
    trigger_fact,
)
from eventbus.hashing import partition_of, slot_key
from eventbus.metadata import InvokeCommit, encode_invoke, encode_join, encode_match
from eventbus.names import Kind, Stage
from eventbus.ports import Committed, Record
from sensors.deadletters import (
    INVALID_RECORD,
)
from sensors.spark import history as history_module
from sensors.spark.backtest import Backtest
from sensors.spark.history import CLOCKS_APART_MS, EVENT, History, look_at
from sensors.spark.records import Range
from sensors.spark.workers import ACTION
from tests.spark import worked as worked_module
from tests.spark.manifests import logged, sensor
from tests.spark.rows import table
from tests.spark.tampering import found, letter, report_on, said
from tests.spark.test_audit_beginnings import Forgetful, _gap_between_two_of_a_slot
from tests.spark.worked import AT_MOST_ONCE, BUS, PARTITIONS, Worked, note

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

replace = msgspec.structs.replace


def _told(
    monkeypatch: pytest.MonkeyPatch,
    events: Sequence[tuple[str, Mapping[str, Any] | bytes, int, int]],
    manifest: dict[str, Any],
) -> Worked:
    """Events by name, data, time and partition, in the order in which the match stage came to them."""

    def event(number: int) -> Record:
        name, data, at, partition = events[number]
        extra = {"datacontenttype": "application/json"} if isinstance(data, bytes) else {}
        made = Event.new("shop", name, data, id=f"e{number}", **extra)
        headers, value = to_kafka(made)
        return Record(BUS.event_topic, partition, 0, at, None, value, headers)

    class Here(Worked):
        pass

    Here.manifest = manifest
    monkeypatch.setattr(worked_module, "EVENTS", len(events))
    monkeypatch.setattr(worked_module, "_event", event)
    return Here()


def _ruled(**rules: Any) -> dict[str, Any]:
    """`Worked` gives up the first action of `keyed`, which is why there is one."""
    keyed = logged("keyed", "a && b", **rules)
    more = {"atLeastOnce": True, "dlqTrigger": {"template": {"name": "sorry", "log": {}}, "atLeastOnce": True}}
    return sensor("s", dict.fromkeys("abcd", "shop"), [{**keyed, **more}])


def _slots_beside(first: str, count: int, other: bool = False) -> list[str]:
    """Keys that are in the same partition of the trigger topic, or in the other one."""
    there = partition_of(slot_key("keyed", first.encode()), PARTITIONS)
    names = (f"o{n}" for n in range(1000))
    places = {each: partition_of(slot_key("keyed", each.encode()), PARTITIONS) for each in names}
    return [each for each, place in places.items() if (place == there) is not other][:count]


def _since(spark: SparkSession, worked: Worked, moment: int) -> History:
    """What `look_at` would see with `--since`: of each partition, from the first record on that is not older."""
    history = worked.history(spark)
    logs: dict[str, Sequence[Record]] = {
        EVENT: worked.events,
        Kind.TRIGGER: worked.triggers,
        Kind.ACTION: worked.actions,
        Kind.INVOCATION: worked.invocations(),
        Kind.DLQ: worked.letters,
    }
    tables, slices = dict(history.tables), dict(history.slices)
    for kind, records in logs.items():
        first = moment if kind == EVENT else moment - CLOCKS_APART_MS
        whole = slices[kind]
        spans = {}
        for partition, (_, end) in whole.offsets.items():
            own = sorted((e for e in records if e.partition == partition), key=lambda e: e.offset)
            spans[partition] = (next((e.offset for e in own if e.timestamp >= first), end), end)
        left = [each for each in records if each.offset >= spans[each.partition][0]]
        tables[kind] = table(spark, left)
        slices[kind] = replace(whole, offsets=spans, kept=spans, complete=False)
    return replace(history, tables=tables, slices=slices, since=moment)


def test_clocks_of_brokers_that_are_seconds_apart(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slot that has never acted, because it holds an event whose broker's clock is six seconds ahead."""
    slot, another = _slots_beside("x", 2)
    since = 2_000_000
    events = [
        ("a", {"order": another}, since - 3000, 0),
        ("b", {"order": another}, since - 2900, 1),
        ("a", {"order": slot}, since + 5000, 0),  # came a second before `since`, as all other clocks say
        ("a", {"order": slot}, since + 1000, 1),
        ("b", {"order": slot}, since + 1500, 1),
        ("a", {"order": _slots_beside("x", 1, other=True)[0]}, since + 6000, 0),
    ]
    worked = _told(monkeypatch, events, _ruled(correlate={"by": "data.order"}, within="1s"))
    times = [since - 2990, since - 2890, since - 1000, since + 1010, since + 1510]
    own = [each for each in worked.triggers if each.partition == worked.triggers[0].partition]
    assert len(own) == len(times)
    later = {each.offset: at for each, at in zip(own, times, strict=True)}
    worked.triggers = [replace(each, timestamp=later[each.offset]) if each in own else each for each in worked.triggers]
    fired = [each for each in worked.actions if action_fact(each).failure is None]
    assert [action_fact(each).key for each in fired] == [another]
    assert worked.verdict().violations == []
    assert found(spark, worked) == []
    assert said(report_on(_since(spark, worked, since), worked)) == []


def test_what_was_given_back_a_moment_ago(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commits were asked for first. Then a replica has given back what it had taken and not begun."""
    worked = Worked()
    ahead = worked.action(AT_MOST_ONCE, 5)
    worked.forget_invocations(ahead)
    worked.notes += [note(ahead, "taken"), note(ahead, "released")]
    history = worked.history(spark)
    ends = {p: commit.offset for p, commit in history.commits.invoke.items()}

    def commits(*, reopened: bool) -> dict[Stage, dict[int, Committed]]:
        invoke = {p: InvokeCommit(worked.owner, end, ()) for p, end in ends.items()}
        if reopened:
            place = ahead.partition
            invoke[place] = InvokeCommit(worked.owner, ahead.offset, ((ahead.offset + 1, ends[place]),))
        return {
            Stage.MATCH: {p: Committed(c.offset, encode_match(worked.owner)) for p, c in history.commits.match.items()},
            Stage.JOIN: {p: Committed(c.offset, encode_join(c)) for p, c in history.commits.join.items()},
            Stage.INVOKE: {p: Committed(c.offset, encode_invoke(c)) for p, c in invoke.items()},
        }

    by_topic = {each.topic: (each, history.tables[kind]) for kind, each in history.slices.items()}
    asked = iter([commits(reopened=False)])
    later = commits(reopened=True)
    monkeypatch.setattr(history_module, "raw_commits", lambda *_: next(asked, later))
    monkeypatch.setattr(history_module, "await_markers", lambda *_: None)
    monkeypatch.setattr(history_module, "slice_of", lambda _c, _r, topic, _w: by_topic[topic][0])
    monkeypatch.setattr(history_module, "read_topic", lambda _s, _b, each, _a, _k: (each, by_topic[each.topic][1], []))
    monkeypatch.setattr(history_module, "from_kafka", lambda _s, _b, each: by_topic[each.topic][1])
    monkeypatch.setattr(history_module, "comes_in_order", lambda *_: False)
    reader = SimpleNamespace(close=lambda: None)
    bus: Any = SimpleNamespace(cluster=SimpleNamespace(reader=lambda: reader), name=BUS)
    seen = look_at(spark, bus, worked.name, Range())
    assert said(report_on(seen, worked)) == []


BIG = b"1" * 1100


def _big_number(monkeypatch: pytest.MonkeyPatch, number: bytes) -> Worked:
    slots = _slots_beside("x", 12)
    events: list[tuple[str, Any, int, int]] = [
        ("a", {"order": "first"}, 1_000_000, 0),
        ("b", {"order": "first"}, 1_000_000, 1),
        *(("a", {"order": each}, 1_001_000, 0) for each in slots),
        ("a", b'{"order":"x","modulus":%b}' % number, 1_020_000, 0),
        *(("b", {"order": each}, 1_005_000, 1) for each in slots),  # of a partition that was read later
        ("a", {"order": _slots_beside("x", 1, other=True)[0]}, 1_000_000, 0),
    ]
    worked = _told(monkeypatch, events, _ruled(correlate={"by": "data.order"}, ttl="10s"))
    assert [trigger_fact(each).key for each in worked.triggers].count("x") == 1
    assert len([each for each in worked.actions if action_fact(each).trigger == "keyed"]) == 1, "the others are expired"
    return worked


@pytest.mark.parametrize("number", [b"1", BIG], ids=["small", "big"])
def test_an_event_with_a_long_number_moves_the_clock(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, number: bytes
) -> None:
    worked = _big_number(monkeypatch, number)
    assert worked.verdict().violations == []
    assert found(spark, worked) == []


@pytest.mark.parametrize("number", [b"1", BIG], ids=["small", "big"])
def test_a_backtest_of_the_trigger_topic_with_a_long_number(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, number: bytes
) -> None:
    worked = _big_number(monkeypatch, number)
    test = Backtest.of_triggers(worked.deputy, table(spark, worked.triggers))
    fired = sorted(row["action"] for row in test.outcomes.where(f"kind = '{ACTION}'").collect())
    test.close()
    assert fired == sorted(action_fact(each).id for each in worked.actions if action_fact(each).failure is None)


@pytest.mark.parametrize(
    "value",
    [
        b'{"specversion":"1.0","id":1,"source":"shop","type":"t"}',
        b'{"specversion":"1.0","id":"1","source":"shop","type":"t"} and more',
    ],
)
def test_a_stranger_that_spark_can_read_moves_no_clock(spark: SparkSession, value: bytes) -> None:
    worked = Forgetful()
    like, free = _gap_between_two_of_a_slot(worked)
    fact = replace(trigger_fact(like), source=Source(0, 10**6, 10**13))
    headers = [(TRIGGER_HEADER, encode_fact(fact))]
    stranger = Record(like.topic, like.partition, free, 2_000_000, like.key, value, headers)
    worked.triggers.append(stranger)
    letter(worked, stranger, INVALID_RECORD, Stage.JOIN)
    assert [each for each in found(spark, worked) if f"@{free}" not in each] == []
