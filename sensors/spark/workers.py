"""The sensor's own core inside Spark's Python workers: rows go in, what match and join make of them comes out.

A plan cannot travel (compiled filters, scripts in processes of their own), so the manifest does, and every worker
compiles it for itself. Rows come in batches; what a worker holds is one batch and what the sensor itself would hold.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any, TypeAlias
from zlib import crc32

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from eventbus.formats import ACTION_HEADER, TRIGGER_HEADER, dead_letter, header
from eventbus.hashing import trigger_and_key
from eventbus.names import BusName, Kind
from eventbus.ports import Output, Record
from eventbus.topics import Topology
from sensors.explain import firing_of
from sensors.match import Matcher
from sensors.plan import SensorPlan
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
    "events string, moment bigint"
)
"""What one event causes: a record for the trigger topic, an action, or a dead letter.

`moment` is the latest time that the worker has seen in the event's partition so far.
"""

REPLICA = "spark"
_NOTHING = (None, None, None)


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
        matcher = Matcher(plan, deputy.topology, REPLICA)
        tell = _Matched(plan, payload=payload)
        moments: defaultdict[int, int] = defaultdict(int)
        for batch in batches:
            rows = Rows(MATCHED)
            for record in _records(plan.name.event_topic, batch):
                moment = moments[record.partition] = max(moments[record.partition], record.timestamp)
                for output in matcher.outputs(record):
                    rows.add(*tell.of(record, output), moment)
            if batch.num_rows and not payload:
                times = pc.min_max(batch.column("timestamp")).as_py()
                read = None, times["min"], times["max"], batch.num_rows
                rows.add(READ, None, None, None, EVENTS, *read, None, None, None, None, None)
            yield rows.batch()

    return work


class _Matched:
    """What match has made of an event, as rows."""

    def __init__(self, plan: SensorPlan, *, payload: bool) -> None:
        self._plan = plan
        self._payload = payload
        self._trigger_topic, self._action_topic = plan.name.topic(Kind.TRIGGER), plan.name.topic(Kind.ACTION)

    def of(self, record: Record, output: Output) -> tuple[object, ...]:
        source = record.partition, record.offset, record.timestamp
        if output.topic == self._trigger_topic:
            trigger, slot = trigger_and_key(output.key or b"")
            raw = (output.key, header(output.headers, TRIGGER_HEADER), output.value) if self._payload else _NOTHING
            return (TRIGGER, trigger, slot, None, None, *source, crc32(output.value or b""), *raw, None)
        if output.topic == self._action_topic:
            trigger, _ = trigger_and_key(output.key or b"")
            content = crc32(output.value or b"")
            events = events_of(self._plan, as_record(output)) if self._payload else None
            return (ACTION, trigger, "", id_in(output), None, *source, content, output.key, None, None, events)
        letter = dead_letter(as_record(output))
        return (LETTER, letter.trigger, "", None, letter.reason, *source, None, None, None, None, None)


class _Identified(msgspec.Struct):
    id: str


_decode_id = msgspec.json.Decoder(_Identified).decode
_encode = msgspec.json.Encoder().encode


def id_in(action: Output) -> str:
    """What an action that was just made is called; nothing else is read of it."""
    return _decode_id(header(action.headers, ACTION_HEADER) or b"").id


def as_record(output: Output) -> Record:
    return Record(output.topic, output.partition, 0, 0, output.key, output.value, output.headers)


def encoded(value: object) -> str:
    return _encode(value).decode()


def events_of(plan: SensorPlan, action: Record) -> str:
    return encoded(firing_of(plan, action).events)


# --- rows -------------------------------------------------------------------------------------------------------------


class Rows:
    """What a worker has to say about one batch."""

    def __init__(self, schema: str, *, about: tuple[object, ...] = ()) -> None:
        self._schema = schema
        self._rows: list[tuple[object, ...]] = []
        self.about = about
        """The last columns of every row that is added."""

    def add(self, *row: object) -> None:
        self._rows.append(row + self.about)

    def batch(self) -> pa.RecordBatch:
        schema = arrow_schema(self._schema)
        columns: Iterable[Any] = zip(*self._rows, strict=True) if self._rows else ([] for _ in schema)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


@lru_cache
def arrow_schema(columns: str) -> Any:
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
