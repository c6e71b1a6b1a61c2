"""The join inside Spark's Python workers: over a trigger topic as it is, or over what match has just made."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import count
from typing import NamedTuple

import msgspec
import pyarrow as pa

from eventbus.errors import FormatError
from eventbus.formats import (
    FLUSH_HEADER,
    TRIGGER_HEADER,
    ActionFact,
    action_fact,
    dead_letter,
    encode_fact,
    header,
    trigger_fact,
)
from eventbus.hashing import trigger_and_key
from eventbus.names import Kind
from eventbus.ports import Output, Record
from sensors.deadletters import INVALID_RECORD
from sensors.explain import ids_in
from sensors.plan import SensorPlan
from sensors.rehearsal import Rehearsal
from sensors.spark.workers import (
    ACTION,
    HELD,
    LETTER,
    MISPLACED,
    READ,
    REDRIVEN,
    REPLICA,
    TRIGGER,
    UNUSED,
    Batches,
    Deputy,
    Rows,
    Worker,
    as_record,
    begin,
    content_of,
    encoded,
    fingerprint,
    id_in,
)

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

OUTCOME = f"{JOINED}, moment bigint, origin_partition int, origin_offset bigint, number int"
"""What one arrival causes, and which (null: nobody but time itself). Offsets are numbers in order of arrival."""

_NOBODY = (None, None, None, None)


def joining(deputy: Deputy, *, clocks: Mapping[int, int], payload: bool) -> Worker:
    """Rows of the trigger topic → rows of `JOINED`.

    They come by `partition` and `chunk`, and in order of `offset` within those: a chunk begins where its slots hold
    nothing. `clock` is the partition's clock at that record, and `clocks` where it stands in the end. What is not
    `judged` is only told of.
    """

    def work(batches: Batches) -> Batches:
        rehearsals = Rehearsals(deputy, clocks, payload=payload)
        for batch in batches:
            rows = Rows(JOINED)
            for row in _trigger_rows(rehearsals.topic, batch):
                rehearsals.tell(row, rows)
                if row.judged:
                    rehearsals.evaluate(row.record, row.chunk, row.clock, rows)
            rehearsals.rest(rows)
            rows.add(READ, *[None] * 10, batch.num_rows, None)
            yield rows.batch()
        rows = Rows(JOINED)
        rehearsals.end(rows)
        yield rows.batch()

    return work


def rehearsing(deputy: Deputy, *, clocks: Mapping[int, int]) -> Worker:
    """Rows of `Arrival` → rows of `OUTCOME`. All that concerns a slot comes to one worker, by `partition`, in order."""

    def work(batches: Batches) -> Batches:
        rehearsals = Rehearsals(deputy, clocks, payload=True)
        for batch in batches:
            columns = (column.to_pylist() for column in batch.columns)
            yield rehearsals.outcomes(map(Arrival._make, zip(*columns, strict=True)))
        yield rehearsals.last_outcomes()

    return work


class _TriggerRow(msgspec.Struct):
    record: Record
    chunk: int
    clock: int
    judged: bool
    redriven: bool


class Rehearsals:
    """One after the other: the rows of a worker are sorted."""

    def __init__(self, deputy: Deputy, clocks: Mapping[int, int], *, payload: bool) -> None:
        self._plan = begin(deputy)
        self._topology = deputy.topology
        self._clocks = clocks
        self._payload = payload
        self.topic = self._plan.name.topic(Kind.TRIGGER)
        self._action_topic, self._letter_topic = self._plan.name.topic(Kind.ACTION), self._plan.name.topic(Kind.DLQ)
        self._place: tuple[int, int] = (-1, -1)
        self._told: dict[tuple[int, int, int], int] = {}
        """The last event of each partition that was told of, by partition and chunk."""
        self._rehearsal: Rehearsal | None = None
        self._numbers = count()

    def outcomes(self, arrivals: Iterable[Arrival]) -> pa.RecordBatch:
        """What these cause, as rows of `OUTCOME`."""
        rows = Rows(OUTCOME)
        for arrival in arrivals:
            rows.about = arrival.moment, arrival.origin_partition, arrival.origin_offset, arrival.number
            self.evaluate(arrival.record(self.topic, next(self._numbers)), 0, arrival.clock, rows)
        rows.about = _NOBODY
        self.rest(rows)
        return rows.batch()

    def last_outcomes(self) -> pa.RecordBatch:
        """What is still to be said when all have arrived."""
        rows = Rows(OUTCOME, about=_NOBODY)
        self.end(rows)
        return rows.batch()

    def evaluate(self, record: Record, chunk: int, clock: int, rows: Rows) -> None:
        """What a record causes."""
        if self._rehearsal is None or self._place != (record.partition, chunk):
            self.end(rows)
            self._place = record.partition, chunk
            self._rehearsal = Rehearsal(self._plan, self._topology, record.partition, REPLICA)
        for output in self._rehearsal.evaluate(record, clock):
            self._note(output, record, rows)

    def tell(self, row: _TriggerRow, rows: Rows) -> None:
        """That it is there, and whether in its place: events of one partition are matched in order."""
        record = row.record
        if header(record.headers, FLUSH_HEADER) is not None:
            return
        try:
            fact = trigger_fact(record)
        except FormatError:
            return  # it has to be in the dead letters as what it is
        source = fact.source
        place = source.partition, source.offset, record.partition, record.offset, source.timestamp
        said = encode_fact(msgspec.structs.replace(fact, replica=REPLICA))
        content = fingerprint(record.value or b"", said, record.key or b"", record.partition)
        kind = REDRIVEN if row.redriven else TRIGGER
        rows.add(kind, fact.trigger, fact.key, None, None, *place, None, content, None)
        if row.redriven:
            return
        lane = record.partition, row.chunk, source.partition
        if self._told.get(lane, source.offset) > source.offset:
            rows.add(MISPLACED, fact.trigger, fact.key, None, None, *place, None, None, None)
        self._told[lane] = source.offset

    def rest(self, rows: Rows, clock: int = 0) -> None:
        if self._rehearsal is None:
            return
        partition = self._place[0]
        rest = self._rehearsal.rest(clock)
        for output in rest.outputs:
            self._note(output, Record(self.topic, partition, -1, 0, None, None, ()), rows)
        for unused in rest.unused:
            gone = unused.gone
            place = None, None, partition, gone.event.offset, gone.event.source.timestamp
            rows.add(UNUSED, unused.trigger, unused.key, None, gone.reason, *place, None, None, None)

    def end(self, rows: Rows) -> None:
        """What is held when all is told."""
        if self._rehearsal is None:
            return
        self.rest(rows, self._clocks.get(self._place[0], 0))
        for trigger in self._plan.triggers:
            for key, dependency, event in self._rehearsal.held(trigger):
                source = event.source
                place = source.partition, source.offset, self._place[0], event.offset, source.timestamp
                rows.add(HELD, trigger, key, None, dependency, *place, encoded([source]), None, None)
        self._rehearsal = None

    def _note(self, output: Output, record: Record, rows: Rows) -> None:
        if output.topic == self._action_topic:
            at = None, None, None, record.partition, record.offset
            if self._payload:
                fact = action_fact(as_record(output))
                rows.add(ACTION, fact.trigger, fact.key, fact.id, *at, *told_of(self._plan, fact, output))
            else:
                about = *trigger_and_key(output.key or b""), id_in(output)
                rows.add(ACTION, *about, *at, None, None, content_of(output), None)
        elif output.topic == self._letter_topic:
            made = as_record(output)
            letter = dead_letter(made)
            if letter.reason == INVALID_RECORD:  # whatever its headers are, nobody can read them
                place = record.partition, record.offset, record.partition, record.offset, letter.timestamp
                rows.add(LETTER, None, letter.stage, None, letter.reason, *place, None, None, None)
                return
            held = trigger_fact(made)
            source = held.source
            place = source.partition, source.offset, record.partition, letter.offset, letter.timestamp
            rows.add(LETTER, held.trigger, held.key, None, letter.reason, *place, encoded([source]), None, None)


def told_of(plan: SensorPlan, fact: ActionFact, action: Output) -> tuple[object, ...]:
    """The last columns of `JOINED`. Its content is what two specs can agree about: not whose it is, nor its place."""
    sources = [event.source for event in fact.events]
    newest = max(source.timestamp for source in sources)
    names = encoded([event.dependencies for event in fact.events]).encode()
    content = fingerprint(action.value or b"", names, action.key or b"", action.partition)
    return newest, encoded(sources), content, encoded(ids_in(plan, fact, action.value or b""))


def _trigger_rows(topic: str, batch: pa.RecordBatch) -> Iterator[_TriggerRow]:
    columns = (batch.column(name).to_pylist() for name in TRIGGER_ROW)
    for partition, offset, timestamp, key, value, fact, flush, *rest in zip(*columns, strict=True):
        yield _TriggerRow(Record(topic, partition, offset, timestamp, key, value, _headers(fact, flush)), *rest)


class Arrival(NamedTuple):
    """What match has made, or has made once, on its way to the join.

    By `moment`, `origin_partition` and `origin_offset` all arrivals have an order, and by `number` those that one event
    has made. `partition` is that of the trigger topic, and `clock` its clock.
    """

    moment: int
    origin_partition: int
    origin_offset: int
    number: int
    partition: int
    key: bytes | None
    fact: bytes | None
    value: bytes | None
    flush: bytes | None = None
    clock: int = 0

    def record(self, topic: str, offset: int) -> Record:
        headers = _headers(self.fact, self.flush)
        return Record(topic, self.partition, offset, self.moment, self.key, self.value, headers)


def _headers(fact: bytes | None, flush: bytes | None) -> list[tuple[str, bytes | None]]:
    """Of a record of the trigger topic."""
    found = [(FLUSH_HEADER, flush)] if fact is None and flush is not None else [(TRIGGER_HEADER, fact)]
    return [pair for pair in found if pair[1] is not None]
