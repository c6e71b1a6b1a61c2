"""The sensor's own core inside Spark's Python workers: rows go in, what match and join make of them comes out.

A plan cannot travel (compiled filters, scripts in processes of their own), so the manifest does, and every worker
compiles it for itself. Rows come in batches; what a worker holds is one batch and what the sensor itself would hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import count
from typing import Any, NamedTuple, TypeAlias
from zlib import crc32

import msgspec
import pyarrow as pa

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

TRIGGER, ACTION, LETTER, UNUSED, HELD = "trigger", "action", "letter", "unused", "held"
"""Kinds of what comes out."""

MATCHED = (
    "kind string, trigger string, slot string, action string, reason string, source_partition int, "
    "source_offset bigint, source_timestamp bigint, content bigint, key binary, fact binary, value binary, "
    "events string"
)
"""What one event causes: a record for the trigger topic, an action, or a dead letter."""

JOINED = (
    "kind string, trigger string, slot string, action string, reason string, partition int, offset bigint, "
    "timestamp bigint, sources string, content bigint, events string"
)
"""What one record of the trigger topic causes: an action, a dead letter, or an event that was let go."""

ARRIVAL = (
    f"{MATCHED}, flush binary, partition int, clock bigint, moment bigint, origin_partition int, origin_offset bigint"
)
"""What match has made, or has made once, on its way to the join.

`partition` is that of the trigger topic and `clock` its clock. By `moment`, `origin_partition` and `origin_offset` all
arrivals have an order.
"""

OUTCOME = f"{JOINED}, moment bigint, origin_partition int, origin_offset bigint"
"""What one arrival causes, and which (null: nobody but time itself). Offsets are numbers in order of arrival."""

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
            for record in _records(topic, batch):
                for output in matcher.outputs(record):
                    rows.add(*_matched(plan, record, output, payload=payload))
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
    nothing. `clock` is the partition's clock at that record, and `clocks` where it stands in the end.
    """

    def work(batches: Batches) -> Batches:
        rehearsals = _Rehearsals(deputy, clocks, payload=payload)
        for batch in batches:
            rows = _Rows(JOINED)
            for record, chunk, clock in _trigger_records(rehearsals.topic, batch):
                rehearsals.feed(record, chunk, clock, rows)
            rehearsals.rest(rows)
            yield rows.batch()
        rows = _Rows(JOINED)
        rehearsals.end(rows)
        yield rows.batch()

    return work


def rehearsing(deputy: Deputy, *, clocks: Mapping[int, int]) -> Worker:
    """Rows of `ARRIVAL` → rows of `OUTCOME`. What needs no join passes through.

    All that concerns a slot comes to one worker, by `partition` and in order.
    """

    def work(batches: Batches) -> Batches:
        rehearsals = _Rehearsals(deputy, clocks, payload=True)
        numbers = count()
        for batch in batches:
            rows = _Rows(OUTCOME)
            for arrival in _arrivals(batch):
                rows.about = arrival.moment, arrival.origin_partition, arrival.origin_offset
                if arrival.kind == TRIGGER:
                    record = arrival.record(rehearsals.topic, next(numbers))
                    rehearsals.feed(record, 0, arrival.clock, rows)
                else:
                    rows.add(*arrival.passed_through())
            rows.about = _NOBODY
            rehearsals.rest(rows)
            yield rows.batch()
        rows = _Rows(OUTCOME, about=_NOBODY)
        rehearsals.end(rows)
        yield rows.batch()

    return work


_NOBODY = (None, None, None)


class _Arrival(NamedTuple):
    """A row of `ARRIVAL`, as far as the join is concerned."""

    kind: str
    trigger: str | None
    slot: str
    action: str | None
    reason: str | None
    source_partition: int
    source_offset: int
    source_timestamp: int
    content: int | None
    key: bytes | None
    fact: bytes | None
    value: bytes | None
    events: str | None
    flush: bytes | None
    partition: int
    clock: int
    moment: int
    origin_partition: int
    origin_offset: int

    def record(self, topic: str, offset: int) -> Record:
        headers = _headers(self.fact, self.flush)
        return Record(topic, self.partition, offset, self.moment, self.key, self.value, headers)

    def passed_through(self) -> tuple[object, ...]:
        place = self.source_partition, self.source_offset, self.source_timestamp
        known = self._asdict() | dict(zip(("partition", "offset", "timestamp"), place, strict=True))
        known["sources"] = _encoded([place])
        return tuple(known.get(name) for name in _arrow_schema(JOINED).names)


