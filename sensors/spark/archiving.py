"""Topics become an archive: one structured streaming query per topic, which takes what is there and ends.

Spark plans a batch (offsets) before it reads it, lists a batch's files at once and marks it as done last, so a crash at
any moment loses and repeats nothing. Here is what Spark does not do: it is told before that Kafka has removed records,
which commits of the sensors the archive goes with, and that only one archiver is at work.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import msgspec
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from eventbus.bus import Bus
from eventbus.clock import SystemClock
from eventbus.cloudevents import CONTENT_TYPE, STRUCTURED, STRUCTURED_JSON
from eventbus.errors import ConfigError, FatalError
from eventbus.names import BusName, Kind, SensorName
from eventbus.ports import Reader, TopicInfo
from sensors.spark.archive import PARTITIONED_BY, Archive, Gap, Reach, without
from sensors.spark.history import raw_commits
from sensors.spark.records import (
    DAY,
    FETCH,
    Missing,
    archived,
    as_records,
    await_markers,
    connection_options,
    end_of_committed,
)

BATCH_RECORDS = 200_000
"""Of a topic, at a time."""

_ARCHIVED_KINDS = (Kind.TRIGGER, Kind.ACTION, Kind.INVOCATION, Kind.DLQ)
_LOOK_SECONDS = 1
_LABEL_BYTES = 240
"""Folders may be called by 255 bytes, of which `source=` needs some."""
_SHORTEST_LABEL = _LABEL_BYTES // 3
"""Every character of a label may be written as three in a path (`%2F`)."""

OnBatch: TypeAlias = Callable[[str, int], None]
"""Called with a topic and how many records of it were added."""


class ArchivedTopic(msgspec.Struct, frozen=True):
    """What became of one topic."""

    topic: str
    records: int
    """How many were added by this run."""
    offsets: Mapping[int, tuple[int, int]]
    """From where to where it is archived, by partition."""
    files: int


class _Topic(msgspec.Struct, frozen=True):
    name: str
    labels: tuple[str, str]
    """SQL: the source and the type of its records."""


class _Run(msgspec.Struct, frozen=True):
    """What is needed from the beginning of a run to its end."""

    spark: SparkSession
    reader: Reader
    stopped: threading.Event
    on_batch: OnBatch


class Archiver:
    """Hold the archive's lock while you use it."""

    def __init__(
        self,
        bus: Bus,
        archive: Archive,
        sensors: Sequence[SensorName],
        *,
        batch_records: int = BATCH_RECORDS,
        accept_loss: bool = False,
    ) -> None:
        self._bus = bus
        self._archive = archive
        self._sensors = sensors
        self._topics = topics_of(bus.name, sensors)
        self._batch_records = batch_records
        self._accept_loss = accept_loss
        self._clock = SystemClock()
        self._added = {topic.name: 0 for topic in self._topics}

    def check(self) -> dict[str, TopicInfo]:
        """That this archive can have these topics: there is no need to start Spark to find out that it cannot."""
        self._archive.check(self._bus.name)
        infos = self._describe()
        for topic, info in infos.items():
            self._archive.check_topic(topic, info.id)
        return infos

    def run(self, spark: SparkSession, stopped: threading.Event, on_batch: OnBatch) -> None:
        """Archive what is there now, or until `stopped`; then the batch that is under way is still finished."""
        infos = self.check()
        self._archive.introduce(self._bus.name, {topic: info.id for topic, info in infos.items()})
        now = self._clock.now_ms()
        commits = {name: raw_commits(self._bus, name) for name in self._sensors}
        reader = self._bus.cluster.reader()
        try:
            outputs = [name.topic(kind) for name in self._sensors for kind in _ARCHIVED_KINDS]
            await_markers(self._bus.cluster, reader, outputs, self._clock)
            losses = {topic: self._losses(reader, info) for topic, info in infos.items()}
            self._refuse([loss for each in losses.values() for loss in each])
            for topic in self._topics:
                if not stopped.is_set() and self._has_news(reader, infos[topic.name]):
                    run = _Run(spark, reader, stopped, on_batch)
                    self._archive_topic(run, infos[topic.name], topic, losses[topic.name])
        finally:
            reader.close()
        if not stopped.is_set():  # taken first and written last: all that they speak of is archived by now
            for name, each in commits.items():
                self._archive.keep_commits(name, each, now)

    def report(self) -> list[ArchivedTopic]:
        """What all runs together have added."""
        found = []
        for topic in self._topics:
            reach = self._archive.reach(topic.name) or Reach({}, {}, pending=False)
            offsets = {partition: (reach.starts[partition], end) for partition, end in sorted(reach.ends.items())}
            found.append(ArchivedTopic(topic.name, self._added[topic.name], offsets, self._archive.files(topic.name)))
        return found

    def _describe(self) -> dict[str, TopicInfo]:
        found = self._bus.cluster.describe(topic.name for topic in self._topics)
        missing = [topic for topic, info in found.items() if info is None]
        if missing:
            raise ConfigError(
                f"the topic `{missing[0]}` does not exist: nothing has been sent or run here under that name"
            )
        return {topic: info for topic, info in found.items() if info is not None}

    # --- what retention has removed -----------------------------------------------------------------------------------

    def _losses(self, reader: Reader, info: TopicInfo) -> list[Gap]:
        """What Kafka has removed since the last run and before it was archived."""
        reach = self._archive.reach(info.name)
        if reach is None:  # an archive begins with what there is
            return []
        firsts = {partition: reader.offsets(info.name, partition)[0] for partition in range(info.partitions)}
        return [
            Gap(info.name, partition, reach.ends.get(partition, 0), first)
            for partition, first in firsts.items()
            if reach.ends.get(partition, 0) < first
        ]

    def _refuse(self, losses: Sequence[Gap]) -> None:
        about = self._archive.about()
        accepted = {} if about is None else {(gap.topic, gap.partition, gap.start): gap.end for gap in about.gaps}
        news = [
            Missing(loss.topic, loss.partition, *span)
            for loss in losses
            for span in without(
                (loss.start, loss.end), [(loss.start, accepted.get((loss.topic, loss.partition, loss.start), 0))]
            )
        ]
        if news and not self._accept_loss:
            raise FatalError(
                "\n".join(map(str, news)) + "\nKafka's retention has removed them before they were archived. "
                "--accept-loss archives the rest and keeps note of the gap; run it more often than retention strikes"
            )
        self._archive.accept(losses)

    # --- one topic ----------------------------------------------------------------------------------------------------

    def _has_news(self, reader: Reader, info: TopicInfo) -> bool:
        """To start a query is not free, and most topics are quiet most of the time."""
        reach = self._archive.reach(info.name)
        return (
            reach is None
            or reach.pending
            or any(
                end_of_committed(reader, info.name, partition) > reach.ends.get(partition, 0)
                for partition in range(info.partitions)
            )
        )

    def _archive_topic(self, run: _Run, info: TopicInfo, topic: _Topic, losses: Sequence[Gap]) -> None:
        if losses:
            self._pass_over(run, topic, losses)
        self._query(run, info, topic)

    def _pass_over(self, run: _Run, topic: _Topic, losses: Sequence[Gap]) -> None:
        """Let Spark begin behind what is lost. Only for so long it may pass over anything."""
        query = self._start(run.spark, topic, strict=False)
        try:
            self._follow(query, topic.name, run, until=lambda: self._is_past(losses))
        finally:
            query.stop()
        rows = archived(run.spark, self._archive, topic.name)
        for loss in losses:
            kept_from = run.reader.offsets(topic.name, loss.partition)[0]
            if kept_from > loss.end:  # retention went on meanwhile: what has been read in time?
                later = rows.where(f"partition = {loss.partition} AND offset >= {loss.end}").selectExpr("min(offset)")
                [(found,)] = later.collect()
                end = kept_from if found is None else min(found, kept_from)
                self._archive.accept([Gap(loss.topic, loss.partition, loss.start, end)])

    def _is_past(self, losses: Sequence[Gap]) -> bool:
        reach = self._archive.reach(losses[0].topic)
        return reach is not None and all(reach.ends.get(loss.partition, 0) >= loss.end for loss in losses)

    def _query(self, run: _Run, info: TopicInfo, topic: _Topic) -> None:
        query = self._start(run.spark, topic, strict=True)
        try:
            self._follow(query, topic.name, run)
        except StreamingQueryException:
            self._refuse(self._losses(run.reader, info))  # the likely reason, in words that help
            raise
        finally:
            query.stop()

    def _start(self, spark: SparkSession, topic: _Topic, *, strict: bool) -> StreamingQuery:
        options = {
            **FETCH,
            **connection_options(self._bus),
            "subscribe": topic.name,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(self._batch_records),
            "failOnDataLoss": str(strict).lower(),
        }
        rows = spark.readStream.format("kafka").options(**options).load()
        return (
            # Each folder gets one file per batch, however many partitions the topic has.
            labelled(rows, *topic.labels)
            .repartition(*PARTITIONED_BY)
            .writeStream.format("parquet")
            .partitionBy(*PARTITIONED_BY)
            .option("checkpointLocation", str(self._archive.checkpoint(topic.name)))
            .trigger(availableNow=True)
            .start(str(self._archive.records(topic.name)))
        )

    def _follow(self, query: StreamingQuery, topic: str, run: _Run, until: Callable[[], bool] = lambda: False) -> None:
        seen, last_wanted, ended = -1, None, False
        while not ended:
            ended, reached = bool(query.awaitTermination(_LOOK_SECONDS)), until()
            for progress in query.recentProgress:
                if progress["batchId"] > seen:
                    seen = progress["batchId"]
                    if progress["numInputRows"]:
                        self._added[topic] += progress["numInputRows"]
                        run.on_batch(topic, progress["numInputRows"])
            ended = ended or (reached and seen >= 0)  # a batch is told of only after it is committed
            if run.stopped.is_set():
                last_wanted = seen + 1 if last_wanted is None else last_wanted
                ended = ended or seen >= last_wanted


