"""Topics as tables of records: from Kafka, from an archive, or the one where the other has no more.

What Kafka's retention has removed, and no archive has kept, is said (`Missing`) and never passed over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from eventbus.errors import ConfigError
from eventbus.ports import Cluster, Reader

RECORD = (
    "partition int, offset bigint, timestamp bigint, key binary, value binary, "
    "headers array<struct<key: string, value: binary>>"
)
"""A record, as a row. The timestamp is milliseconds since 1970."""

Offsets: TypeAlias = Mapping[int, tuple[int, int]]
"""From which offset to which (exclusive), by partition."""

_ENDLESS = 2**62
_FETCH = {
    "kafka.isolation.level": "read_committed",
    "includeHeaders": "true",
    "failOnDataLoss": "true",
    "kafka.max.partition.fetch.bytes": str(8 << 20),
    "kafka.max.poll.records": "2000",
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
    wanted: Range = Range()
    """Of which time. What Kafka has no more it cannot tell the time of: offsets may begin too early there."""


def slice_of(cluster: Cluster, reader: Reader, topic: str, wanted: Range) -> Slice:
    """The committed records of a topic, as of now: what is under way does not belong to it."""
    info = cluster.describe([topic])[topic]
    if info is None:
        raise ConfigError(f"the topic `{topic}` does not exist: nothing has been sent or run here under that name")
    offsets, kept = {}, {}
    for partition in range(info.partitions):
        first = reader.offsets(topic, partition)[0]
        end = reader.offset_at(topic, partition, _ENDLESS if wanted.until is None else wanted.until)
        since = first if wanted.since is None else reader.offset_at(topic, partition, wanted.since)
        start = 0 if since <= first else since  # what retention has removed may be of that time, too
        offsets[partition] = (min(start, end), end)
        kept[partition] = (min(max(start, first), end), end)
    return Slice(topic, offsets, kept, complete=wanted.since is None, wanted=wanted)


def from_kafka(spark: SparkSession, bootstrap_servers: str, wanted: Slice) -> DataFrame:
    """Its records, each partition in its own order within one task (or a few, where there are more cores)."""
    ranges = {partition: offsets for partition, offsets in wanted.kept.items() if offsets[0] < offsets[1]}
    if not ranges:
        return spark.createDataFrame([], RECORD)
    options = {
        "kafka.bootstrap.servers": bootstrap_servers,
        "assign": _json({wanted.topic: sorted(ranges)}),
        "startingOffsets": _json({wanted.topic: {str(partition): start for partition, (start, _) in ranges.items()}}),
        "endingOffsets": _json({wanted.topic: {str(partition): end for partition, (_, end) in ranges.items()}}),
        "minPartitions": str(max(len(ranges), spark.sparkContext.defaultParallelism)),
    }
    return as_records(spark.read.format("kafka").options(**_FETCH, **options).load())


def as_records(rows: DataFrame) -> DataFrame:
    """What the Kafka connector yields, in our words."""
    return rows.selectExpr("partition", "offset", "unix_millis(timestamp) AS timestamp", "key", "value", "headers")


def from_archive(spark: SparkSession, archive: str, wanted: Slice) -> DataFrame:
    """What of a topic is in an archive."""
    rows = spark.read.parquet(archive).where(F.col("topic") == wanted.topic)
    inside = F.lit(False)
    for partition, (start, end) in wanted.offsets.items():
        inside |= (F.col("partition") == partition) & (F.col("offset") >= start) & (F.col("offset") < end)
    return rows.where(inside).select("partition", "offset", "timestamp", "key", "value", "headers")


def table(
    spark: SparkSession, bootstrap_servers: str, wanted: Slice, archive: str | None
) -> tuple[DataFrame, list[Missing]]:
    """Kafka's records, and before them those of the archive."""
    kept = from_kafka(spark, bootstrap_servers, wanted)
    if archive is None:
        return kept, lost_to_retention(wanted)
    archived = from_archive(spark, archive, wanted)
    time = wanted.wanted
    older = F.lit(False)
    for partition, (first, _) in wanted.kept.items():
        older |= (F.col("partition") == partition) & (F.col("offset") < first)
    if time.since is not None:
        older &= F.col("timestamp") >= time.since
    if time.until is not None:
        older &= F.col("timestamp") < time.until
    bounds = [
        getattr(F, which)(of).alias(f"{which}_{of}") for of in ("offset", "timestamp") for which in ("min", "max")
    ]
    have = {}
    for row in archived.groupBy("partition").agg(*bounds).collect():
        start, first = wanted.offsets[row["partition"]][0], wanted.kept[row["partition"]][0]
        from_before = time.since is not None and row["min_timestamp"] < time.since
        until_after = time.until is not None and row["max_timestamp"] >= time.until
        begin = start if from_before else row["min_offset"]
        have[row["partition"]] = begin, max(row["max_offset"] + 1, first if until_after else 0)
    return archived.where(older).unionByName(kept), lost_to_retention(wanted, have)


def lost_to_retention(wanted: Slice, archived: Offsets | None = None) -> list[Missing]:
    """What neither Kafka nor the archive has. Gaps between records are no loss: they are transactions' markers."""
    missing = []
    for partition, (start, _) in wanted.offsets.items():
        first = wanted.kept[partition][0]
        have = (archived or {}).get(partition)
        if have is None:
            missing += [Missing(wanted.topic, partition, start, first)] if start < first else []
            continue
        begin = min(have[0], first)
        missing += [Missing(wanted.topic, partition, start, begin)] if start < begin else []
        missing += [Missing(wanted.topic, partition, have[1], first)] if have[1] < first else []
    return missing


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