class _Rehearsals:
    """One after the other: the rows of a worker are sorted."""

    def __init__(self, deputy: Deputy, clocks: Mapping[int, int], *, payload: bool) -> None:
        self._plan = deputy.plan
        self._topology = deputy.topology
        self._clocks = clocks
        self._payload = payload
        self.topic = self._plan.name.topic(Kind.TRIGGER)
        self._place: tuple[int, int] | None = None
        self._rehearsal: Rehearsal | None = None

    def feed(self, record: Record, chunk: int, clock: int, rows: _Rows) -> None:
        if self._place != (record.partition, chunk):
            self.end(rows)
            self._place = record.partition, chunk
            self._rehearsal = Rehearsal(self._plan, self._topology, record.partition, _REPLICA)
        assert self._rehearsal is not None  # noqa: S101 - for mypy: made above
        for output in self._rehearsal.evaluate(record, clock):
            self._note(output, record, rows)

    def rest(self, rows: _Rows, clock: int = 0) -> None:
        if self._rehearsal is None or self._place is None:
            return
        rest = self._rehearsal.rest(clock)
        for output in rest.outputs:
            self._note(output, Record(self.topic, self._place[0], -1, 0, None, None, ()), rows)
        for unused in rest.unused:
            source = unused.gone.event.source
            place = self._place[0], unused.gone.event.offset or -1, source.timestamp
            rows.add(UNUSED, unused.trigger, unused.key, None, unused.gone.reason, *place, None, None, None)

    def end(self, rows: _Rows) -> None:
        """What is held when all is told."""
        if self._rehearsal is None or self._place is None:
            return
        self.rest(rows, self._clocks.get(self._place[0], 0))
        for trigger in self._plan.triggers:
            for key, dependency, event in self._rehearsal.held(trigger):
                place = self._place[0], -1 if event.offset is None else event.offset, event.source.timestamp
                sources = _encoded([event.source])
                rows.add(HELD, trigger, key, None, dependency, *place, sources, None, None)
        self._rehearsal = self._place = None

    def _note(self, output: Output, record: Record, rows: _Rows) -> None:
        made = Record(output.topic, output.partition, 0, 0, output.key, output.value, output.headers)
        if output.topic == self._plan.name.topic(Kind.ACTION):
            fact = action_fact(made)
            newest = max(event.source.timestamp for event in fact.events)
            sources = _encoded([event.source for event in fact.events])
            events = _events(self._plan, made) if self._payload else None
            place = record.partition, record.offset, newest
            rows.add(ACTION, fact.trigger, fact.key, fact.id, None, *place, sources, crc32(output.value or b""), events)
        elif output.topic == self._plan.name.topic(Kind.DLQ):
            letter = dead_letter(made)
            held = trigger_fact(made) if header(output.headers, TRIGGER_HEADER) else None
            place = record.partition, letter.offset, letter.timestamp
            key, found = ("", None) if held is None else (held.key, _encoded([held.source]))
            rows.add(LETTER, letter.trigger, key, None, letter.reason, *place, found, None, None)


_encode = msgspec.json.Encoder().encode


def _encoded(value: object) -> str:
    return _encode(value).decode()


def _events(plan: SensorPlan, action: Record) -> str:
    return _encoded(firing_of(plan, action).events)


# --- rows -------------------------------------------------------------------------------------------------------------


class _Rows:
    """What a worker has to say about one batch."""

    def __init__(self, schema: str, *, about: tuple[object, ...] = ()) -> None:
        self._schema = schema
        self._rows: list[tuple[object, ...]] = []
        self.about = about
        """The last columns of every row that is added."""

    def add(self, *row: object) -> None:
        self._rows.append(row + self.about)

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


def _trigger_records(topic: str, batch: pa.RecordBatch) -> Iterator[tuple[Record, int, int]]:
    names = ("partition", "offset", "timestamp", "key", "value", "fact", "flush", "chunk", "clock")
    columns = (batch.column(name).to_pylist() for name in names)
    for partition, offset, timestamp, key, value, fact, flush, chunk, clock in zip(*columns, strict=True):
        yield Record(topic, partition, offset, timestamp, key, value, _headers(fact, flush)), chunk, clock


def _headers(fact: bytes | None, flush: bytes | None) -> list[tuple[str, bytes | None]]:
    """Of a record of the trigger topic."""
    found = [(FLUSH_HEADER, flush)] if fact is None and flush is not None else [(TRIGGER_HEADER, fact)]
    return [pair for pair in found if pair[1] is not None]


def _arrivals(batch: pa.RecordBatch) -> Iterator[_Arrival]:
    columns = (batch.column(name).to_pylist() for name in _Arrival._fields)
    return map(_Arrival._make, zip(*columns, strict=True))
