"""What clocks that differ, and a sensor that goes on while it is audited, make of an honest history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventbus.cloudevents import to_kafka
from eventbus.events import Event
from eventbus.formats import (
    action_fact,
    trigger_fact,
)
from eventbus.hashing import partition_of, slot_key
from eventbus.metadata import InvokeCommit, Owner
from eventbus.ports import Record
from sensors.spark.backtest import Backtest
from sensors.spark.history import CLOCKS_APART_MS, EVENT, Commits, History
from sensors.spark.workers import ACTION
from tests.spark.manifests import logged, sensor
from tests.spark.rows import table
from tests.spark.tampering import about, found, report_on, said
from tests.spark.worked import AT_MOST_ONCE, BUS, PARTITIONS, Worked, note

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

replace = msgspec.structs.replace


def _told(events: Sequence[tuple[str, Mapping[str, Any] | bytes, int, int]], **rules: Any) -> Worked:
    """Events by name, data, time and partition, in the order in which the match stage came to them."""
    keyed = {**logged("keyed", "a && b", **rules), "atLeastOnce": True}  # `Worked` gives up the first action of it
    sorry = {"template": {"name": "sorry", "log": {}}, "atLeastOnce": True}

    class There(Worked):
        manifest: ClassVar = sensor("s", dict.fromkeys("abcd", "shop"), [{**keyed, "dlqTrigger": sorry}])

        def sent(self) -> list[Record]:
            return [_sent(number, *event) for number, event in enumerate(events)]

    return There()


def _sent(number: int, name: str, data: Mapping[str, Any] | bytes, at: int, partition: int) -> Record:
    extra = {"datacontenttype": "application/json"} if isinstance(data, bytes) else {}
    headers, value = to_kafka(Event.new("shop", name, data, id=f"e{number}", **extra))
    return Record(BUS.event_topic, partition, 0, at, None, value, headers)


def _slots_beside(first: str, count: int, other: bool = False) -> list[str]:
    """Keys that are in the same partition of the trigger topic, or in the other one."""
    there = partition_of(slot_key("keyed", first.encode()), PARTITIONS)
    names = (f"o{n}" for n in range(1000))
    places = {each: partition_of(slot_key("keyed", each.encode()), PARTITIONS) for each in names}
    return [each for each, place in places.items() if (place == there) is not other][:count]


def _since(spark: SparkSession, worked: Worked, moment: int) -> History:
    """What `look_at` would see with `--since`: of each partition, from the first record on that is not older."""
    history = worked.history(spark)
    tables, slices = dict(history.tables), dict(history.slices)
    for kind, records in worked.logs().items():
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


def test_clocks_of_brokers_that_are_seconds_apart(spark: SparkSession) -> None:
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
    worked = _told(events, correlate={"by": "data.order"}, within="1s")
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


def test_what_was_given_back_a_moment_ago(spark: SparkSession) -> None:
    """Commits were asked for first. Then a replica has given back what it had taken and not begun."""
    worked = Worked()
    ahead = worked.action(AT_MOST_ONCE, 5)
    worked.forget_invocations(ahead)
    worked.notes += [note(ahead, "taken"), note(ahead, "released")]
    history = worked.history(spark)
    first = history.commits
    rest = (ahead.offset + 1, first.invoke[ahead.partition].offset)
    reopened = InvokeCommit(worked.owner, ahead.offset, (rest,))
    later = replace(first, invoke={**first.invoke, ahead.partition: reopened})
    assert about(report_on(history, worked).violations, ahead)
    assert said(report_on(replace(history, commits=first.without_reopened(later)), worked)) == []


_FINISHED = st.sets(st.integers(0, 12))


@given(_FINISHED, _FINISHED)
def test_of_two_commits_that_is_finished_which_both_say(one: set[int], other: set[int]) -> None:
    first, later = (Commits({}, {}, {0: _commit(each)}) for each in (one, other))
    both = first.without_reopened(later).invoke[0]
    assert both == _commit(one & other)


def _commit(finished: set[int]) -> InvokeCommit:
    """As the invoke stage writes it: up to where all is finished, and in pieces what is finished behind that."""
    runs: list[tuple[int, int]] = []
    for offset in sorted(finished):
        if runs and runs[-1][1] == offset:
            runs[-1] = (runs[-1][0], offset + 1)
        else:
            runs.append((offset, offset + 1))
    end = runs.pop(0)[1] if runs and runs[0][0] == 0 else 0
    return InvokeCommit(Owner(1, "digest"), end, tuple(runs))


BIG = b"1" * 1100


def _big_number(number: bytes) -> Worked:
    slots = _slots_beside("x", 12)
    events: list[tuple[str, Any, int, int]] = [
        ("a", {"order": "first"}, 1_000_000, 0),
        ("b", {"order": "first"}, 1_000_000, 1),
        *(("a", {"order": each}, 1_001_000, 0) for each in slots),
        ("a", b'{"order":"x","modulus":%b}' % number, 1_020_000, 0),
        *(("b", {"order": each}, 1_005_000, 1) for each in slots),  # of a partition that was read later
        ("a", {"order": _slots_beside("x", 1, other=True)[0]}, 1_000_000, 0),
    ]
    worked = _told(events, correlate={"by": "data.order"}, ttl="10s")
    assert [trigger_fact(each).key for each in worked.triggers].count("x") == 1
    assert len([each for each in worked.actions if action_fact(each).trigger == "keyed"]) == 1, "the others are expired"
    return worked


@pytest.mark.parametrize("number", [b"1", BIG], ids=["small", "big"])
def test_an_event_with_a_long_number_moves_the_clock(spark: SparkSession, number: bytes) -> None:
    worked = _big_number(number)
    assert worked.verdict().violations == []
    assert found(spark, worked) == []


@pytest.mark.parametrize("number", [b"1", BIG], ids=["small", "big"])
def test_a_backtest_of_the_trigger_topic_with_a_long_number(spark: SparkSession, number: bytes) -> None:
    worked = _big_number(number)
    test = Backtest.of_triggers(worked.deputy, table(spark, worked.triggers))
    fired = sorted(row["action"] for row in test.outcomes.where(f"kind = '{ACTION}'").collect())
    test.close()
    assert fired == sorted(action_fact(each).id for each in worked.actions if action_fact(each).failure is None)
