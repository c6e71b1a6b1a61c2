"""Records as the tables that Spark reads, and what several backtests came to at once: a job takes a second or more."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from itertools import count
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from eventbus.cloudevents import from_kafka, to_kafka
from eventbus.events import Event
from eventbus.names import BusName
from eventbus.ports import Record
from eventbus.topics import Topology
from sensors.explain import Explainer, Fired
from sensors.match import Matcher
from sensors.sensor import Sensor
from sensors.spark.backtest import Backtest
from sensors.spark.records import RECORD
from sensors.spark.workers import Deputy
from sensors.spec.loader import make_manifest
from sensors.spec.models import SensorManifest
from tests.spark.manifests import sensor

BUS = BusName()


def table(spark: SparkSession, records: Iterable[Record]) -> DataFrame:
    """Not in order: nobody may rely on that."""
    rows = [(r.partition, r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in records]
    return spark.createDataFrame(rows[::-1], RECORD).coalesce(1)


def topology(events: int = 1, triggers: int = 2) -> Topology:
    return Topology(
        event_partitions=events,
        trigger_partitions=triggers,
        action_partitions=1,
        invocation_partitions=1,
        dlq_partitions=1,
    )


def event_record(event: Event, offset: int, timestamp: int, partition: int = 0) -> Record:
    headers, value = to_kafka(event)
    return Record(BUS.event_topic, partition, offset, timestamp, event.key, value, headers)


def manifest(
    triggers: Mapping[str, Mapping[str, Any]], dependencies: Mapping[str, Any] | None = None
) -> SensorManifest:
    """Triggers by name, with their templates; dependencies `a`, `b`, `c` with what else is said of them."""
    wanted = {name: (dependencies or {}).get(name, {}) for name in "abc"}
    written = [{"template": {"name": name, "log": {}, **rest}} for name, rest in triggers.items()]
    return make_manifest(sensor("s", wanted, written))


def deputy(manifest: SensorManifest, *, events: int = 1, triggers: int = 2) -> Deputy:
    return Deputy(manifest, BUS, topology(events, triggers))


def matched(deputy: Deputy, records: Iterable[Record]) -> list[Record]:
    """The trigger topic, if the events come like this."""
    matcher = Matcher(deputy.plan, deputy.topology, "test")
    offsets = defaultdict[int, Iterator[int]](count)
    return [
        Record(each.topic, each.partition, next(offsets[each.partition]), 0, each.key, each.value, each.headers)
        for record in records
        for each in matcher.outputs(record)
    ]


def explained(manifest: SensorManifest, records: Iterable[Record]) -> list[Fired]:
    """What `eventbus explain` says fires, if the events come like this."""
    explainer = Explainer(Sensor.of(manifest).blueprint(BUS).plan)
    return [
        fired
        for record in records
        for fired in explainer.feed(from_kafka(record.headers, record.value), record.timestamp).fired
    ]


def outcomes_of(backtests: Mapping[str, Backtest]) -> dict[str, list[Row]]:
    """The outcomes of each, in order; those that are nobody's doing come first."""
    tagged = [test.outcomes.withColumn("test", F.lit(name)) for name, test in backtests.items()]
    rows = reduce(DataFrame.unionByName, tagged).collect()
    found: dict[str, list[Row]] = {name: [] for name in backtests}
    for row in sorted(rows, key=lambda row: _order(backtests[row["test"]], row)):
        found[row["test"]].append(row)
    for test in backtests.values():
        test.close()
    return found


def _order(test: Backtest, row: Row) -> tuple[object, ...]:
    number = [*test.plan.triggers].index(row["trigger"]) if row["trigger"] in test.plan.triggers else -1
    return row["moment"] or 0, row["origin_partition"] or 0, row["origin_offset"] or 0, number, row["slot"]
