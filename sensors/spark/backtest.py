"""What a sensor would have done: its own match and join over the events (or over the trigger topic) of the past.

All that concerns one trigger and correlation key is worked on in one place and in order; different ones are independent
of each other. Events of one partition keep their order. Those of different partitions have none: a sensor that runs
takes them as they come, a backtest by the time at which they were appended. The trigger topic is where a sensor has
fixed that order, so over it a backtest comes to what the sensor came to, action by action.

Nothing is invoked, and nothing is written but what somebody asks for.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

import msgspec
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from sensors.explain import Ids
from sensors.plan import SensorPlan
from sensors.scenarios import Firing
from sensors.spark.facts import trigger_facts
from sensors.spark.joins import ARRIVAL, OUTCOME, rehearsing
from sensors.spark.workers import ACTION, HELD, LETTER, MATCHED, TRIGGER, UNUSED, Deputy, matching

SHOWN = 1000
"""So many firings are listed."""
_HOUR = 3_600_000
_ROOM = 4
"""So many times as many places as usual, so that few partitions seldom meet in one."""


class PastFiring(msgspec.Struct, frozen=True):
    """A condition would have become true."""

    trigger: str
    key: str
    at: int
    """The time of its newest event, in milliseconds since 1970."""
    action: str
    events: Ids


class TriggerTotals(msgspec.Struct, frozen=True):
    """What came of one trigger."""

    trigger: str
    fired: int
    held: dict[str, int]
    """Events that wait for others in the end, by dependency."""
    let_go: dict[str, int]
    """Events that were not used, by reason; of a trigger with rules beyond its condition."""
    dead_letters: dict[str, int]
    """By reason."""


class Hour(msgspec.Struct, frozen=True):
    """How often a trigger fired in one hour."""

    start: int
    trigger: str
    fired: int


class Totals(msgspec.Struct, frozen=True):
    """All of it in numbers."""

    triggers: list[TriggerTotals]
    hours: list[Hour]
    dead_letters: dict[str, int]
    """Of events that no trigger could have used, by reason."""


class Backtest:
    """One sensor over one table of records. What it came to is computed once and kept until it is closed."""

    def __init__(self, deputy: Deputy, arrivals: DataFrame, clocks: Mapping[int, int]) -> None:
        self.plan: SensorPlan = deputy.plan
        slots = _met(deputy, arrivals).sortWithinPartitions("partition", "moment", "origin_partition", "origin_offset")
        self.outcomes = slots.mapInArrow(rehearsing(deputy, clocks=clocks), OUTCOME).persist(
            StorageLevel.MEMORY_AND_DISK
        )
        """Rows of `OUTCOME`."""

    @classmethod
    def of_events(cls, deputy: Deputy, events: DataFrame, *, in_order: bool = False) -> Backtest:
        """`events` are rows of `records.RECORD`; `in_order`: each partition in its own order and in one task."""
        plan = deputy.plan
        clocks: Mapping[int, int] = {}
        if _something_expires(plan):
            [row] = events.agg(F.max("timestamp").alias("last")).collect()
            clocks = dict.fromkeys(range(deputy.topology.trigger_partitions), row["last"] or 0)
        return cls(deputy, _arrivals_of_events(deputy, events, in_order=in_order), clocks)

    @classmethod
    def of_triggers(cls, deputy: Deputy, records: DataFrame) -> Backtest:
        """`records` are rows of `records.RECORD`: the sensor's trigger topic. What one event was enough for is not."""
        facts = trigger_facts(records)
        clocks: Mapping[int, int] = {}
        if _something_expires(deputy.plan):
            rows = facts.groupBy("partition").agg(F.max(_time_of_readable()).alias("last")).collect()
            clocks = {row["partition"]: row["last"] or 0 for row in rows}
        return cls(deputy, _arrivals_of_triggers(facts), clocks)

    def close(self) -> None:
        self.outcomes.unpersist()

    @property
    def firings(self) -> DataFrame:
        """The outcomes that are actions."""
        return self.outcomes.where(F.col("kind") == ACTION)

    def totals(self) -> Totals:
        rows = self.outcomes.groupBy("kind", "trigger", "reason").count().collect()
        start = F.floor(F.col("timestamp") / _HOUR) * _HOUR
        hours = self.firings.groupBy(start.alias("start"), "trigger").count().orderBy("start", "trigger").collect()
        counts: defaultdict[tuple[str, str | None], Counter[str]] = defaultdict(Counter)
        for row in rows:
            counts[row["kind"], row["trigger"]][row["reason"] or ""] += row["count"]
        strangers = {name for kind, name in counts if name is not None} - self.plan.triggers.keys()
        return Totals(
            [
                TriggerTotals(
                    name,
                    counts[ACTION, name].total(),
                    _by_name(counts[HELD, name]),
                    _by_name(counts[UNUSED, name]),
                    _by_name(counts[LETTER, name]),
                )
                for name in [*self.plan.triggers, *sorted(strangers)]
            ],
            [Hour(row["start"], row["trigger"], row["count"]) for row in hours],
            _by_name(counts[LETTER, None]),
        )

    def first_firings(self, count: int = SHOWN) -> list[PastFiring]:
        return [
            PastFiring(row["trigger"], row["slot"], row["timestamp"], row["action"], ids_in(row["events"]))
            for row in self.firings.orderBy(*self._order()).limit(count).collect()
        ]

    def expected(self) -> Iterator[Firing]:
        """All firings as a scenario has them, in the order in which `eventbus test` sees them."""
        for row in self.firings.orderBy(*self._order()).select("trigger", "events").toLocalIterator():
            yield Firing(row["trigger"], ids_in(row["events"]))

    def _order(self) -> list[Column]:
        """An event is offered to the triggers in the order of the manifest."""
        names = F.array(*map(F.lit, self.plan.triggers))
        number = F.array_position(names, F.col("trigger"))
        return [*map(F.col, ("moment", "origin_partition", "origin_offset")), number, F.col("slot")]


