"""The sensor's own core inside Spark's Python workers: rows go in, what match and join make of them comes out.

A plan cannot travel (compiled filters, scripts in processes of their own), so the manifest does, and every worker
compiles it for itself. Rows come in batches; what a worker holds is one batch and what the sensor itself would hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, TypeAlias
from zlib import crc32

import msgspec
import pyarrow as pa

from eventbus.errors import FormatError
from eventbus.formats import (
    FLUSH_HEADER,
    TRIGGER_HEADER,
    action_fact,
    dead_letter,
    header,
    trigger_fact,
)
from eventbus.names import BusName, Kind
from eventbus.ports import Output, Record
from eventbus.topics import Topology
from sensors.explain import firing_of
from sensors.match import Matcher
from sensors.plan import SensorPlan
from sensors.rehearsal import Rehearsal
from sensors.sensor import Sensor
from sensors.spec.models import SensorManifest

Batches: TypeAlias = Iterable[pa.RecordBatch]
Worker: TypeAlias = Callable[[Batches], Batches]

TRIGGER, ACTION, LETTER, UNUSED, HELD, READ = "trigger", "action", "letter", "unused", "held", "read"
"""Kinds of what comes out. `read` tells how many records went in, and of which times."""
EVENTS, TRIGGERS = "events", "triggers"
"""Where they were from."""

MATCHED = (
    "kind string, trigger string, slot string, action string, reason string, source_partition int, "
    "source_offset bigint, source_timestamp bigint, content bigint, key binary, fact binary, value binary, "
    "events string"
)
"""What one event causes: a record for the trigger topic, an action, or a dead letter."""

JOINED = (
    "kind string, trigger string, slot string, action string, reason string, source_partition int, "
    "source_offset bigint, partition int, offset bigint, timestamp bigint, sources string, content bigint, "
    "events string"
)
"""A record of the trigger topic, and what it causes: an action, a dead letter, or an event that was let go.

