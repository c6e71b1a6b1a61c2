"""Reading many partitions of a topic as one stream in the order of time, without taking part."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from heapq import merge
from typing import TypeAlias

import msgspec

from eventbus.clock import Deadline
from eventbus.errors import ConfigError, RetriableError
from eventbus.ports import Clock, Cluster, Reader, Record

Ranges: TypeAlias = Mapping[int, range]
"""Which offsets of which partitions."""

_CHUNK = 500
_STALL_SECONDS = 30.0


class Timed(msgspec.Struct, frozen=True):
    """A record, and the latest time in its partition so far: that never goes back, though a broker's clock may."""

    record: Record
    moment: int


def ranges_between(reader: Reader, cluster: Cluster, topic: str, since: int | None, until: int | None = None) -> Ranges:
    """What is there now, or what of it was appended in this time (milliseconds since 1970)."""
    info = cluster.describe([topic])[topic]
    if info is None:
        raise ConfigError(f"the topic `{topic}` does not exist: nothing has been sent or run here under that name")
    ranges = {}
    for partition in range(info.partitions):
        first, end = reader.offsets(topic, partition)
        start = first if since is None else reader.offset_at(topic, partition, since)
        stop = end if until is None else min(end, reader.offset_at(topic, partition, until))
        ranges[partition] = range(start, max(start, stop))
    return ranges


def newest(ranges: Ranges, count: int) -> Ranges:
    """At most so many offsets of each partition."""
    return {partition: offsets[-count:] for partition, offsets in ranges.items()}


def in_order_of_time(reader: Reader, topic: str, ranges: Ranges, clock: Clock) -> Iterator[Timed]:
    """The committed records in these ranges, each partition in its own order, however long it takes."""
    streams = (_partition(reader, topic, partition, offsets, clock) for partition, offsets in ranges.items())
    return merge(*streams, key=lambda timed: timed.moment)


def _partition(reader: Reader, topic: str, partition: int, offsets: range, clock: Clock) -> Iterator[Timed]:
    moment = 0
    position = offsets.start
    while position < offsets.stop:
        records, position = _chunk(reader, topic, partition, range(position, offsets.stop), clock)
        for record in records:
            moment = max(moment, record.timestamp)
            yield Timed(record, moment)


def _chunk(reader: Reader, topic: str, partition: int, offsets: range, clock: Clock) -> tuple[list[Record], int]:
    """Some records, and where to go on. The partition is open no longer than that: others take turns with it."""
    reader.open(topic, partition, offsets.start)
    patience = Deadline(clock, _STALL_SECONDS)
    try:
        while True:
            records = reader.read(_CHUNK, 0.1)
            position = reader.position(topic, partition)
            if records or position >= offsets.stop:
                return [record for record in records if record.offset < offsets.stop], position
            if patience.over():
                raise RetriableError(f"{topic}[{partition}] could not be read within {_STALL_SECONDS:g} s")
    finally:
        reader.close(topic, partition)
