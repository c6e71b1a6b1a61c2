"""The way of records to the sensor's own core: what it would have come to, worked out again."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

from eventbus.names import Kind
from sensors.plan import SensorPlan
from sensors.rules import Rules
from sensors.spark import facts
from sensors.spark.concern import concerns_nobody
from sensors.spark.entries import inside, quoted
from sensors.spark.history import CLOCKS_APART_MS, EVENT, History
from sensors.spark.joins import JOINED, TRIGGER_ROW, joining
from sensors.spark.records import ENDLESS
from sensors.spark.workers import MATCHED, Deputy, matching, telling_times

_JOINED = "joined_partition", "joined_offset"
_SEEN = "seen"
_CLOCK_BLOCK = 100_000
"""Offsets of a partition whose clock one task works out."""


class Seen(msgspec.Struct, frozen=True):
    """What there was of the event topic. Should a cluster lose a worker, what that one has read counts again."""

    events: int = 0
    first: int | None = None
    last: int | None = None


def seen_by(collected: DataFrame) -> Seen:
    """What a query has seen of the events behind `matched`, whomever they concern: it has been collected.

    Spark's `Observation` would wait for ever where there is nothing to be seen, and Spark knows so beforehand.
    """
    metrics = collected._jdf.queryExecution().observedMetrics()  # noqa: SLF001 - nothing else tells without waiting
    if not metrics.contains(_SEEN):
        return Seen()
    row = metrics.apply(_SEEN)
    first, last = (None if row.isNullAt(at) else row.getLong(at) for at in (1, 2))
    return Seen(row.getLong(0), first, last)


def matched(history: History, deputy: Deputy, *, observed: bool) -> DataFrame:
    """What match makes of the events. `observed`: for `seen_by`."""
    events = history.tables[EVENT].where(inside(history.judged(EVENT), "partition", "offset"))
    if observed:
        events = events.observe(_SEEN, F.count("*"), F.min("timestamp"), F.max("timestamp"))
    return events.where(f"NOT {concerns_nobody(deputy.plan)}").mapInArrow(matching(deputy), MATCHED)


def beginnings(history: History, actions: DataFrame, plan: SensorPlan) -> DataFrame:
    """Where a slot is known to hold nothing: at its first action of this generation of the spec.

    It counts only if all that comes after it is known, too, and what time it was. All slots are there that have acted.
    """
    judged = history.judged(Kind.TRIGGER)
    remembering = [name for name, each in plan.triggers.items() if _remembers(each.rules)]
    own = actions.where(f"NOT redriven AND joined_offset IS NOT NULL AND generation = {plan.owner.generation}")
    own = own.where(inside(judged, *_JOINED))
    if remembering:
        own = own.where(~F.col("trigger").isin(remembering))
    forgetting = [name for name, each in plan.triggers.items() if each.rules is not None and each.rules.ttl is not None]
    if forgetting:
        timed = inside({p: (start, ENDLESS) for p, start in _known_times(history).items()}, *_JOINED)
        own = own.where(~F.col("trigger").isin(forgetting) | F.expr(timed))
    place = F.col("joined_partition").alias("partition"), "key"
    begun = own.groupBy(*place).agg(F.min("joined_offset").alias("begun"))
    slots = actions.where("joined_offset IS NOT NULL").select(*place, F.lit(True).alias("acted")).distinct()
    return slots.join(begun, ["partition", "key"], "left")


def _known_times(history: History) -> dict[int, int]:
    """From which record of the trigger topic on the clock of a partition is known, if what comes before it is not.

    All events that came before the first known record are older than that record is.
    """
    known = inside(history.known(Kind.TRIGGER), "partition", "offset")
    records = facts.trigger_facts(history.tables[Kind.TRIGGER]).where(known).where("value IS NOT NULL")
    firsts = records.groupBy("partition").agg(F.min_by("timestamp", "offset").alias("first"))
    reached = f"source_timestamp >= first + {CLOCKS_APART_MS}"
    rows = records.join(F.broadcast(firsts), "partition").where(reached).groupBy("partition")
    return {row["partition"]: row["start"] for row in rows.agg(F.min("offset").alias("start")).collect()}


def _remembers(rules: Rules | None) -> bool:
    """Whether a slot knows more than what it holds: what it has done or seen before."""
    return rules is not None and (rules.once_within is not None or rules.dedupe is not None)


def cuts_of(actions: DataFrame, plan: SensorPlan, block: int | None) -> DataFrame | None:
    """Where the long sequences are cut: offsets of the trigger topic, by partition and key."""
    plain = [name for name, each in plan.triggers.items() if each.rules is None and not each.direct]
    if block is None or not plain:
        return None
    own = actions.where(F.col("trigger").isin(plain) & F.expr("NOT redriven AND NOT failure"))
    last = own.groupBy(
        F.col("joined_partition").alias("partition"), "key", F.expr(f"CAST(joined_offset / {block} AS bigint) AS block")
    ).agg(F.max("joined_offset").alias("cut"))
    each = last.groupBy("partition", "key").agg(F.sort_array(F.collect_list("cut")).alias("cuts"))
    long = each.where("size(cuts) > 1")
    return None if long.isEmpty() else long


def joined(routed: DataFrame, history: History, deputy: Deputy, *, payload: bool) -> DataFrame:
    clocks = {partition: commit.clock for partition, commit in history.commits.join.items()}
    return routed.mapInArrow(joining(deputy, clocks=clocks, payload=payload), JOINED)


def routed(
    history: History, plan: SensorPlan, begun: DataFrame | None, actions: DataFrame, block: int | None
) -> DataFrame:
    """The trigger topic, on its way to the join. By `actions` long sequences are cut (`cuts_of`)."""
    records = facts.trigger_facts(history.tables[Kind.TRIGGER])
    judged = inside(history.judged(Kind.TRIGGER), "partition", "offset")
    if begun is not None:
        records = records.join(begun, ["partition", "key"], "left")
        judged = f"{judged} AND (coalesce(offset > begun, false) OR {_due_at_least(history, plan)})"
    records = records.withColumn("judged", F.expr(judged))
    if begun is None and Kind.TRIGGER in history.in_order:
        return _as_read(records)
    return _by_slot(plan, records, cuts_of(actions, plan, block))


def _due_at_least(history: History, plan: SensorPlan) -> str:
    """SQL, of trigger records of which the beginning is not known: whether their slot must act if it does so alone.

    It held what came before, too. So if it has never acted, and would have had it held less, an action is lost. With
    `within` and resets that is certain of events only that are newer than all that came before.
    """
    if len(history.origins) > 1 or history.origins.keys() - {0, plan.owner.generation}:
        return "false"  # it may have held less, by other rules
    rules = {name: each.rules or Rules() for name, each in plan.triggers.items() if not _remembers(each.rules)}
    windowed = {name for name, each in rules.items() if each.within is not None or each.resets}
    newer = f"coalesce(source_timestamp >= {history.since + CLOCKS_APART_MS}, true)"
    if not history.since or history.cut(Kind.TRIGGER):
        newer = "false"
    trigger = "substring_index(CAST(key AS string), char(0), 1)"
    due = f"{_among(trigger, rules.keys() - windowed)} OR ({_among(trigger, windowed)} AND {newer})"
    return f"(acted IS NULL AND timestamp >= {history.since} AND ({due}))"


def _among(column: str, names: Iterable[str]) -> str:
    listed = ", ".join(map(quoted, sorted(names)))
    return f"coalesce({column} IN ({listed}), false)" if listed else "false"


def _as_read(records: DataFrame) -> DataFrame:
    """Whole partitions in their own order, as the sensor itself reads them: enough of them to keep all cores busy.

    Nothing has to be moved, and the clock of a partition comes by itself.
    """
    return records.withColumns({"chunk": F.lit(0), "clock": F.lit(0).cast("bigint")}).select(*TRIGGER_ROW)


def _by_slot(plan: SensorPlan, records: DataFrame, cuts: DataFrame | None) -> DataFrame:
    """What concerns a slot meets in one place, and in order."""
    if any(each.rules is not None for each in plan.triggers.values()):
        records = clocked(records)
    else:
        records = records.withColumn("clock", F.lit(0).cast("bigint"))  # plain triggers ask for no time
    chunk = F.lit(0)
    if cuts is not None:
        records = records.join(F.broadcast(cuts), ["partition", "key"], "left")
        chunk = F.expr("greatest(size(filter(cuts, cut -> cut < offset)), 0)")
    slots = int(records.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)
    met = records.withColumn("chunk", chunk).select(*TRIGGER_ROW).repartition(slots, "key", "chunk")
    return met.sortWithinPartitions("partition", "chunk", "offset")


def timed(records: DataFrame) -> DataFrame:
    """Records of the trigger topic with the `time` that each of them tells; none where the core cannot read it."""
    schema = StructType([*records.schema.fields, StructField("time", LongType())])
    return records.mapInArrow(telling_times, schema)


def clocked(records: DataFrame) -> DataFrame:
    """Records of the trigger topic with the `clock` of their partition: the latest time in there up to each of them.

    It is worked out in blocks, so that no task has to see a whole partition.
    """
    blocks = timed(records).withColumn("block", F.expr(f"CAST(offset / {_CLOCK_BLOCK} AS bigint)"))
    peaks = blocks.groupBy("partition", "block").agg(F.max("time").alias("peak"))
    before = Window.partitionBy("partition").orderBy("block").rowsBetween(Window.unboundedPreceding, -1)
    peaks = peaks.select("partition", "block", F.max("peak").over(before).alias("earlier"))
    within = Window.partitionBy("partition", "block").orderBy("offset")
    blocks = blocks.withColumn("running", F.max("time").over(within))
    clock = F.expr("coalesce(greatest(running, earlier), 0)")
    return blocks.join(F.broadcast(peaks), ["partition", "block"]).withColumn("clock", clock)