`source_…` is the event in question, `partition` and `offset` the record (of an action: the one that completed it).
"""

TRIGGER_ROW = (
    *("partition", "offset", "timestamp", "key", "value", "fact", "flush"),
    *("chunk", "clock", "judged", "redriven"),
)
"""What `joining` wants to know of a record of the trigger topic."""

_REPLICA = "spark"


class Deputy(msgspec.Struct, frozen=True):
    """What a worker needs to know to stand in for a sensor."""

    manifest: SensorManifest
    bus: BusName
    topology: Topology

    @property
    def plan(self) -> SensorPlan:
        return Sensor.of(self.manifest).blueprint(self.bus).plan


# --- match ------------------------------------------------------------------------------------------------------------


def matching(deputy: Deputy, *, payload: bool) -> Worker:
    """Rows of `records.RECORD` → rows of `MATCHED`; with what is to be joined or shown only where it is asked for."""

    def work(batches: Batches) -> Batches:
        plan = deputy.plan
        matcher = Matcher(plan, deputy.topology, _REPLICA)
        topic = plan.name.event_topic
        for batch in batches:
            rows = _Rows(MATCHED)
            moments = []
            for record in _records(topic, batch):
                moments.append(record.timestamp)
                for output in matcher.outputs(record):
                    rows.add(*_matched(plan, record, output, payload=payload))
            if moments:
                read = None, min(moments), max(moments), len(moments)
                rows.add(READ, None, None, None, EVENTS, *read, None, None, None, None)
            yield rows.batch()

    return work


def _matched(plan: SensorPlan, record: Record, output: Output, *, payload: bool) -> tuple[object, ...]:
    source = record.partition, record.offset, record.timestamp
    made = Record(output.topic, output.partition, 0, 0, output.key, output.value, output.headers)
    if output.topic == plan.name.topic(Kind.TRIGGER):
        fact = trigger_fact(made)
        content = crc32(output.value or b"")
        carried = (output.key, header(output.headers, TRIGGER_HEADER), output.value) if payload else (None, None, None)
        return (TRIGGER, fact.trigger, fact.key, None, None, *source, content, *carried, None)
    if output.topic == plan.name.topic(Kind.ACTION):
        action = action_fact(made)
        content = crc32(output.value or b"")
        events = _events(plan, made) if payload else None
        return (ACTION, action.trigger, "", action.id, None, *source, content, output.key, None, None, events)
    letter = dead_letter(made)
    return (LETTER, letter.trigger, "", None, letter.reason, *source, None, None, None, None, None)


# --- join -------------------------------------------------------------------------------------------------------------


def joining(deputy: Deputy, *, clocks: Mapping[int, int], payload: bool) -> Worker:
    """Rows of the trigger topic → rows of `JOINED`.

    They come by `partition` and `chunk`, and in order of `offset` within those: a chunk begins where its slots hold
    nothing. `clock` is the partition's clock at that record, and `clocks` where it stands in the end. What is not
    `judged` is only told of.
    """

    def work(batches: Batches) -> Batches:
        rehearsals = _Rehearsals(deputy, clocks, payload=payload)
        for batch in batches:
            rows = _Rows(JOINED)
            for row in _trigger_rows(rehearsals.topic, batch):
                rehearsals.feed(row, rows)
            rehearsals.rest(rows)
            rows.add(READ, None, None, None, TRIGGERS, *[None] * 6, batch.num_rows, None)
            yield rows.batch()
        rows = _Rows(JOINED)
        rehearsals.end(rows)
        yield rows.batch()

    return work


class _TriggerRow(msgspec.Struct):
    record: Record
    chunk: int
    clock: int
    judged: bool
    redriven: bool


class _Rehearsals:
    """One after the other: the rows of a worker are sorted."""

    def __init__(self, deputy: Deputy, clocks: Mapping[int, int], *, payload: bool) -> None:
        self._plan = deputy.plan
        self._topology = deputy.topology
        self._clocks = clocks
        self._payload = payload
        self.topic = self._plan.name.topic(Kind.TRIGGER)
        self._place: tuple[int, int] = (-1, -1)
        self._rehearsal: Rehearsal | None = None

    def feed(self, row: _TriggerRow, rows: _Rows) -> None:
        record = row.record
        if not row.redriven:
            self._tell(record, rows)
        if not row.judged:
            return
        if self._rehearsal is None or self._place != (record.partition, row.chunk):
            self.end(rows)
            self._place = record.partition, row.chunk
            self._rehearsal = Rehearsal(self._plan, self._topology, record.partition, _REPLICA)
        for output in self._rehearsal.evaluate(record, row.clock):
            self._note(output, record, rows)

    def rest(self, rows: _Rows, clock: int = 0) -> None:
        if self._rehearsal is None:
            return
        partition = self._place[0]
        rest = self._rehearsal.rest(clock)
        for output in rest.outputs:
            self._note(output, Record(self.topic, partition, -1, 0, None, None, ()), rows)
        for unused in rest.unused:
            rows.add(UNUSED, unused.trigger, None, None, unused.gone.reason, *[None] * 8)

    def end(self, rows: _Rows) -> None:
        """What is held when all is told."""
        if self._rehearsal is None:
            return
        self.rest(rows, self._clocks.get(self._place[0], 0))
        for trigger in self._plan.triggers:
            for key, dependency, event in self._rehearsal.held(trigger):
                source = event.source
                place = source.partition, source.offset, self._place[0], event.offset, source.timestamp
                rows.add(HELD, trigger, key, None, dependency, *place, _encoded([source]), None, None)
        self._rehearsal = None

    def _tell(self, record: Record, rows: _Rows) -> None:
        if header(record.headers, FLUSH_HEADER) is not None:
            return
        try:
            fact = trigger_fact(record)
        except FormatError:
            return  # it has to be in the dead letters as what it is
        source = fact.source
        place = source.partition, source.offset, record.partition, record.offset, source.timestamp
        rows.add(TRIGGER, fact.trigger, fact.key, None, None, *place, None, crc32(record.value or b""), None)

    def _note(self, output: Output, record: Record, rows: _Rows) -> None:
        made = Record(output.topic, output.partition, 0, 0, output.key, output.value, output.headers)
        if output.topic == self._plan.name.topic(Kind.ACTION):
            fact = action_fact(made)
            newest = max(event.source.timestamp for event in fact.events)
            sources = _encoded([event.source for event in fact.events])
            events = _events(self._plan, made) if self._payload else None
            about = fact.trigger, fact.key, fact.id, None, None, None, record.partition, record.offset, newest
            rows.add(ACTION, *about, sources, crc32(output.value or b""), events)
        elif output.topic == self._plan.name.topic(Kind.DLQ):
            letter = dead_letter(made)
            if header(output.headers, TRIGGER_HEADER) is None:
                return
            held = trigger_fact(made)
            source = held.source
            place = source.partition, source.offset, record.partition, letter.offset, letter.timestamp
            rows.add(LETTER, held.trigger, held.key, None, letter.reason, *place, _encoded([source]), None, None)


_encode = msgspec.json.Encoder().encode


def _encoded(value: object) -> str:
    return _encode(value).decode()


def _events(plan: SensorPlan, action: Record) -> str:
    return _encoded(firing_of(plan, action).events)


# --- rows -------------------------------------------------------------------------------------------------------------


class _Rows:
    """What a worker has to say about one batch."""

    def __init__(self, schema: str) -> None:
        self._schema = schema
        self._rows: list[tuple[object, ...]] = []

    def add(self, *row: object) -> None:
        self._rows.append(row)

    def batch(self) -> pa.RecordBatch:
        schema = _arrow_schema(self._schema)
        columns: Iterable[Any] = zip(*self._rows, strict=True) if self._rows else ([] for _ in schema)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


@lru_cache
def _arrow_schema(columns: str) -> Any:
    types = {"string": pa.string(), "int": pa.int32(), "bigint": pa.int64(), "binary": pa.binary()}
    return pa.schema([(name, types[kind]) for name, kind in (column.split() for column in columns.split(","))])


def _records(topic: str, batch: pa.RecordBatch) -> Iterator[Record]:
    """Rows of `records.RECORD`. The headers of all of them are two flat lists."""
    headers = batch.column("headers")
    ends = headers.offsets.to_pylist()
    names = headers.values.field("key").to_pylist()
    values = headers.values.field("value").to_pylist()
    columns = (batch.column(name).to_pylist() for name in ("partition", "offset", "timestamp", "key", "value"))
    for number, (partition, offset, timestamp, key, value) in enumerate(zip(*columns, strict=True)):
        span = slice(ends[number], ends[number + 1])
        pairs = list(zip(names[span], values[span], strict=True))
        yield Record(topic, partition, offset, timestamp, key, value, pairs)


def _trigger_rows(topic: str, batch: pa.RecordBatch) -> Iterator[_TriggerRow]:
    names = (
        "partition",
        "offset",
        "timestamp",
        "key",
        "value",
        "fact",
        "flush",
        "chunk",
        "clock",
        "judged",
        "redriven",
    )
    columns = (batch.column(name).to_pylist() for name in names)
    for partition, offset, timestamp, key, value, fact, flush, *rest in zip(*columns, strict=True):
        found = [(FLUSH_HEADER, flush)] if fact is None and flush is not None else [(TRIGGER_HEADER, fact)]
        headers = [pair for pair in found if pair[1] is not None]
        yield _TriggerRow(Record(topic, partition, offset, timestamp, key, value, headers), *rest)
