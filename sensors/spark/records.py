"""Topics as tables of records: from Kafka, from an archive, or the one where the other has no more.

What Kafka's retention has removed, and no archive has kept, is said (`Missing`) and never passed over.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import TypeAlias

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from eventbus.bus import Bus
from eventbus.clock import Deadline, SystemClock
from eventbus.errors import ConfigError, RetriableError
from eventbus.ports import Clock, Cluster, Reader
from sensors.spark.archive import PARTITIONED_BY, Archive, Ranges, without

RECORD = (
    "partition int, offset bigint, timestamp bigint, key binary, value binary, "
    "headers array<struct<key: string, value: binary>>"
)
"""A record, as a row. The timestamp is milliseconds since 1970."""

Offsets: TypeAlias = Mapping[int, tuple[int, int]]
"""From which offset to which (exclusive), by partition."""

DAY = "yyyy-MM-dd"
"""How Spark writes the day by which an archive is partitioned."""

ENDLESS = 2**62
_MARKER_SECONDS = 30.0
_RETRY_SECONDS = 0.02
FETCH = {
    "kafka.isolation.level": "read_committed",
    "includeHeaders": "true",
    "failOnDataLoss": "true",
    "kafka.max.partition.fetch.bytes": str(8 << 20),
    "kafka.max.poll.records": "2000",
    # Spark keeps its consumers. One that has come to the end asks for more, and who uses it next waits for the answer.
    "kafka.fetch.max.wait.ms": "10",
}


class Missing(msgspec.Struct, frozen=True):
    """Offsets that were asked for and that nobody has any more."""

    topic: str
    partition: int
    start: int
    end: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]: the offsets {self.start:,} to {self.end - 1:,} are gone"


class Range(msgspec.Struct, frozen=True):
    """What of a topic is to be read: between two moments, or all of it."""

    since: int | None = None
    until: int | None = None


class Slice(msgspec.Struct, frozen=True):
    """What there is of one topic."""

    topic: str
    offsets: Offsets
    """What was asked for."""
    kept: Offsets
    """What of that Kafka still has."""
    complete: bool
    """Whether it begins with the topic's first record."""
    topic_id: str = ""
    remembers: int = ENDLESS
    """What was written since then Kafka still has, however little that may be."""


def slice_of(cluster: Cluster, reader: Reader, topic: str, wanted: Range) -> Slice:
    """The committed records of a topic, as of now: what is under way does not belong to it."""
    info = cluster.describe([topic])[topic]
    if info is None:
        raise ConfigError(f"the topic `{topic}` does not exist: nothing has been sent or run here under that name")
    retention = int(info.config.get("retention.ms", -1))
    oldest = SystemClock().now_ms() - retention if retention >= 0 else 0
    by_size = int(info.config.get("retention.bytes", -1)) >= 0
    remembers = ENDLESS if by_size else oldest
    offsets, kept = {}, {}
    for partition in range(info.partitions):
        first = reader.offsets(topic, partition)[0]
        end = reader.offset_at(topic, partition, ENDLESS if wanted.until is None else wanted.until)
        start = 0 if wanted.since is None else reader.offset_at(topic, partition, wanted.since)
        if wanted.since is not None and start <= first and (wanted.since < oldest or by_size):
            start = 0  # Kafka cannot know of it any more: what is gone may have been asked for
        offsets[partition] = (min(start, end), end)
        kept[partition] = (min(max(start, first), end), end)
    return Slice(topic, offsets, kept, complete=wanted.since is None, topic_id=info.id, remembers=remembers)


def end_of_committed(reader: Reader, topic: str, partition: int) -> int:
    """Where the first transaction begins that is open, else the partition's end."""
    return reader.offset_at(topic, partition, ENDLESS)


def await_markers(cluster: Cluster, reader: Reader, topics: Iterable[str], clock: Clock) -> None:
    """Wait until all that has been written by now is committed or aborted.

    A transaction's markers reach the partitions one by one: a stage's commit can be seen before the records that were
    written in the same transaction.
    """
    deadline = Deadline(clock, _MARKER_SECONDS)
    ends = {
        (topic, partition): reader.offsets(topic, partition)[1]
        for topic, info in cluster.describe(topics).items()
        if info is not None
        for partition in range(info.partitions)
    }
    for (topic, partition), end in ends.items():
        while end_of_committed(reader, topic, partition) < end:
            if deadline.over():
                raise RetriableError(f"{topic}[{partition}]: a transaction is open for more than {_MARKER_SECONDS:g} s")
            time.sleep(_RETRY_SECONDS)


def comes_in_order(spark: SparkSession, wanted: Slice) -> bool:
    """Whether Kafka's partitions are so many that none of them is split between tasks."""
    return len(_ranges(wanted)) >= spark.sparkContext.defaultParallelism


def _ranges(wanted: Slice) -> dict[int, tuple[int, int]]:
    return {partition: offsets for partition, offsets in wanted.kept.items() if offsets[0] < offsets[1]}


