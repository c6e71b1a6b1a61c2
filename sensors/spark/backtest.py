"""What a sensor would have done: its own match and join over the events (or over the trigger topic) of the past.

All that concerns one trigger and correlation key is worked on in one place and in order; different ones are independent
of each other. Events of one partition keep their order. Those of different partitions have none: a sensor that runs
takes them as they come, a backtest by the time at which they were appended. The trigger topic is where a sensor has
fixed that order, so over it a backtest comes to what the sensor came to, action by action.

Nothing is invoked, and nothing is written but what somebody asks for.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping

import msgspec
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from sensors.explain import Ids
from sensors.plan import SensorPlan
from sensors.scenarios import Firing
from sensors.spark.concern import concerns_nobody
from sensors.spark.facts import trigger_facts
from sensors.spark.joins import OUTCOME, Arrival, rehearsing
from sensors.spark.packets import PACKET, packing, unpacking
from sensors.spark.report import HOUR, SHOWN, Firings
from sensors.spark.routing import clocked, timed
from sensors.spark.workers import ACTION, HELD, LETTER, UNUSED, Deputy

_ROOM = 2
ORDER = ("moment", "origin_partition", "origin_offset")
"""Of arrivals, and of the firings that they complete."""


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


class Totals(msgspec.Struct, frozen=True):
    """All of it in numbers."""

    triggers: list[TriggerTotals]
    hours: list[Firings]
    dead_letters: dict[str, int]
    """Of events that no trigger could have used, by reason."""


class Backtest:
    """One sensor over one table of records. What it came to is computed once and kept until it is closed."""

    def __init__(self, deputy: Deputy, outcomes: DataFrame) -> None:
        self.plan: SensorPlan = deputy.plan
        self.outcomes = outcomes.persist(StorageLevel.MEMORY_AND_DISK)
        """Rows of `OUTCOME`."""

    @classmethod
    def of_events(
        cls, deputy: Deputy, events: DataFrame, *, in_order: bool = False, beside: Iterable[Deputy] = ()
    ) -> Backtest:
        """`events` are rows of `records.RECORD`; `in_order`: each partition in its own order and in one task.

        `beside`: what this is to be compared with. By the events that one of them asks for, all have the same moments.
        A moment never goes back within a partition, though a broker's clock may. The clock of a partition of the
        trigger topic knows only the events that went there: who asks for the time gets whole partitions.
        """
        plan = deputy.plan
        clocks: Mapping[int, int] = {}
        if _something_expires(plan):
            [row] = events.agg(F.max("timestamp").alias("last")).collect()
            clocks = dict.fromkeys(range(deputy.topology.trigger_partitions), row["last"] or 0)
        events = events.where(f"NOT {concerns_nobody(plan, *(each.plan for each in beside))}")
        if not in_order:
            events = events.repartition(_places(events), "partition").sortWithinPartitions("partition", "offset")
        packets = events.mapInArrow(packing(deputy, by_slot=not _asks_for_time(plan)), PACKET)
        met = packets.repartition(_places(events), "place").sortWithinPartitions("place", *ORDER)
        return cls(deputy, met.mapInArrow(unpacking(deputy, clocks=clocks), OUTCOME))

    @classmethod
    def of_triggers(cls, deputy: Deputy, records: DataFrame) -> Backtest:
        """`records` are rows of `records.RECORD`: the sensor's trigger topic. What one event was enough for is not."""
        facts = trigger_facts(records)
        clocks: Mapping[int, int] = {}
        if _something_expires(deputy.plan):
            rows = timed(facts).groupBy("partition").agg(F.max("time").alias("last")).collect()
            clocks = {row["partition"]: row["last"] or 0 for row in rows}
        arrivals = _arrivals_of_triggers(facts)
        met = arrivals.repartition(_places(records), "key").sortWithinPartitions("partition", *ORDER)
        return cls(deputy, met.mapInArrow(rehearsing(deputy, clocks=clocks), OUTCOME))

    def close(self) -> None:
        self.outcomes.unpersist()

    @property
    def firings(self) -> DataFrame:
        """The outcomes that are actions."""
        return self.outcomes.where(F.col("kind") == ACTION)

    def totals(self) -> Totals:
        start = F.when(F.col("kind") == ACTION, F.floor(F.col("timestamp") / HOUR) * HOUR).alias("start")
        counts: defaultdict[tuple[str, str | None], Counter[str]] = defaultdict(Counter)
        hours: Counter[tuple[int, str]] = Counter()
        for row in self.outcomes.groupBy("kind", "trigger", "reason", start).count().collect():
            counts[row["kind"], row["trigger"]][row["reason"] or ""] += row["count"]
            if row["kind"] == ACTION:
                hours[row["start"], row["trigger"]] += row["count"]
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
            [Firings(start, trigger, fired) for (start, trigger), fired in sorted(hours.items())],
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
        return [*map(F.col, ORDER), number, F.col("number")]


ids_in = msgspec.json.Decoder(Ids).decode
"""What `OUTCOME` has as `events`."""


# --- arrivals ---------------------------------------------------------------------------------------------------------


def _arrivals_of_triggers(facts: DataFrame) -> DataFrame:
    arrivals = clocked(facts).withColumns(
        {"moment": F.col("clock"), "origin_partition": F.col("partition"), "origin_offset": F.col("offset")}
    )
    return arrivals.withColumn("number", F.lit(0)).select(*Arrival._fields)


def _asks_for_time(plan: SensorPlan) -> bool:
    """Plain triggers do not."""
    return any(trigger.rules is not None for trigger in plan.triggers.values())


def _places(table: DataFrame) -> int:
    """So many that few partitions seldom meet in one."""
    return _ROOM * int(table.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)


def _something_expires(plan: SensorPlan) -> bool:
    return any(trigger.rules is not None and trigger.rules.ttl is not None for trigger in plan.triggers.values())


def _by_name(counts: Counter[str]) -> dict[str, int]:
    return dict(sorted(counts.items()))
