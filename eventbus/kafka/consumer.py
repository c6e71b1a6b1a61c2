"""One member of a consumer group.

Theory of operation. librdkafka would start a partition by itself, at the committed offset, as soon as it is assigned.
We need it silent until the caller has restored its state, so an assigned partition is given to librdkafka *at its
end and paused*, and `start` moves it. Three things in librdkafka dictate how:
- A seek is overridden by the answer to an offset lookup that was under way. So no logical offset (END, STORED, …) is
  ever used; the end is asked for beforehand.
- A fetch from an offset that does not exist kills the partition for good. So it is moved before it is resumed.
- Resuming does not wake the fetcher, which may sleep for a second. Seeking does, except to 0; so does a request.
Assigning again at another offset would be simpler, but outside a rebalance callback it can be mistaken for the answer
to one that is still queued: the partition would have two owners.

Every seek and pause raises a barrier that discards what was fetched before it. Where a partition stands is tracked
here, so that `resume` and a failed `poll` go back to exactly what was returned last.

Exceptions do not travel through the C callbacks: what a listener raises is kept and raised by `poll` or `close`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from eventbus.clock import Deadline, SystemClock
from eventbus.errors import AbortableError, FatalError, LogError
from eventbus.kafka import codes
from eventbus.kafka.admin import KafkaAdmin
from eventbus.kafka.commits import committed
from eventbus.kafka.config import REQUEST_TIMEOUT, Settings, make_client
from eventbus.kafka.errors import fetch_error, kafka_error, translated
from eventbus.kafka.fetched import Fetched, Trouble, consume, split
from eventbus.kafka.outage import Outage
from eventbus.kafka.patience import Impatient
from eventbus.kafka.progress import Progress
from eventbus.ports import Committed, RebalanceListener, Record

# A rebalance does not end librdkafka's wait for records; waiting in slices lets `poll` return soon after one.
_WAIT_SLICE = 0.1
_LEAVE_SECONDS = 2.0
_GLANCE = 0.01
_SEEK_PAUSE = 0.001
_WAKE_TIMEOUT = 1.0


class KafkaConsumer:
    """`eventbus.ports.GroupConsumer` with confluent-kafka."""

    def __init__(
        self, settings: Settings, admin: KafkaAdmin, group: str, topic: str, listener: RebalanceListener
    ) -> None:
        self._where = f"on {settings.bootstrap_servers}"
        self._outage = Outage(settings)
        self._progress = Progress(topic, f"committing offsets of {topic} for group {group} {self._where}")
        callbacks = {"error_cb": self._outage.note, "on_commit": self._progress.answered}
        self._client = make_client(Consumer, settings.member(group) | callbacks)
        self._admin = admin
        self._group = group
        self._topic = topic
        self._listener = listener
        # In librdkafka's serialised metadata the member id follows the group, both end with a NUL.
        self._no_member = group.encode() + b"\0\0"
        self._joined = False
        self._assigned: set[int] = set()
        self._flowing: dict[int, int] = {}
        self._paused: dict[int, int] = {}
        self._ends: dict[int, int] = {}
        self._rebalanced = False
        self._leaving = False
        self._failure: BaseException | None = None
        with translated(f"joining group {group} {self._where}"):
            self._client.subscribe([topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost)

    def poll(self, max_records: int, timeout: float) -> Fetched:
        self._rebalanced = False
        doing = f"reading {self._topic} {self._where}"
        deadline = Deadline(SystemClock(), timeout)
        while True:
            self._progress.look_after(self._client)
            with translated(doing):
                messages = consume(self._client, max_records, min(deadline.left(), _WAIT_SLICE))
            records = self._records(messages)
            self._failure = self._failure or self._outage.refusal(self._client, doing)
            if self._failure is not None:
                try:
                    self._give_back(records)
                finally:
                    self._raise_failure()
            if records or self._rebalanced:
                return records
            self._outage.check(self._client, self._topic, doing)
            if deadline.over():
                return records

    def start(self, partition: int, offset: int) -> None:
        if partition not in self._assigned:
            raise FatalError(f"{self._topic}/{partition} is not assigned to this member of group {self._group}")
        self._silent(partition)
        self._flowing[partition] = offset
        target = TopicPartition(self._topic, partition, offset)
        with translated(f"starting {self._topic}/{partition} at {offset} {self._where}"):
            self._seek(target)
            self._client.resume([target])
            self._wake_fetcher(target)

    def stop(self, partition: int) -> None:
        self._silent(partition)
        self._pause([partition])

    def pause(self, partitions: Iterable[int]) -> None:
        pausing = [partition for partition in partitions if partition in self._flowing]
        for partition in pausing:
            self._paused[partition] = self._flowing.pop(partition)
        self._pause(pausing)

    def resume(self, partitions: Iterable[int]) -> None:
        for partition in partitions:
            if partition in self._paused:
                self.start(partition, self._paused[partition])

    def committed(self, partitions: Iterable[int]) -> dict[int, Committed | None]:
        return committed(self._client, self._group, self._topic, partitions, self._where)

    def commit(self, offsets: Mapping[int, int]) -> None:
        """Outside of transactions, and without waiting for it: `poll` tells of what only a person can change."""
        self._progress.commit(self._client, offsets)

    def offsets(self, partition: int) -> tuple[int, int]:
        return self._admin.offsets(self._topic, partition)

    def position(self, partition: int) -> int:
        position = self._paused[partition] if partition in self._paused else self._flowing[partition]
        return max(position, self._ends.get(partition, 0))

    def group_metadata(self) -> object:
        # Offsets that name no member are taken from anybody, without fencing. A client that was thrown out has no
        # member id until it has joined again, so what it then calls its metadata must not get out.
        metadata: bytes = self._client.consumer_group_metadata()
        if self._no_member in metadata:
            raise AbortableError(f"this process is not a member of group {self._group} at the moment")
        return metadata

    def close(self) -> None:
        # The client would tell the listener too, but at a moment at which it may not be a member any more.
        revoked = sorted(self._assigned)
        self._tell(self._listener.revoked, revoked)
        self._progress.hand_over(self._client)
        self._forget(revoked)
        if not self._leaving:
            self._leave()
        self._close_client()
        self._raise_failure()

    def _leave(self) -> None:
        """Give everything back before the client is closed.

        A client that is closed while partitions are on their way to it waits for them for ever, and with it all of
        Python (librdkafka #4884).
        """
        self._leaving = True
        deadline = Deadline(SystemClock(), _LEAVE_SECONDS)
        with suppress(KafkaException):
            self._client.unsubscribe()
            while not deadline.over() and (self._client.poll(_GLANCE) is not None or self._client.assignment()):
                pass

    def _close_client(self) -> None:
        """A commit without an answer keeps the client from closing until the broker is back: it is left to wait."""
        if not self._progress.unanswered:
            self._client.close()
            return
        patience = Impatient(f"close-{self._group}")
        patience.call(self._client.close, _LEAVE_SECONDS)
        patience.close()

    def _records(self, messages: list[Message]) -> Fetched:
        delivered, troubles = split(messages)
        for trouble in troubles:
            self._on_trouble(trouble)
        records = Fetched(self._topic, delivered)
        ends = records.ends()
        if not ends.keys() <= self._flowing.keys():
            # They were taken from the client's queue just before a call of the listener silenced their partition.
            records = records.only(self._flowing.keys())
            ends = records.ends()
        self._flowing.update(ends)
        return records

    def _give_back(self, records: Sequence[Record]) -> None:
        first = {record.partition: record.offset for record in reversed(records[:])}
        for partition, offset in first.items():
            self.start(partition, offset)

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _seek(self, target: TopicPartition) -> None:
        """A partition that was assigned a moment ago is not ready yet to be moved."""
        deadline = Deadline(SystemClock(), REQUEST_TIMEOUT)
        while True:
            try:
                self._client.seek(target)
            except KafkaException as exception:
                if kafka_error(exception).code() != codes.WRONG_STATE or deadline.over():
                    raise
                time.sleep(_SEEK_PAUSE)
            else:
                return

    def _wake_fetcher(self, target: TopicPartition) -> None:
        if target.offset > 0:
            self._seek(target)
        else:
            with suppress(KafkaException):
                self._client.get_watermark_offsets(target, _WAKE_TIMEOUT)

    def _pause(self, partitions: Iterable[int]) -> None:
        with translated(f"pausing {self._topic} {self._where}"):
            self._client.pause(self._topic_partitions(partitions))

    def _topic_partitions(self, partitions: Iterable[int]) -> list[TopicPartition]:
        return [TopicPartition(self._topic, partition) for partition in partitions]

    def _on_assign(self, client: Consumer, topic_partitions: list[TopicPartition]) -> None:
        if self._leaving:
            client.incremental_assign(topic_partitions)  # to give them back; nobody needs to know
            return
        partitions = _numbers(topic_partitions)
        try:
            ends = self._admin.ends(self._topic, partitions)
            for topic_partition in topic_partitions:
                topic_partition.offset = ends[topic_partition.partition]
            with translated(f"taking partitions of {self._topic} {self._where}"):
                client.incremental_assign(topic_partitions)
                client.pause(topic_partitions)
        except LogError as error:
            self._failure = self._failure or error
            return
        self._assigned.update(partitions)
        self._tell(self._listener.assigned, partitions, even_if_none=not self._joined)
        self._joined = True

    def _on_revoke(self, client: Consumer, topic_partitions: list[TopicPartition]) -> None:
        revoked = sorted(self._assigned.intersection(_numbers(topic_partitions)))
        self._tell(self._listener.revoked, revoked)
        self._progress.hand_over(client)
        self._forget(revoked)

    def _on_lost(self, _client: Consumer, topic_partitions: list[TopicPartition]) -> None:
        self._lose(self._assigned.intersection(_numbers(topic_partitions)))

    def _lose(self, partitions: Iterable[int]) -> None:
        lost = sorted(partitions)
        self._forget(lost)
        self._tell(self._listener.lost, lost)

    def _tell(
        self, listener: Callable[[Sequence[int]], None], partitions: list[int], *, even_if_none: bool = False
    ) -> None:
        self._rebalanced = True
        if not partitions and not even_if_none:
            return
        try:
            listener(partitions)
        except BaseException as error:
            self._failure = self._failure or error

    def _forget(self, partitions: Iterable[int]) -> None:
        for partition in partitions:
            self._assigned.discard(partition)
            self._silent(partition)
            self._progress.forget(partition)

    def _silent(self, partition: int) -> None:
        self._flowing.pop(partition, None)
        self._paused.pop(partition, None)
        self._ends.pop(partition, None)

    def _on_trouble(self, trouble: Trouble) -> None:
        code = trouble.error.code()
        if code == codes.PARTITION_EOF:
            # The end lies behind transaction markers and aborted records, which are never delivered.
            if trouble.partition in self._flowing:
                self._ends[trouble.partition] = trouble.offset
        elif code == codes.MAX_POLL_EXCEEDED:
            # The client has left the group, but says what that means only when it has joined again, seconds later.
            self._lose(self._assigned)
        else:
            self._failure = self._failure or fetch_error(trouble, self._where)


def _numbers(topic_partitions: Iterable[TopicPartition]) -> list[int]:
    return sorted(topic_partition.partition for topic_partition in topic_partitions)
