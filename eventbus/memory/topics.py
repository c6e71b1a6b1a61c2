"""Topics and their partitions: records, transaction markers, and who may read how far.

As in Kafka, a marker takes an offset of its own, aborted records stay in the log and are skipped, and a reader that
wants committed records only sees nothing past the first record of an open transaction (the last stable offset).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from itertools import count
from operator import attrgetter

import msgspec

from eventbus.errors import FatalError
from eventbus.ports import Output, Record, TopicInfo

DEFAULTS: Mapping[str, str] = {
    "cleanup.policy": "delete",
    "compression.type": "producer",
    "delete.retention.ms": "86400000",
    "file.delete.delay.ms": "60000",
    "flush.messages": "9223372036854775807",
    "flush.ms": "9223372036854775807",
    "index.interval.bytes": "4096",
    "max.compaction.lag.ms": "9223372036854775807",
    "max.message.bytes": "1048588",
    "message.timestamp.after.max.ms": "3600000",
    "message.timestamp.before.max.ms": "9223372036854775807",
    "message.timestamp.type": "CreateTime",
    "min.cleanable.dirty.ratio": "0.5",
    "min.compaction.lag.ms": "0",
    "min.insync.replicas": "1",
    "preallocate": "false",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "segment.bytes": "1073741824",
    "segment.index.bytes": "10485760",
    "segment.jitter.ms": "0",
    "segment.ms": "604800000",
    "unclean.leader.election.enable": "false",
}
"""Kafka's own defaults, so that a topic looks the same to whoever describes it."""

_numbers = count()


class Entry(msgspec.Struct):
    """One offset of a partition. A marker has no record; the record of an aborted transaction is not visible."""

    offset: int
    record: Record | None
    producer: int | None
    visible: bool = True


class Partition:
    """A log that is appended to by transactions and by single writers."""

    def __init__(self, topic: str, number: int) -> None:
        self.topic = topic
        self.number = number
        self.start = 0
        self.end = 0
        self._entries: list[Entry] = []
        self._open: dict[int, int] = {}

    @property
    def last_stable_offset(self) -> int:
        return min(self._open.values(), default=self.end)

    def append(self, output: Output, timestamp: int, producer: int | None = None) -> int:
        """Write a record, as part of the producer's transaction if there is one; return its offset."""
        record = Record(self.topic, self.number, self.end, timestamp, output.key, output.value, list(output.headers))
        if producer is not None:
            self._open.setdefault(producer, self.end)
        return self._add(Entry(self.end, record, producer))

    def end_transaction(self, producer: int, *, commit: bool) -> None:
        """Write the marker that makes this producer's open transaction visible here, or hides it for ever."""
        first = self._open.pop(producer)
        if not commit:
            for entry in self._entries[self._index(first) :]:
                if entry.producer == producer:
                    entry.visible = False
        self._add(Entry(self.end, None, None))

    def read(self, offset: int, max_records: int) -> tuple[list[Record], int]:
        """Committed records from `offset` on, and the offset up to which everything was looked at."""
        if not self.start <= offset <= self.end:
            raise FatalError(
                f"{self.topic}/{self.number} has no offset {offset}: its records were removed before they were read, "
                "or the topic was made anew. Nothing was skipped. "
                "A sensor can only begin anew: docs/protocol.md tells how, under Damage."
            )
        stable = self.last_stable_offset
        records: list[Record] = []
        if offset >= stable:
            return records, offset
        for index in range(self._index(offset), len(self._entries)):
            entry = self._entries[index]
            if entry.offset >= stable:
                break
            if len(records) == max_records:
                return records, entry.offset
            if entry.record is not None and entry.visible:
                records.append(entry.record)
        return records, stable

    def offset_at(self, timestamp: int) -> int:
        """The first record with this timestamp or a later one, else the end of what is committed."""
        later = (e.offset for e in self._entries if e.record is not None and e.record.timestamp >= timestamp)
        return min(next(later, self.end), self.last_stable_offset)

    def truncate(self, before_offset: int) -> None:
        """Remove the oldest records, as retention does."""
        start = max(self.start, min(before_offset, self.end))
        del self._entries[: self._index(start)]
        self.start = start

    def compact(self) -> None:
        """Keep the latest committed record of every key, as the log cleaner does. Offsets do not change."""
        stable = self.last_stable_offset
        latest = {
            entry.record.key: entry.offset
            for entry in self._entries
            if entry.record is not None and entry.visible and entry.offset < stable
        }
        self._entries = [
            entry
            for entry in self._entries
            if entry.offset >= stable
            or (entry.record is not None and entry.visible and latest[entry.record.key] == entry.offset)
        ]

    def _add(self, entry: Entry) -> int:
        self._entries.append(entry)
        self.end += 1
        return entry.offset

    def _index(self, offset: int) -> int:
        if len(self._entries) == self.end - self.start:  # nothing was compacted away
            return max(0, offset - self.start)
        return bisect_left(self._entries, offset, key=attrgetter("offset"))


class Topic:
    """A named set of partitions with Kafka's settings."""

    def __init__(self, name: str, partitions: int, config: Mapping[str, str]) -> None:
        unknown = sorted(set(config) - set(DEFAULTS))
        if unknown:
            raise FatalError(f"creating topic {name}: Unknown topic config name: {unknown[0]}")
        self.name = name
        self.id = str(next(_numbers))
        self.config = {**DEFAULTS, **config}
        self._max_bytes = int(self.config["max.message.bytes"])
        self._is_compacted = "compact" in self.config["cleanup.policy"]
        self.partitions = [Partition(name, number) for number in range(partitions)]

    def info(self) -> TopicInfo:
        return TopicInfo(self.name, len(self.partitions), 1, self.config, self.id)

    def refusal(self, output: Output, size: int) -> str | None:
        """Why this record, so many bytes large, can never be written here; None if it can."""
        if size > self._max_bytes:
            return "the record is larger than max.message.bytes of the topic"
        if output.key is None and self._is_compacted:
            return "a record of a compacted topic needs a key"
        return None
