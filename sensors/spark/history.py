"""Everything that is known of a sensor, as tables, and how far it had got when they were taken."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
from pyspark.sql import DataFrame, Row, SparkSession

from eventbus.bus import Bus
from eventbus.clock import SystemClock
from eventbus.metadata import InvokeCommit, JoinCommit, Owner, decode_invoke, decode_join, decode_match
from eventbus.names import Kind, SensorName, Stage
from eventbus.ports import Record
from eventbus.stateformats import OriginKey, decode_state_key, origin
from sensors.inspection import stable_commits
from sensors.spark.archive import Archive, RawCommits
from sensors.spark.records import Missing, Range, Slice, await_markers, comes_in_order, from_kafka, read_topic, slice_of

EVENT = "event"
"""The event topic, beside the sensor's own (`Kind`)."""


class MatchCommit(msgspec.Struct, frozen=True):
    owner: Owner
    offset: int


class Commits(msgspec.Struct, frozen=True):
    """What the stages have committed, by partition of their input. What lies beyond is under way."""

    match: Mapping[int, MatchCommit]
    join: Mapping[int, JoinCommit]
    invoke: Mapping[int, InvokeCommit]

    @classmethod
    def of(cls, bus: Bus, name: SensorName) -> Commits:
        return cls.decoded(raw_commits(bus, name))

    @classmethod
    def decoded(cls, raw: RawCommits) -> Commits:
        return cls(
            {p: MatchCommit(decode_match(each.metadata), each.offset) for p, each in raw[Stage.MATCH].items()},
            {p: decode_join(each.offset, each.metadata) for p, each in raw[Stage.JOIN].items()},
            {p: decode_invoke(each.offset, each.metadata) for p, each in raw[Stage.INVOKE].items()},
        )


def raw_commits(bus: Bus, name: SensorName) -> RawCommits:
    """What the stages have committed, as Kafka keeps it."""
    clock = SystemClock()
    return {
        stage: {
            partition: commit
            for partition, commit in stable_commits(
                bus.cluster, name.group(stage), name.input_topic(stage), clock
            ).items()
            if commit is not None
        }
        for stage in Stage
    }


def archived_commits(directory: str, name: SensorName) -> Commits | None:
    """How far a sensor had got just before it was archived for the last time; None where it never was."""
    raw = Archive.open(directory, name.bus).commits(name)
    return None if raw is None else Commits.decoded(raw)


class History(msgspec.Struct, frozen=True):
    """What a sensor has read and written."""

    name: SensorName
    tables: Mapping[str, DataFrame]
    """Records (`records.RECORD`) by `EVENT` and `Kind`."""
    slices: Mapping[str, Slice]
    commits: Commits
    missing: list[Missing]
    origins: Mapping[int, int]
    """From which event on the sensor has been there, by partition."""
    in_order: frozenset[str] = frozenset()
    """The tables that come partition by partition, each in the order of its offsets and in one task."""

    def offsets(self) -> int:
        """How many there are in all topics: at least as many as records."""
        return sum(end - start for each in self.slices.values() for start, end in each.offsets.values())

    def complete(self, kind: str) -> bool:
        """Whether a topic is known from its first record on."""
        wanted = self.slices[kind]
        return wanted.complete and not any(each.topic == wanted.topic for each in self.missing)

    def judged(self, kind: str) -> Mapping[int, tuple[int, int]]:
        """Of an input: which offsets the sensor has dealt with, as far as they are known."""
        done = (
            {p: commit.offset for p, commit in self.commits.match.items()}
            if kind == EVENT
            else {p: commit.position for p, commit in self.commits.join.items()}
        )
        spans = {}
        for partition, (start, end) in self.slices[kind].offsets.items():
            low = max(start, self.origins.get(partition, 0)) if kind == EVENT else start
            spans[partition] = (low, max(low, min(end, done.get(partition, 0))))
        return spans


def look_at(spark: SparkSession, bus: Bus, name: SensorName, wanted: Range, archive: str | None = None) -> History:
    """Commits first, topics second: so everything that the commits speak of is in the topics."""
    commits = Commits.of(bus, name)
    topics = {EVENT: name.event_topic} | {kind.value: name.topic(kind) for kind in Kind}
    reader = bus.cluster.reader()
    try:
        await_markers(bus.cluster, reader, (name.topic(kind) for kind in Kind), SystemClock())
        # What comes of an event is written later: the time in question ends for events only.
        open_end = Range(wanted.since)
        slices = {
            kind: slice_of(
                bus.cluster,
                reader,
                topic,
                Range() if kind == Kind.STATE else wanted if kind == EVENT else open_end,
            )
            for kind, topic in topics.items()
        }
    finally:
        reader.close()
    kept = None if archive is None else Archive.open(archive, name.bus)
    tables: dict[str, DataFrame] = {}
    missing: list[Missing] = []
    for kind, each in slices.items():
        if kind == Kind.STATE:  # a compacted topic is meant to have lost its beginning, and is not archived
            tables[kind] = from_kafka(spark, bus, each)
            continue
        asked = wanted if kind == EVENT else open_end
        slices[kind], tables[kind], lost = read_topic(spark, bus, each, asked, kept)
        missing += lost
    origins = read_origins(tables[Kind.STATE], slices[Kind.STATE].topic)
    in_order = frozenset(kind for kind, each in slices.items() if kept is None and comes_in_order(spark, each))
    return History(name, tables, slices, commits, missing, origins, in_order)


def read_origins(state: DataFrame, topic: str) -> Mapping[int, int]:
    """Where the match stage has begun to read, as its notes in the state topic say."""
    rows = state.where('CAST(key AS string) LIKE \'["origin","match",%\'').collect()
    origins = {}
    for record in sorted(as_python(topic, rows), key=lambda record: record.offset):
        key = decode_state_key(record)
        if isinstance(key, OriginKey) and record.value is not None:
            origins[key.partition] = origin(record).offset
    return origins


def as_python(topic: str, rows: Iterable[Row]) -> list[Record]:
    """Rows of `records.RECORD` that were collected."""
    return [
        Record(
            topic,
            row["partition"],
            row["offset"],
            row["timestamp"],
            None if row["key"] is None else bytes(row["key"]),
            None if row["value"] is None else bytes(row["value"]),
            [(each["key"], None if each["value"] is None else bytes(each["value"])) for each in row["headers"] or ()],
        )
        for row in rows
    ]