ids_in = msgspec.json.Decoder(Ids).decode
"""What `OUTCOME` has as `events`."""


# --- arrivals ---------------------------------------------------------------------------------------------------------


def _arrivals_of_events(deputy: Deputy, events: DataFrame, *, in_order: bool) -> DataFrame:
    """What the sensor would have had in its trigger topic, and what it had no need for that of.

    A moment never goes back within a partition, though a broker's clock may. The clock of a partition of the trigger
    topic knows only the events that went there.
    """
    arrivals = events.mapInArrow(matching(deputy, payload=True), MATCHED)
    if not in_order:
        as_appended = Window.partitionBy("source_partition").orderBy("source_offset")
        arrivals = arrivals.withColumn("moment", F.max("source_timestamp").over(as_appended))
    to_join = F.col("kind") == TRIGGER
    place = (F.crc32("key") % deputy.topology.trigger_partitions).cast("int")
    arrivals = arrivals.withColumns(
        {
            "partition": F.when(to_join, place).otherwise(F.col("source_partition")),
            "origin_partition": F.col("source_partition"),
            "origin_offset": F.col("source_offset"),
            "flush": F.lit(None).cast("binary"),
            "clock": F.lit(0).cast("bigint"),
        }
    )
    if _asks_for_time(deputy.plan) and not _enough_partitions(deputy, arrivals):
        as_joined = Window.partitionBy("partition").orderBy("moment", "source_partition", "source_offset")
        clock = F.max(F.when(to_join, F.col("source_timestamp"))).over(as_joined)
        arrivals = arrivals.withColumn("clock", F.coalesce(clock, F.lit(0)))
    return _columns(arrivals)


def _arrivals_of_triggers(facts: DataFrame) -> DataFrame:
    as_written = Window.partitionBy("partition").orderBy("offset")
    nothing = F.lit(None).cast("string")
    return _columns(
        facts.withColumn("clock", F.coalesce(F.max(_time_of_readable()).over(as_written), F.lit(0)))
        .withColumn("moment", F.col("clock"))
        .withColumn("origin_partition", F.col("partition"))
        .withColumn("origin_offset", F.col("offset"))
        .withColumn("kind", F.lit(TRIGGER))
        .withColumns(dict.fromkeys(("action", "reason", "events"), nothing))
    )


def _time_of_readable() -> Column:
    """A record without an event is a dead letter, and moves no clock."""
    return F.when(F.col("value").isNotNull(), F.col("source_timestamp"))


def _columns(arrivals: DataFrame) -> DataFrame:
    return arrivals.select(*(column.split()[0] for column in ARRIVAL.split(",")))


def _met(deputy: Deputy, arrivals: DataFrame) -> DataFrame:
    """All that may be joined meets; all else spreads.

    A sensor that asks for the time gets whole partitions where there are enough of them: their clock comes by itself.
    """
    anywhere = F.col("origin_offset").cast("string").cast("binary")
    whole = _asks_for_time(deputy.plan) and _enough_partitions(deputy, arrivals)
    together = F.col("partition").cast("string").cast("binary") if whole else F.col("key")
    place = F.when(F.col("kind") == TRIGGER, together).otherwise(anywhere)
    return arrivals.repartition(_spread(arrivals) * (_ROOM if whole else 1), place)


def _asks_for_time(plan: SensorPlan) -> bool:
    """Plain triggers do not."""
    return any(trigger.rules is not None for trigger in plan.triggers.values())


def _enough_partitions(deputy: Deputy, arrivals: DataFrame) -> bool:
    return deputy.topology.trigger_partitions >= arrivals.sparkSession.sparkContext.defaultParallelism


def _spread(arrivals: DataFrame) -> int:
    return int(arrivals.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)


def _something_expires(plan: SensorPlan) -> bool:
    return any(trigger.rules is not None and trigger.rules.ttl is not None for trigger in plan.triggers.values())


def _by_name(counts: Counter[str]) -> dict[str, int]:
    return dict(sorted(counts.items()))
