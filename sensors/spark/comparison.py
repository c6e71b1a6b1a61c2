"""Two versions of a sensor over the same past: what the one would have done and the other not."""

from __future__ import annotations

import msgspec
from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as F

from sensors.explain import Ids
from sensors.spark.backtest import ORDER, Backtest, PastFiring, ids_in
from sensors.spark.report import SHOWN

SAME, ADDED, REMOVED, CHANGED = "same", "added", "removed", "changed"


class Change(msgspec.Struct, frozen=True):
    """A trigger that fires in both versions when a certain event comes, with other events or contents."""

    trigger: str
    key: str
    at: int
    before: Ids
    after: Ids


class TriggerChanges(msgspec.Struct, frozen=True):
    """How many firings of one trigger."""

    trigger: str
    same: int
    added: int
    removed: int
    changed: int


class Comparison(msgspec.Struct, frozen=True):
    """From the old version to the new one. The lists are cut (`SHOWN`), the numbers are not."""

    triggers: list[TriggerChanges]
    added: list[PastFiring]
    removed: list[PastFiring]
    changed: list[Change]

    @property
    def differs(self) -> bool:
        return any(each.added or each.removed or each.changed for each in self.triggers)


def compare(old: Backtest, new: Backtest) -> Comparison:
    both = _side_by_side(old.firings, new.firings).persist()
    pairs = _paired(both).persist()
    try:
        counts = {(row["trigger"], row["what"]): row["count"] for row in _counted(pairs)}
        names = dict.fromkeys([*new.plan.triggers, *old.plan.triggers])
        return Comparison(
            [TriggerChanges(name, *(counts.get((name, what), 0) for what in _WHAT)) for name in names],
            [_firing(row, "new") for row in _listed(pairs, ADDED)],
            [_firing(row, "old") for row in _listed(pairs, REMOVED)],
            [_change(row) for row in _listed(pairs, CHANGED)],
        )
    finally:
        pairs.unpersist()
        both.unpersist()


_WHAT = (SAME, ADDED, REMOVED, CHANGED)


def _identified(firings: DataFrame) -> DataFrame:
    """A firing is what it is by its trigger, its key and its events, wherever these stand in it."""
    events = F.from_json("sources", "array<array<bigint>>")
    places = F.transform(events, lambda event: F.struct(event[0].alias("partition"), event[1].alias("offset")))
    return firings.select(
        "trigger",
        "slot",
        F.array_sort(F.array_distinct(places)).cast("string").alias("identity"),
        F.struct("timestamp", "action", "events", "content", *ORDER).alias("it"),
    )


def _side_by_side(old: DataFrame, new: DataFrame) -> DataFrame:
    left = _identified(old).withColumnRenamed("it", "old")
    right = _identified(new).withColumnRenamed("it", "new")
    return left.join(right, ["trigger", "slot", "identity"], "full_outer")


def _paired(both: DataFrame) -> DataFrame:
    """`what` says what the two are to each other, or what the one is without the other."""
    alike = both.where("old IS NOT NULL AND new IS NOT NULL").selectExpr(
        "trigger",
        "slot",
        "old",
        "new",
        f"if(old.events = new.events AND old.content = new.content, '{SAME}', '{CHANGED}') AS what",
    )
    gone = _completed(both.where("new IS NULL"), "old")
    come = _completed(both.where("old IS NULL"), "new")
    others = gone.join(come, ["trigger", "completed", "number"], "full_outer").select(
        "trigger",
        F.coalesce("new_slot", "old_slot").alias("slot"),
        "old",
        "new",
        _one_or_both().alias("what"),
    )
    return alike.unionByName(others)


def _completed(firings: DataFrame, side: str) -> DataFrame:
    """By the event that completed it. One event may complete several firings of a trigger: of different keys."""
    completed = F.struct(f"{side}.origin_partition", f"{side}.origin_offset")
    number = F.row_number().over(Window.partitionBy("trigger", "completed").orderBy("slot"))
    return (
        firings.withColumn("completed", completed)
        .withColumn("number", number)
        .select("trigger", "completed", "number", F.col("slot").alias(f"{side}_slot"), side)
    )


def _one_or_both() -> Column:
    return F.when(F.col("old").isNull(), ADDED).when(F.col("new").isNull(), REMOVED).otherwise(CHANGED)


def _counted(pairs: DataFrame) -> list[Row]:
    return pairs.groupBy("trigger", "what").count().collect()


def _listed(pairs: DataFrame, what: str) -> list[Row]:
    side = "old" if what == REMOVED else "new"
    order = [f"{side}.{column}" for column in ORDER]
    return pairs.where(F.col("what") == what).orderBy(*order, "trigger", "slot").limit(SHOWN).collect()


def _firing(row: Row, side: str) -> PastFiring:
    it = row[side]
    return PastFiring(row["trigger"], row["slot"], it["timestamp"], it["action"], ids_in(it["events"]))


def _change(row: Row) -> Change:
    before, after = row["old"], row["new"]
    ids = ids_in(before["events"]), ids_in(after["events"])
    return Change(row["trigger"], row["slot"], after["timestamp"], *ids)
