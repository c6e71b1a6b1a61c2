"""How long it took, how often it was tried, and what became of it: numbers over the same totals that were judged."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from eventbus.hashing import slot_key
from eventbus.names import Kind
from sensors.spark.accounts import REASONS, Accounts
from sensors.spark.entries import GIVEN_UP, KINDS, MODES, REPEATED, SETTLED
from sensors.spark.report import FIRING, INVOKING, WAITING, Bucket, HotKey, Hour, Latency, TriggerReport
from sensors.spark.workers import ACTION, EVENTS, HELD, READ, TRIGGERS, UNUSED

_STAGES = {
    FIRING: "greatest(written - newest_event, 0)",
    WAITING: "greatest(started - written, 0)",
    INVOKING: "greatest(ended - started, 0)",
}
_HOUR = 3_600_000
_HOT = 10
_TRIED = "(succeeded + failed + dead + lost)"


def trigger_reports(accounts: Accounts) -> list[TriggerReport]:
    """One for every trigger of the sensor, whether it has fired or not."""
    rows = (
        _actions(accounts)
        .groupBy("trigger")
        .agg(
            F.max("mode").alias("mode"),
            F.count("*").alias("fired"),
            F.expr(f"sum({_TRIED})").alias("attempts"),
            F.expr("count_if(succeeded > 0)").alias("succeeded"),
            F.expr(f"sum(greatest({_TRIED} - 1, 0))").alias("retries"),
            F.expr(f"count_if({REPEATED})").alias("repeated"),
            F.expr(f"count_if({SETTLED} AND {GIVEN_UP})").alias("given_up"),
            F.expr("count_if(letters > 0)").alias("dead_lettered"),
            F.expr("count_if(unfinished > 0)").alias("under_way"),
        )
        .collect()
    )
    known = {row["trigger"]: row for row in rows}
    held, unused = _let_go(accounts)
    return [
        _trigger_report(name, known.get(number), held[number], unused[number])
        for number, name in enumerate(accounts.names, start=1)
    ]


def _trigger_report(name: str, row: Row | None, held: int, unused: dict[str, int]) -> TriggerReport:
    counts = {
        column: 0 if row is None else row[column]
        for column in (
            *("fired", "attempts", "succeeded", "retries", "repeated"),
            *("given_up", "dead_lettered", "under_way"),
        )
    }
    mode = "" if row is None or row["mode"] is None else MODES[row["mode"]]
    return TriggerReport(trigger=name, mode=mode, held=held, unused=unused, **counts)


def _let_go(accounts: Accounts) -> tuple[defaultdict[int, int], defaultdict[int, dict[str, int]]]:
    held: defaultdict[int, int] = defaultdict(int)
    unused: defaultdict[int, dict[str, int]] = defaultdict(dict)
    rows = accounts.totals.where(F.col("kind").isin(KINDS[HELD], KINDS[UNUSED]))
    for row in rows.groupBy("kind", "trigger", "reason").agg(F.sum("found").alias("count")).collect():
        if row["kind"] == KINDS[HELD]:
            held[row["trigger"]] += row["count"]
        else:
            unused[row["trigger"]][REASONS[row["reason"] - 1]] = row["count"]
    return held, unused


def latencies(accounts: Accounts) -> list[Latency]:
    percentiles = [
        F.expr(f"percentile_approx({duration}, array(0.5, 0.9, 0.99), 1000)").alias(f"p{number}")
        for number, duration in enumerate(_STAGES.values())
    ]
    counts = [F.expr(f"count({duration})").alias(f"n{number}") for number, duration in enumerate(_STAGES.values())]
    longest = [F.expr(f"max({duration})").alias(f"m{number}") for number, duration in enumerate(_STAGES.values())]
    rows = _actions(accounts).groupBy("trigger").agg(*percentiles, *counts, *longest).orderBy("trigger").collect()
    return [
        _latency(accounts.names[row["trigger"] - 1], stage, row[f"n{number}"], [*row[f"p{number}"], row[f"m{number}"]])
        for row in rows
        for number, stage in enumerate(_STAGES)
        if row[f"n{number}"]
    ]


def _latency(trigger: str, stage: str, count: int, times: Sequence[int]) -> Latency:
    p50, p90, p99, longest = times
    return Latency(trigger, stage, count, p50, p90, p99, longest)


def records_read(accounts: Accounts) -> tuple[dict[str, int], int | None, int | None]:
    """How many records there were, by topic, and when the first and the last event came."""
    name, totals = accounts.plan.name, accounts.totals
    rows = totals.where(F.col("kind") == KINDS[READ]).collect()
    seen = {REASONS[row["reason"] - 1]: row for row in rows}
    events, triggers = seen.get(EVENTS), seen.get(TRIGGERS)
    notes = totals.agg(F.expr(f"coalesce(sum({_TRIED} + taken + released), 0)")).collect()[0][0]
    counts = {
        name.event_topic: 0 if events is None else events["found"],
        name.topic(Kind.TRIGGER): 0 if triggers is None else triggers["found"],
        name.topic(Kind.ACTION): accounts.actions.count(),
        name.topic(Kind.INVOCATION): notes,
    }
    return counts, None if events is None else events["written"], None if events is None else events["newest_event"]


def histogram(accounts: Accounts) -> list[Bucket]:
    """In powers of two: latencies are spread over many orders of magnitude."""
    durations = F.expr(
        "explode(array(" + ", ".join(f"struct({n} AS stage, {d} AS ms)" for n, d in enumerate(_STAGES.values())) + "))"
    )
    each = _actions(accounts).select(durations.alias("one")).where("one.ms IS NOT NULL")
    bucket = F.expr("CAST(pow(2, ceil(log2(greatest(one.ms, 1)))) AS bigint)").alias("up_to")
    rows = each.groupBy(F.col("one.stage").alias("stage"), bucket).count().orderBy("stage", "up_to").collect()
    stages = list(_STAGES)
    return [Bucket(stages[row["stage"]], row["up_to"], row["count"]) for row in rows]


def hours(accounts: Accounts) -> list[Hour]:
    hour = F.expr(f"CAST(floor(written / {_HOUR}) AS bigint) * {_HOUR}").alias("hour")
    counts = (
        F.count("*").alias("fired"),
        F.expr("count_if(succeeded > 0)").alias("succeeded"),
        F.expr("count_if(letters > 0)").alias("dead"),
    )
    rows = _actions(accounts).groupBy(hour, "trigger").agg(*counts).orderBy("hour", "trigger").collect()
    return [
        Hour(row["hour"], accounts.names[row["trigger"] - 1], row["fired"], row["succeeded"], row["dead"])
        for row in rows
    ]


def hot_keys(accounts: Accounts) -> list[HotKey]:
    """Those that most actions are about, of the triggers that have keys at all."""
    keyless = [slot_key(name, b"") for name in accounts.names]
    keyed = accounts.actions.where("NOT redriven AND NOT failure").where(~F.col("key").isin(*map(bytearray, keyless)))
    rows = keyed.groupBy("trigger", "key").count().orderBy(F.desc("count"), "key").limit(_HOT).collect()
    return [HotKey(row["trigger"], _key(row["trigger"], row["key"]), row["count"]) for row in rows if row["count"] > 1]


def dead_letters(accounts: Accounts) -> dict[str, int]:
    rows = accounts.letters.groupBy("reason").count().orderBy("reason").collect()
    return {row["reason"] or "unreadable": row["count"] for row in rows}


def _actions(accounts: Accounts) -> DataFrame:
    return accounts.totals.where(f"kind = {KINDS[ACTION]} AND records > 0 AND trigger > 0")


def _key(trigger: str, key: Sequence[int]) -> str:
    return bytes(key).removeprefix(slot_key(trigger, b"")).decode("utf-8", "replace")