def from_kafka(spark: SparkSession, bus: Bus, wanted: Slice) -> DataFrame:
    """Its records, each partition in its own order within one task (or a few, where there are more cores)."""
    ranges = _ranges(wanted)
    if not ranges:
        return spark.createDataFrame([], RECORD)
    options = {
        **connection_options(bus),
        "assign": _json({wanted.topic: sorted(ranges)}),
        "startingOffsets": _json({wanted.topic: {str(partition): start for partition, (start, _) in ranges.items()}}),
        "endingOffsets": _json({wanted.topic: {str(partition): end for partition, (_, end) in ranges.items()}}),
        "minPartitions": str(max(len(ranges), spark.sparkContext.defaultParallelism)),
    }
    return as_records(spark.read.format("kafka").options(**FETCH, **options).load())


def connection_options(bus: Bus) -> dict[str, str]:
    """As Spark's Kafka connector wants them. It hides passwords and logins in what it logs."""
    return {f"kafka.{name}": value for name, value in bus.java_settings().items()}


def as_records(rows: DataFrame, *others: str) -> DataFrame:
    """What the Kafka connector yields, in our words; with other columns behind."""
    return rows.selectExpr(
        "partition", "offset", "unix_millis(timestamp) AS timestamp", "key", "value", "headers", *others
    )


def archived(spark: SparkSession, archive: Archive, topic: str) -> DataFrame:
    """All that an archive has of a topic: records, with the columns that it is partitioned by."""
    schema = ", ".join([RECORD, *(f"{column} string" for column in PARTITIONED_BY)])
    if not archive.has_records(topic):
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).parquet(str(archive.records(topic)))


def from_archive(spark: SparkSession, archive: Archive, wanted: Slice) -> DataFrame:
    """What of a topic is in an archive and, of what was asked for, not in Kafka any more."""
    covered = archive.covered(wanted.topic)  # first: the files may be more by the time they are read
    inside = F.lit(False)
    for partition, (start, _) in wanted.offsets.items():
        for low, high in covered.get(partition, ()):
            first, end = max(start, low), min(wanted.kept[partition][0], high)
            inside |= (F.col("partition") == partition) & (F.col("offset") >= first) & (F.col("offset") < end)
    rows = archived(spark, archive, wanted.topic).where(inside)
    return rows.select("partition", "offset", "timestamp", "key", "value", "headers")


def read_topic(
    spark: SparkSession, bus: Bus, found: Slice, wanted: Range, archive: Archive | None
) -> tuple[Slice, DataFrame, list[Missing]]:
    """Kafka's records, and before them those of the archive, which may know better where a time begins."""
    if archive is None:
        return found, from_kafka(spark, bus, found), lost_to_retention(found)
    archive.check_topic(found.topic, found.topic_id)
    found = reaching_back(spark, archive, found, wanted)
    records = from_archive(spark, archive, found).unionByName(from_kafka(spark, bus, found))
    return found, records, lost_to_retention(found, archive.covered(found.topic))


def reaching_back(spark: SparkSession, archive: Archive, found: Slice, wanted: Range) -> Slice:
    """The same slice, as far as the archive knows better than Kafka where its times begin and end."""
    covered = archive.covered(found.topic)
    firsts = {p: first for p, (first, _) in found.kept.items() if found.offsets[p][0] <= first and first > 0}
    if not firsts or not covered or (wanted.since is None and wanted.until is None):
        return found
    rows = archived(spark, archive, found.topic)
    starts = {} if wanted.since is None else _first_offsets(rows, wanted.since)
    stops = {} if wanted.until is None else _first_offsets(rows, wanted.until)
    offsets, kept = dict(found.offsets), dict(found.kept)
    for partition, first in firsts.items():
        ranges = covered.get(partition, ())
        start, end = found.offsets[partition]
        if wanted.since is not None and ranges:
            start = min(starts.get(partition, ranges[-1][1]), first)
            if len(ranges) > 1 or ranges[0][0] > 0:  # what is not known may belong to that time, too
                start = min(start, _last_offset(rows, partition, wanted.since) + 1)
        end = min(end, stops.get(partition, end))
        offsets[partition] = (min(start, end), end)
        kept[partition] = (min(first, end), end)
    return msgspec.structs.replace(found, offsets=offsets, kept=kept)


def _first_offsets(rows: DataFrame, moment: int) -> dict[int, int]:
    """The first offset at this time or later, by partition."""
    later = rows.where(
        (F.col("timestamp") >= moment) & F.expr(f"date >= date_format(timestamp_millis({moment}), '{DAY}')")
    )
    found = later.groupBy("partition").agg(F.min("offset").alias("first")).collect()
    return {row["partition"]: row["first"] for row in found}


def _last_offset(rows: DataFrame, partition: int, moment: int) -> int:
    """The last offset before this time; -1 where there is none."""
    older = rows.where((F.col("partition") == partition) & (F.col("timestamp") < moment))
    [row] = older.agg(F.max("offset").alias("last")).collect()
    return -1 if row["last"] is None else int(row["last"])


def lost_to_retention(wanted: Slice, covered: Mapping[int, Ranges] | None = None) -> list[Missing]:
    """What neither Kafka nor the archive has. Gaps between records are no loss: they are transactions' markers."""
    return [
        Missing(wanted.topic, partition, low, high)
        for partition, (start, _) in wanted.offsets.items()
        for low, high in without((start, wanted.kept[partition][0]), (covered or {}).get(partition, ()))
    ]


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
