"""Everything that is known of a sensor, as tables, and how far it had got when they were taken."""

from __future__ import annotations

from collections import defaultdict
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
from sensors.spark.entries import inside
from sensors.spark.records import (
    ENDLESS,
    Missing,
    Offsets,
    Range,
    Slice,
    await_markers,
    comes_in_order,
    from_kafka,
    read_topic,
    slice_of,
)

EVENT = "event"
"""The event topic, beside the sensor's own (`Kind`)."""
_IN_ORDER = (Kind.INVOCATION, Kind.ACTION, Kind.TRIGGER, Kind.STATE, Kind.DLQ)
"""What was driven back has been a dead letter before, and so has what is held no more because it has expired."""
CLOCKS_APART_MS = 60_000
"""By so much the clocks of replicas may be behind the brokers': what comes of an event may seem to be older than it."""


class MatchCommit(msgspec.Struct, frozen=True):
    owner: Owner
    offset: int


class Commits(msgspec.Struct, frozen=True):
    """What the stages have committed, by partition of their input. What lies beyond is under way."""

    match: Mapping[int, MatchCommit]
    join: Mapping[int, JoinCommit]
    invoke: Mapping[int, InvokeCommit]

    remembered: frozenset[Stage] = frozenset()
    """Stages of which Kafka has forgotten them, and an archive has not: they may have gone on since then."""

    @classmethod
    def of(cls, bus: Bus, name: SensorName, archive: Archive | None = None) -> Commits:
        """An archive remembers them for longer than Kafka does after a sensor has gone."""
        live = raw_commits(bus, name)
        kept = archive.commits(name) if archive is not None else None
        if kept is None:
            return cls.decoded(live)
        remembered = frozenset(stage for stage in Stage if not live[stage] and kept[stage])
        found = cls.decoded({stage: live[stage] or kept[stage] for stage in Stage})
        return msgspec.structs.replace(found, remembered=remembered)

    @classmethod
    def decoded(cls, raw: RawCommits) -> Commits:
        return cls(
            {p: MatchCommit(decode_match(each.metadata), each.offset) for p, each in raw[Stage.MATCH].items()},
            {p: decode_join(each.offset, each.metadata) for p, each in raw[Stage.JOIN].items()},
            {p: decode_invoke(each.offset, each.metadata) for p, each in raw[Stage.INVOKE].items()},
        )

    def of_stage(self, stage: Stage) -> Mapping[int, int]:
        """Up to where it has dealt with its input, by partition."""
        if stage is Stage.JOIN:
            return {partition: commit.position for partition, commit in self.join.items()}
        commits = self.match if stage is Stage.MATCH else self.invoke
        return {partition: commit.offset for partition, commit in commits.items()}

    def reached(self, stage: Stage) -> Mapping[int, int]:
        """How far it had looked, by partition. Actions finish in any order: what comes before that may be open."""
        if stage is not Stage.INVOKE:
            return self.of_stage(stage)
        return {p: max([each.offset, *(end for _, end in each.finished)]) for p, each in self.invoke.items()}

    def without_reopened(self, later: Commits) -> Commits:
        """These, without actions that were given back since then: who had taken them ahead no longer has."""
        invoke = {p: _in_both(each, later.invoke.get(p, each)) for p, each in self.invoke.items()}
        return msgspec.structs.replace(self, invoke=invoke)

    def all(self) -> list[MatchCommit | JoinCommit | InvokeCommit]:
        return [*self.match.values(), *self.join.values(), *self.invoke.values()]


def _in_both(one: InvokeCommit, other: InvokeCommit) -> InvokeCommit:
    """What both say is finished."""
    offset = min(one.offset, other.offset)
    spans = [(0, one.offset), *one.finished], [(0, other.offset), *other.finished]
    common = ((max(a, c), min(b, d)) for a, b in spans[0] for c, d in spans[1])
    finished = sorted((start, end) for start, end in common if offset < end and start < end)
    return msgspec.structs.replace(one, offset=offset, finished=tuple(finished))


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


