"""How long it took, how often it was tried, and what became of it: numbers over the same totals that were judged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from math import ceil
from operator import itemgetter

import msgspec
from pyspark.sql import Row
from pyspark.sql import functions as F

from eventbus.hashing import slot_key, trigger_and_key
from eventbus.names import Kind
from sensors.spark.accounts import REASONS, Accounts
from sensors.spark.entries import GIVEN_UP, KINDS, MODES, REPEATED, SETTLED
from sensors.spark.report import FIRING, HOUR, INVOKING, WAITING, Bucket, HotKey, Hour, Latency, TriggerReport
from sensors.spark.workers import ACTION, HELD, READ, UNUSED

_STAGES = {
    FIRING: "greatest(written - newest_event, 0)",
    WAITING: "greatest(started - written, 0)",
    INVOKING: "greatest(ended - started, 0)",
}
_HOT = 10
_TRIED = "(succeeded + failed + dead + lost)"
_COUNTS = {
    "fired": "count(*)",
    "attempts": f"sum({_TRIED})",
    "succeeded": "count_if(succeeded > 0)",
    "retries": f"sum(greatest({_TRIED} - 1, 0))",
    "repeated": f"count_if({REPEATED})",
    "given_up": f"count_if({SETTLED} AND {GIVEN_UP})",
    "dead_lettered": "count_if(letters > 0)",
}
_UNDER_WAY = "under_way"
_STEPS = 7
"""Latencies are counted to so many binary digits: to within 2 %, and up to 128 ms exactly."""


class Measures(msgspec.Struct, frozen=True, kw_only=True):
    """What a report says beside the verdict."""

    records: dict[str, int]
    first: int | None
    last: int | None
    triggers: list[TriggerReport]
    latencies: list[Latency]
    histogram: list[Bucket]
    hours: list[Hour]
    hot_keys: list[HotKey]
    dead_letters: dict[str, int]


def measure(accounts: Accounts) -> Measures:
    """Every query here costs Spark more to prepare than to run, so there are few, and all are prepared at a time."""
    told = _Told(accounts)
    with ThreadPoolExecutor() as beside:
        durations_asked = beside.submit(_durations, accounts)
        hot_keys_asked = beside.submit(_hot_keys, accounts)
        letters_asked = beside.submit(_dead_letters, accounts)
        lives = _lives(accounts)
    durations = durations_asked.result()
    name = accounts.plan.name
    return Measures(
        records={
            name.event_topic: accounts.seen.events,
            name.topic(Kind.TRIGGER): told.trigger_records(),
            name.topic(Kind.ACTION): sum(row["records"] for row in lives),
            name.topic(Kind.INVOCATION): sum(row["notes"] for row in lives),
        },
        first=accounts.seen.first,
        last=accounts.seen.last,
        triggers=list(_trigger_reports(accounts, told, [row for row in lives if row["known"]])),
        latencies=list(_latencies(accounts, durations)),
        histogram=_histogram(durations),
        hours=[
            Hour(row["hour"], _name(accounts, row), row["fired"], row["succeeded"], row["dead_lettered"])
            for row in lives
            if row["known"]
        ],
        hot_keys=hot_keys_asked.result(),
        dead_letters=letters_asked.result(),
    )


class _Told:
    """What the workers have counted: records that they read, and events that are held or were let go."""

    def __init__(self, accounts: Accounts) -> None:
        self._rows = accounts.brief

    def trigger_records(self) -> int:
        return sum(row["found"] for row in self._of(READ))

    def held(self, trigger: int) -> int:
        return sum(row["found"] for row in self._of(HELD) if row["trigger"] == trigger)

    def unused(self, trigger: int) -> dict[str, int]:
        return {_reason(row): row["found"] for row in self._of(UNUSED) if row["trigger"] == trigger}

    def _of(self, kind: str) -> Iterator[Row]:
        return (row for row in self._rows if row["kind"] == KINDS[kind])


def _reason(row: Row) -> str:
    return REASONS[row["reason"] - 1]


def _known(accounts: Accounts) -> str:
    """SQL, of the totals: actions that are there and were asked for, of triggers that the sensor has."""
    return f"(kind = {KINDS[ACTION]} AND records > 0 AND trigger > 0 AND written >= {accounts.history.since})"


def _lives(accounts: Accounts) -> list[Row]:
    """What became of the actions, by trigger and hour."""
    hour = F.expr(f"CAST(floor(written / {HOUR}) AS bigint) * {HOUR}").alias("hour")
    counts = {
        **_COUNTS,
        _UNDER_WAY: f"count_if(unfinished > 0 AND written >= {accounts.known_since})",
        "mode": "max(mode)",
        "records": f"sum(CASE WHEN kind = {KINDS[ACTION]} THEN records ELSE 0 END)",
        "notes": f"sum({_TRIED} + taken + released)",
    }
    return (
        accounts.totals.groupBy(hour, "trigger", F.expr(_known(accounts)).alias("known"))
        .agg(*(F.expr(sql).alias(name) for name, sql in counts.items()))
        .orderBy("hour", "trigger")
        .collect()
    )


def _trigger_reports(accounts: Accounts, told: _Told, lives: Sequence[Row]) -> Iterator[TriggerReport]:
    """One for every trigger of the sensor, whether it has fired or not."""
    for number, name in enumerate(accounts.names, start=1):
        own = [row for row in lives if row["trigger"] == number]
        mode = max((row["mode"] for row in own if row["mode"] is not None), default=0)
        yield TriggerReport(
            trigger=name,
            mode=MODES[mode],
            held=told.held(number),
            unused=told.unused(number),
            **{column: sum(row[column] for row in own) for column in (*_COUNTS, _UNDER_WAY)},
        )


def _durations(accounts: Accounts) -> list[Row]:
    """How many actions took how long, by trigger and stage: `step` and `longest` of those in a step."""
    each = ", ".join(f"struct({number} AS stage, {ms} AS ms)" for number, ms in enumerate(_STAGES.values()))
    durations = (
        accounts.totals.where(_known(accounts)).selectExpr("trigger", f"inline(array({each}))").where("ms IS NOT NULL")
    )
    beyond = durations.selectExpr("*", "greatest(ms, 1) - 1 AS rest")
    digits = f"greatest(length(bin(rest)) - {_STEPS}, 0)"
    step = F.expr(f"shiftleft(shiftright(rest, {digits}), {digits})").alias("step")
    counts = F.count("*").alias("count"), F.max("ms").alias("longest")
    return beyond.groupBy("trigger", "stage", step).agg(*counts).orderBy("trigger", "stage", "step").collect()


def _latencies(accounts: Accounts, durations: Sequence[Row]) -> Iterator[Latency]:
    stages = list(_STAGES)
    for (_, stage), group in groupby(durations, key=itemgetter("trigger", "stage")):
        rows = list(group)
        times = (*(_percentile(rows, share) for share in (0.5, 0.9, 0.99)), rows[-1]["longest"])
        yield Latency(_name(accounts, rows[0]), stages[stage], sum(row["count"] for row in rows), *times)


def _percentile(rows: Sequence[Row], share: float) -> int:
    left = ceil(share * sum(row["count"] for row in rows))
    for row in rows:
        left -= row["count"]
        if left <= 0:
            return int(row["longest"])
    return 0


def _histogram(durations: Sequence[Row]) -> list[Bucket]:
    """In powers of two: latencies are spread over many orders of magnitude."""
    counts: Counter[tuple[int, int]] = Counter()
    for row in durations:
        counts[row["stage"], 1 << row["step"].bit_length()] += row["count"]
    stages = list(_STAGES)
    return [Bucket(stages[stage], up_to, count) for (stage, up_to), count in sorted(counts.items())]


def _hot_keys(accounts: Accounts) -> list[HotKey]:
    """Those that most actions are about, of the triggers that have keys at all."""
    keyless = [slot_key(name, b"") for name in accounts.names]
    wanted = accounts.actions.where(f"NOT redriven AND NOT failure AND timestamp >= {accounts.history.since}")
    keyed = wanted.where(~F.col("key").isin(*map(bytearray, keyless)))
    rows = keyed.groupBy("key").count().orderBy(F.desc("count"), "key").limit(_HOT).collect()
    return [HotKey(*trigger_and_key(bytes(row["key"])), row["count"]) for row in rows if row["count"] > 1]


def _dead_letters(accounts: Accounts) -> dict[str, int]:
    wanted = accounts.letters.where(f"letter_timestamp >= {accounts.history.since}")
    rows = wanted.groupBy("reason").count().orderBy("reason").collect()
    return {row["reason"] or "unreadable": row["count"] for row in rows}


def _name(accounts: Accounts, row: Row) -> str:
    number: int = row["trigger"]
    return accounts.names[number - 1]
