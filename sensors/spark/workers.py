"""The sensor's own core inside Spark's Python workers: rows go in, what match and join make of them comes out.

A plan cannot travel (compiled filters, scripts in processes of their own), so the manifest does, and every worker
compiles it for itself. Rows come in batches; what a worker holds is one batch and what the sensor itself would hold.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any, TypeAlias
from zlib import crc32

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from eventbus.errors import FormatError, NewerFormatError
from eventbus.formats import ACTION_HEADER, TRIGGER_HEADER, action_fact, dead_letter, header
from eventbus.hashing import trigger_and_key
from eventbus.names import BusName, Kind
from eventbus.ports import Output, Record
from eventbus.topics import Topology
from sensors.held import read_event
from sensors.match import Matcher
from sensors.plan import SensorPlan
from sensors.sensor import Sensor
from sensors.spec.models import SensorManifest

Batches: TypeAlias = Iterable[pa.RecordBatch]
Worker: TypeAlias = Callable[[Batches], Batches]

TRIGGER, ACTION, LETTER, UNUSED, HELD, READ = "trigger", "action", "letter", "unused", "held", "read"
REDRIVEN, MISPLACED = "redriven", "misplaced"
"""Kinds of what comes out. `read` tells how many records went in. `redriven` is a trigger record
that says that it was a dead letter before, `misplaced` one behind another whose event came later."""
MATCHED = (
    "kind string, trigger string, slot string, action string, reason string, source_partition int, "
    "source_offset bigint, source_timestamp bigint, content bigint"
)
"""What one event causes: a record for the trigger topic, an action, or a dead letter."""

REPLICA = ""
"""Nobody: what is compared is the work, not who has done it."""
_NEW_OBJECTS = 100_000
"""Before Python looks for circles among them."""


class Deputy(msgspec.Struct, frozen=True):
    """What a worker needs to know to stand in for a sensor."""

    manifest: SensorManifest
    bus: BusName
    topology: Topology

    @property
    def plan(self) -> SensorPlan:
        return Sensor.of(self.manifest).blueprint(self.bus).plan

    @property
    def modes(self) -> dict[str, str]:
        """What the manifest asks for, by trigger; what only writes to the bus may be done exactly once all the same."""
        deliveries = Sensor.of(self.manifest).blueprint(self.bus).deliveries
        return {trigger: delivery.mode for trigger, delivery in deliveries.items()}


def begin(deputy: Deputy) -> SensorPlan:
    """A worker makes very many objects that live for one batch: to look for circles among them often is in vain."""
    plan = deputy.plan
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS)
    return plan


# --- match ------------------------------------------------------------------------------------------------------------


def matching(deputy: Deputy) -> Worker:
    """Rows of `records.RECORD` → rows of `MATCHED`."""

    def work(batches: Batches) -> Batches:
        plan = begin(deputy)
        matcher = Matcher(plan, deputy.topology, REPLICA)
        trigger_topic, action_topic = plan.name.topic(Kind.TRIGGER), plan.name.topic(Kind.ACTION)
        for batch in batches:
            rows = Rows(MATCHED)
            for record in records_of(plan.name.event_topic, batch):
                source = record.partition, record.offset, record.timestamp
                for output in matcher.outputs(record):
                    if output.topic == trigger_topic:
                        rows.add(TRIGGER, *trigger_and_key(output.key or b""), None, None, *source, content_of(output))
                    elif output.topic == action_topic:
                        trigger, _ = trigger_and_key(output.key or b"")
                        rows.add(ACTION, trigger, "", id_in(output), None, *source, content_of(output))
                    else:
                        letter = dead_letter(as_record(output))
                        rows.add(LETTER, letter.trigger, "", None, letter.reason, *source, None)
            yield rows.batch()

    return work


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


def content_of(output: Output) -> int:
    """All that a record of ours says, but for its writer; of a record that was just made by nobody (`REPLICA`)."""
    return fingerprint(output.value or b"", output.headers[0][1] or b"", output.key or b"", output.partition)


def fingerprint(value: bytes, fact: bytes, key: bytes, partition: int) -> int:
    """Of value, fact, key and partition; `facts` has the same in SQL."""
    return crc32(value) ^ crc32(b"%b%b%d" % (fact, key, partition)) << 31


def telling_times(batches: Batches) -> Batches:
    """Rows of `facts.trigger_facts` → the same, and the time by which each moves its partition's clock."""
    for batch in batches:
        columns = (batch.column(name).to_pylist() for name in ("fact", "value"))
        times = [_time_told(fact, value) for fact, value in zip(*columns, strict=True)]
        yield batch.append_column("time", pa.array(times, pa.int64()))


def _time_told(fact: bytes | None, value: bytes | None) -> int | None:
    try:
        told, _ = read_event(Record("", 0, 0, 0, None, value, [] if fact is None else [(TRIGGER_HEADER, fact)]))
    except NewerFormatError:
        raise
    except FormatError:
        return None  # it is a dead letter, or a flush
    return told.source.timestamp


def decoding(topic: str) -> Worker:
    """Rows of `records.RECORD` of the action topic: none of the headers where the core cannot read them."""

    def work(batches: Batches) -> Batches:
        for batch in batches:
            known = pa.array([_is_action(record) for record in records_of(topic, batch)], pa.bool_())
            headers = batch.column("headers")
            at = batch.schema.get_field_index("headers")
            kept = pc.if_else(known, headers, pa.nulls(len(headers), headers.type))
            yield batch.set_column(at, batch.schema.field(at), kept)

    return work


def _is_action(record: Record) -> bool:
    try:
        action_fact(record)
    except NewerFormatError:
        raise
    except FormatError:
        return False
    return True


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


def records_of(topic: str, batch: pa.RecordBatch) -> Iterator[Record]:
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