class History(msgspec.Struct, frozen=True):
    """What a sensor has read and written."""

    name: SensorName
    tables: Mapping[str, DataFrame]
    """Records (`records.RECORD`) by `EVENT` and `Kind`."""
    slices: Mapping[str, Slice]
    commits: Commits
    missing: list[Missing]
    origins: Mapping[int, Mapping[int, int]]
    """From which event on a generation of the spec has been there, by partition; 0: whichever was the first."""
    in_order: frozenset[str] = frozenset()
    """The tables that come partition by partition, each in the order of its offsets and in one task."""
    since: int = 0
    """What was written before then is known only because clocks differ."""
    generation: int = 0
    """Of the spec, which is judged; what others have done is not."""
    ends: Mapping[str, Mapping[int, int]] = {}
    """Where the inputs have ended after all others were looked at; none: where their slices end."""
    buried_up_to: Mapping[int, int] = {}
    """Where the action topic had ended when its dead letters were looked at; none: where its slice ends."""
    begun: Mapping[Stage, frozenset[int]] = {}
    """Which partitions have commits by now: a stage may have made its first ones after the others were asked for."""
    floors: Mapping[str, Mapping[int, int]] = {}
    """Of an input: from which offset on all that came of it is known, by partition (`known.with_floors`)."""
    ceilings: Mapping[str, Mapping[int, int]] = {}
    """Of an input: from which offset on another generation may have dealt with it (`known.with_ceilings`)."""

    def offsets(self) -> int:
        """How many there are in all topics: at least as many as records."""
        return sum(end - start for each in self.slices.values() for start, end in each.offsets.values())

    def complete(self, kind: str) -> bool:
        """Whether a topic is known from its first record on."""
        wanted = self.slices[kind]
        return wanted.complete and not any(each.topic == wanted.topic for each in self.missing)

    def known(self, kind: str) -> Offsets:
        """What there is of a topic in one piece: all that comes after the last gap."""
        wanted = self.slices[kind]
        spans = {}
        for partition, (start, end) in wanted.offsets.items():
            gone = [each.end for each in self.missing if (each.topic, each.partition) == (wanted.topic, partition)]
            spans[partition] = (min(max(start, *gone), end) if gone else start, end)
        return spans

    def impossible(self, kind: str, partition: str, offset: str) -> str:
        """SQL: whether a place was not there yet when somebody had already spoken of it."""
        return _beyond(self.ends.get(kind) or _ends(self.slices[kind]), partition, offset)

    def never_buried(self, partition: str, offset: str) -> str:
        """SQL: whether a place in the action topic was not there yet when a dead letter had already spoken of it."""
        return _beyond(self.buried_up_to or _ends(self.slices[Kind.ACTION]), partition, offset)

    def cut(self, kind: str) -> list[int]:
        """The partitions of a topic of which something was asked for that is gone."""
        topic = self.slices[kind].topic
        return sorted({each.partition for each in self.missing if each.topic == topic})

    def judged(self, kind: str) -> Offsets:
        """Of an input: which offsets the sensor has dealt with, as far as they and all that came of them are known."""
        done = self.commits.of_stage(Stage.MATCH if kind == EVENT else Stage.JOIN)
        floors, ceilings = self.floors.get(kind, {}), self.ceilings.get(kind, {})
        spans = {}
        for partition, (start, end) in self.known(kind).items():
            low = max(start, floors.get(partition, 0))
            high = min(end, done.get(partition, 0), ceilings.get(partition, end))
            if kind == EVENT:
                first, last = self._in_charge(partition)
                low, high = max(low, first), min(high, last)
            spans[partition] = (low, max(low, high))
        return spans

    def _in_charge(self, partition: int) -> tuple[int, int]:
        """From which event to which the generation in question has matched them."""
        notes = {each: offsets[partition] for each, offsets in self.origins.items() if partition in offsets}
        last = min((offset for each, offset in notes.items() if each > self.generation), default=ENDLESS)
        before = [each for each in notes if each <= self.generation]
        if not notes or before == [0]:  # from the beginning on, as far as anybody knows
            return notes.get(0, 0), last
        return notes.get(self.generation, ENDLESS), last


def _ends(topic: Slice) -> dict[int, int]:
    return {partition: end for partition, (_, end) in topic.offsets.items()}


def _beyond(ends: Mapping[int, int], partition: str, offset: str) -> str:
    return f"NOT {inside({number: (0, end) for number, end in ends.items()}, partition, offset)}"


def look_at(spark: SparkSession, bus: Bus, name: SensorName, wanted: Range, archive: str | None = None) -> History:
    """Commits first, topics second: so everything that the commits speak of is in the topics.

    What speaks of others comes before those: nothing can speak of what is not there yet.
    """
    kept = None if archive is None else Archive.open(archive, name.bus)
    commits = Commits.of(bus, name, kept)
    topics = {kind.value: name.topic(kind) for kind in _IN_ORDER} | {EVENT: name.event_topic}
    reader = bus.cluster.reader()
    try:
        await_markers(bus.cluster, reader, (name.topic(kind) for kind in Kind), SystemClock())
        # What comes of an event is written later: the time in question ends for events only.
        since = None if wanted.since is None else max(wanted.since - CLOCKS_APART_MS, 0)
        open_end = Range(since)
        slices = {}
        for kind, topic in topics.items():
            if kind == Kind.DLQ:  # that something is held no more may be seen before the letter of the same transaction
                await_markers(bus.cluster, reader, [topic], SystemClock())
            asked = Range() if kind == Kind.STATE else wanted if kind == EVENT else open_end
            slices[kind] = slice_of(bus.cluster, reader, topic, asked)
        ends = {kind: _ends(slice_of(bus.cluster, reader, topics[kind], Range())) for kind in (EVENT, Kind.ACTION)}
        later = raw_commits(bus, name)
    finally:
        reader.close()
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
    begun = {stage: frozenset(found) for stage, found in later.items()}
    commits = commits.without_reopened(Commits.decoded(later))
    return History(
        name,
        tables,
        slices,
        commits,
        missing,
        origins,
        in_order,
        wanted.since or 0,
        ends={EVENT: ends[EVENT]},
        buried_up_to=ends[Kind.ACTION],
        begun=begun,
    )


def read_origins(state: DataFrame, topic: str) -> Mapping[int, Mapping[int, int]]:
    """Where the match stage has begun to read, generation by generation, as its notes in the state topic say."""
    rows = state.where('CAST(key AS string) LIKE \'["origin","match%\'').collect()
    origins: defaultdict[int, dict[int, int]] = defaultdict(dict)
    for record in sorted(as_python(topic, rows), key=lambda record: record.offset):
        key = decode_state_key(record)
        if isinstance(key, OriginKey) and record.value is not None:
            note = origin(record)
            origins[note.generation or 0][key.partition] = note.offset
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
