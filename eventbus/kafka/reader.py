"""Reading single partitions, outside any group: restores, `tail`, inspection."""

from __future__ import annotations

from confluent_kafka import OFFSET_END, Consumer, KafkaException, Message, TopicPartition

from eventbus.errors import LogError
from eventbus.kafka import codes
from eventbus.kafka.admin import KafkaAdmin
from eventbus.kafka.config import REQUEST_TIMEOUT, Settings, make_client
from eventbus.kafka.errors import fetch_error, translated
from eventbus.kafka.fetched import Trouble, consume, split, to_records
from eventbus.kafka.outage import Outage
from eventbus.ports import Record


class KafkaReader:
    """`eventbus.ports.Reader` with confluent-kafka."""

    def __init__(self, settings: Settings, admin: KafkaAdmin) -> None:
        self._outage = Outage(settings)
        self._client = make_client(Consumer, settings.reader() | {"error_cb": self._outage.note})
        self._admin = admin
        self._where = f"on {settings.bootstrap_servers}"
        self._positions: dict[tuple[str, int], int] = {}
        self._errors: list[LogError] = []

    def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        return self._admin.offsets(topic, partition)

    def offset_at(self, topic: str, partition: int, timestamp: int) -> int:
        # The admin client answers -1 both where nothing is so young and where it does not know whom to ask.
        place = TopicPartition(topic, partition, max(0, timestamp))
        with translated(f"asking for an offset of {topic}/{partition} by its time {self._where}"):
            # Asked first, so that what is appended meanwhile is not passed over.
            _first, end = self._client.get_watermark_offsets(place, REQUEST_TIMEOUT)
            [found] = self._client.offsets_for_times([place], REQUEST_TIMEOUT)
            if found.error is not None:
                raise KafkaException(found.error)
        return end if found.offset == OFFSET_END else found.offset

    def open(self, topic: str, partition: int, offset: int) -> None:
        self._close_partition(topic, partition)
        with translated(f"reading {topic}/{partition} {self._where}"):
            self._client.incremental_assign([TopicPartition(topic, partition, offset)])
        self._positions[topic, partition] = offset

    def read(self, max_records: int, timeout: float) -> list[Record]:
        doing = f"reading {self._where}"
        with translated(doing):
            messages = consume(self._client, max_records, timeout)
        refusal = self._outage.refusal(self._client, doing)
        if refusal is not None:
            self._errors.append(refusal)
        if not messages and self._positions and not self._errors:
            topic, _partition = next(iter(self._positions))
            self._outage.check(self._client, topic, doing)
        fetched, troubles = split(messages)
        records = [
            record
            for record in to_records(fetched, map(str, map(Message.topic, fetched)))
            if (record.topic, record.partition) in self._positions
        ]
        self._positions.update({(record.topic, record.partition): record.offset + 1 for record in records})
        for trouble in troubles:
            self._on_trouble(trouble)
        if self._errors and not records:  # else what was read would be lost: there is a next time
            raise self._errors.pop(0)
        return records

    def position(self, topic: str, partition: int) -> int:
        return self._positions[topic, partition]

    def close(self, topic: str | None = None, partition: int | None = None) -> None:
        if topic is not None and partition is not None:
            self._close_partition(topic, partition)
        else:
            self._client.close()

    def _on_trouble(self, trouble: Trouble) -> None:
        if trouble.error.code() == codes.GROUP_DENIED:
            return  # a reader joins none; it is the client that looks for a coordinator all the same
        if trouble.error.code() != codes.PARTITION_EOF:
            self._errors.append(fetch_error(trouble, self._where))
            return
        # The end lies behind transaction markers and aborted records, which are never delivered.
        place = trouble.topic, trouble.partition
        if place in self._positions:
            self._positions[place] = max(self._positions[place], trouble.offset)

    def _close_partition(self, topic: str, partition: int) -> None:
        if self._positions.pop((topic, partition), None) is not None:
            with translated(f"leaving {topic}/{partition} {self._where}"):
                self._client.incremental_unassign([TopicPartition(topic, partition)])