def topics_of(bus: BusName, sensors: Sequence[SensorName]) -> list[_Topic]:
    """The event topic, and those of the sensors that are logs."""
    own = [
        _Topic(name.topic(kind), (f"'{name.sensor}'", f"'{kind.value}'"))
        for name in dict.fromkeys(sensors)
        for kind in _ARCHIVED_KINDS
    ]
    return [_Topic(bus.event_topic, (_attribute("source"), _attribute("type"))), *own]


def labelled(rows: DataFrame, source: str, type_: str) -> DataFrame:
    """Kafka's rows as records, with the columns that they are partitioned by."""
    dated = rows.selectExpr("*", f"date_format(timestamp, '{DAY}') AS date")
    records = as_records(dated, "date")
    return records.selectExpr("*", f"{_label(source)} AS source", f"{_label(type_)} AS type")


def _attribute(name: str) -> str:
    """SQL: an attribute of the CloudEvent that a record carries, in either mode; null where it cannot be read."""
    named = f"lower(h.key) = '{CONTENT_TYPE}'"
    content_type = f"trim(lower(CAST({_last_header(named)} AS string)))"
    own = f"h.key = 'ce_{name}'"
    binary = f"try_validate_utf8(CAST({_last_header(own)} AS string))"
    structured = f"get_json_object(try_validate_utf8(CAST(value AS string)), '$.{name}')"
    return (
        f"CASE WHEN trim(substring_index({content_type}, ';', 1)) = '{STRUCTURED_JSON}' THEN {structured} "
        f"WHEN {content_type} LIKE '{STRUCTURED}%' THEN NULL ELSE {binary} END"
    )


def _last_header(condition: str) -> str:
    return f"try_element_at(filter(headers, h -> {condition}), -1).value"


def _label(text: str) -> str:
    """SQL: a text that can be a folder on any file system, whatever Java's locale is."""
    plain = f"regexp_replace({text}, '[^ -~]', '_')"
    in_a_path = f"length(regexp_replace({plain}, '[^A-Za-z0-9._-]', '%XX'))"
    return f"CASE WHEN {in_a_path} <= {_LABEL_BYTES} THEN {plain} ELSE left({plain}, {_SHORTEST_LABEL}) END"
