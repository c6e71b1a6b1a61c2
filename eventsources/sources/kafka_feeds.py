"""Records of another Kafka, from a share of all partitions or from a single one."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import msgspec

from eventbus.errors import RetriableError
from eventbus.kafka.cluster import KafkaCluster
from eventbus.ports import Record
from eventsources.base import Context, Identity, SourceError, Told

_WAIT_SECONDS = 0.2

log = logging.getLogger("eventbus.source")


class GroupFeed:
    """The partitions that a consumer group gives to this replica.

    Everything that was read is delivered before more is read, and its offset is on its way to the group: there is
    nothing left to do for a partition when it goes to another replica.
    """

    def __init__(self, cluster: KafkaCluster, context: Context, topic: str, group: str, *, oldest: bool) -> None:
        self._context = context
        self._topic = topic
        self._oldest = oldest
        self._new: set[int] = set()
        self._consumer = cluster.consumer(group, topic, self)

    def read(self, most: int) -> Sequence[Record]:
        self._begin()
        return self._consumer.poll(most, _WAIT_SECONDS)

    def settle(self, records: Sequence[Record], told: Sequence[Told]) -> None:
        if records:
            self._context.deliver(told)
            self._consumer.commit({record.partition: record.offset + 1 for record in records})

    def close(self) -> None:
        self._consumer.close()

    # --- told by the consumer ---------------------------------------------------------------------------------------

    def assigned(self, partitions: Sequence[int]) -> None:
        self._new.update(partitions)

    def revoked(self, partitions: Sequence[int]) -> None:
        self._new.difference_update(partitions)

    def lost(self, partitions: Sequence[int]) -> None:
        self._new.difference_update(partitions)

    # ----------------------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """With what is new. One of which nobody can tell where to begin must not hold up the others."""
        for partition in sorted(self._new):
            try:
                self._begin_with(partition)
            except RetriableError as error:
                log.warning("%s: %s", self._context.identity, error)
            else:
                self._new.remove(partition)

    def _begin_with(self, partition: int) -> None:
        committed = self._consumer.committed([partition])[partition]
        first, end = self._consumer.offsets(partition)
        if committed is None:
            offset = first if self._oldest else end
            self._consumer.commit({partition: offset})  # what comes from now on is missed by nobody who takes over
        else:
            offset = _existing(self._context.identity, f"{self._topic}/{partition}", committed.offset, first, end)
        self._consumer.start(partition, offset)


class _Memory(msgspec.Struct, frozen=True):
    """How far a partition is read."""

    topic: str
    partition: int
    offset: int


class PartitionFeed:
    """One partition, read by nobody else: how far is remembered with the events."""

    def __init__(self, cluster: KafkaCluster, context: Context, topic: str, partition: int) -> None:
        self._context = context
        self._topic = topic
        self._partition = partition
        self._reader = cluster.reader()
        try:
            self._open(cluster.partitions(topic))
        except BaseException:
            self._reader.close()
            raise

    def read(self, most: int) -> Sequence[Record]:
        return self._reader.read(most, _WAIT_SECONDS)

    def settle(self, records: Sequence[Record], told: Sequence[Told]) -> None:
        if records:
            self._context.deliver(told, self._memory(records[-1].offset + 1))

    def close(self) -> None:
        self._reader.close()

    def _open(self, partitions: range) -> None:
        if self._partition not in partitions:
            raise SourceError(f"the topic `{self._topic}` has {len(partitions)} partitions, counted from 0")
        first, end = self._reader.offsets(self._topic, self._partition)
        last = self._remembered()
        if last is None:
            self._context.deliver([], self._memory(end))  # a successor knows from when on there were records
            offset = end
        else:
            offset = _existing(self._context.identity, f"{self._topic}/{self._partition}", last, first, end)
        self._reader.open(self._topic, self._partition, offset)

    def _memory(self, offset: int) -> bytes:
        return msgspec.json.encode(_Memory(self._topic, self._partition, offset))

    def _remembered(self) -> int | None:
        """None where it is about something else, because the manifest was changed."""
        try:
            memory = msgspec.json.decode(self._context.remembered or b"", type=_Memory)
        except msgspec.MsgspecError:
            return None
        return memory.offset if (memory.topic, memory.partition) == (self._topic, self._partition) else None


def _existing(identity: Identity, place: str, offset: int, first: int, end: int) -> int:
    """Where to go on. What was removed before it was read cannot be had, and must not stop what comes behind it."""
    if first <= offset <= end:
        return offset
    log.warning(
        "%s: %s has no offset %d any more: its records were removed unread, or the topic was made anew; going on at %d",
        identity,
        place,
        offset,
        first,
    )
    return first
