"""Match on the one side of a shuffle and join on the other, and in between packets of what is to be joined.

To Spark a packet is one row, though there are thousands of arrivals in it: to move and sort them one by one would cost
more than to match and join them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping
from zlib import crc32

import msgspec
import pyarrow as pa

from eventbus.formats import TRIGGER_HEADER, action_fact, dead_letter, header
from eventbus.names import Kind
from eventbus.ports import Output, Record
from sensors.match import Matcher
from sensors.plan import SensorPlan
from sensors.spark.joins import OUTCOME, Arrival, Rehearsals, told_of
from sensors.spark.workers import (
    ACTION,
    LETTER,
    REPLICA,
    Batches,
    Deputy,
    Rows,
    Worker,
    arrow_schema,
    as_record,
    begin,
    encoded,
    records_of,
)

PACKET = "place bigint, moment bigint, origin_partition int, origin_offset bigint, arrivals binary, outcomes binary"
"""What one batch of a partition of events causes at one place, from its first arrival on; or what needs no join.

All that may be joined has the same `place`. `arrivals` are `joins.Arrival`s, in their order.
"""

_PLACES = 1 << 62
"""What needs no join goes anywhere, after all that does."""

_encoder = msgspec.msgpack.Encoder()
_decode = msgspec.msgpack.Decoder(list[Arrival]).decode


def packing(deputy: Deputy, *, by_slot: bool) -> Worker:
    """Rows of `records.RECORD`, each partition in order and in one task → rows of `PACKET`.

    What may be joined meets by its slot, or else by its partition of the trigger topic.
    """

    def work(batches: Batches) -> Batches:
        plan = begin(deputy)
        matcher = Matcher(plan, deputy.topology, REPLICA)
        trigger_topic = plan.name.topic(Kind.TRIGGER)
        moments: defaultdict[int, int] = defaultdict(int)
        for number, batch in enumerate(batches):
            packets: defaultdict[tuple[int, int], list[Arrival]] = defaultdict(list)
            outcomes = Rows(OUTCOME)
            for record in records_of(plan.name.event_topic, batch):
                partition, offset = record.partition, record.offset
                moment = moments[partition] = max(moments[partition], record.timestamp)
                for each, output in enumerate(matcher.outputs(record)):
                    if output.topic == trigger_topic:
                        place = crc32(output.key or b"") if by_slot else output.partition
                        fact = header(output.headers, TRIGGER_HEADER)
                        place_of_it = output.partition, output.key, fact, output.value
                        arrival = Arrival(moment, partition, offset, each, *place_of_it)
                        packets[place, partition].append(arrival)
                    else:
                        outcomes.add(*_outcome(plan, record, output), moment, partition, offset, each)
            rows = Rows(PACKET)
            for (place, _), arrivals in packets.items():
                rows.add(place, *arrivals[0][:3], _packed(arrivals), None)
            rows.add(_PLACES + number, 0, 0, 0, None, outcomes.batch().serialize().to_pybytes())
            yield rows.batch()

    return work


def _packed(arrivals: list[Arrival]) -> bytes:
    """A function of this module, which a worker imports: the encoder itself cannot be sent to it."""
    return _encoder.encode(arrivals)


def _outcome(plan: SensorPlan, record: Record, output: Output) -> tuple[object, ...]:
    """An action for which one event was enough, or a dead letter: the columns of `JOINED`."""
    source = record.partition, record.offset
    if output.topic == plan.name.topic(Kind.ACTION):
        fact = action_fact(as_record(output))
        return (ACTION, fact.trigger, "", fact.id, None, *source, *source, *told_of(plan, fact, output))
    letter = dead_letter(as_record(output))
    sources = encoded([(*source, record.timestamp)])
    return (LETTER, letter.trigger, "", None, letter.reason, *source, *source, record.timestamp, sources, None, None)


def unpacking(deputy: Deputy, *, clocks: Mapping[int, int]) -> Worker:
    """Rows of `PACKET` → rows of `joins.OUTCOME`. All of a place come to one worker, in the order of their arrivals."""

    def work(batches: Batches) -> Batches:
        rehearsals = Rehearsals(deputy, clocks, payload=True)
        waiting = _Waiting()
        for place, first, arrivals, outcomes in _packets(batches):
            if arrivals is None:
                yield pa.ipc.read_record_batch(outcomes, arrow_schema(OUTCOME))
            else:
                yield rehearsals.outcomes(waiting.before(place, first))
                waiting.add(arrivals)
        yield rehearsals.outcomes(waiting.all())
        yield rehearsals.last_outcomes()

    return work


class _Waiting:
    """Arrivals that may have to let others go first: at most one packet of each partition of events."""

    def __init__(self) -> None:
        self._place: int | None = None
        self._arrivals: list[Arrival] = []

    def before(self, place: int, first: tuple[int, int, int]) -> list[Arrival]:
        """Those that nothing can come before any more, when a packet comes that begins there."""
        if place != self._place:
            self._place = place
            return self.all()
        self._arrivals.sort()
        end = bisect_left(self._arrivals, first)
        ready, self._arrivals = self._arrivals[:end], self._arrivals[end:]
        return ready

    def add(self, arrivals: bytes) -> None:
        self._arrivals += _decode(arrivals)

    def all(self) -> list[Arrival]:
        ready, self._arrivals = sorted(self._arrivals), []
        return ready


def _packets(batches: Batches) -> Iterator[tuple[int, tuple[int, int, int], bytes | None, bytes]]:
    for batch in batches:
        columns = (column.to_pylist() for column in batch.columns)
        for place, moment, partition, offset, arrivals, outcomes in zip(*columns, strict=True):
            yield place, (moment, partition, offset), arrivals, outcomes
