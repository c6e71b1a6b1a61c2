"""Reading single partitions, outside any group: restores, `tail`, inspection."""

from __future__ import annotations

from confluent_kafka import Consumer, TopicPartition

from eventbus.kafka import codes
from eventbus.kafka.admin import KafkaAdmin
from eventbus.kafka.config import Settings, make_client
from eventbus.kafka.errors import fetch_error, translated
from eventbus.kafka.fetched import consume
from eventbus.ports import Record


class KafkaReader:
    """`eventbus.ports.Reader` with confluent-kafka."""

    def __init__(self, settings: Settings, admin: KafkaAdmin) -> None:
        self._client = make_client(Consumer, settings.reader())
        self._admin = admin
        self._where = f"on {settings.bootstrap_servers}"
        self._positions: dict[tuple[str, int], int] = {}

    def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        return self._admin.offsets(topic, partition)

    def open(self, topic: str, partition: int, offset: int) -> None:
        self._close_partition(topic, partition)
        with translated(f"reading {topic}/{partition} {self._where}"):
            self._client.incremental_assign([TopicPartition(topic, partition, offset)])
        self._positions[topic, partition] = offset

    def read(self, max_records: int, timeout: float) -> list[Record]:
        with translated(f"reading {self._where}"):
            messages = consume(self._client, max_records, timeout)
        records = []
        positions = self._positions
        for message in messages:
            error = message.error()
            if error is not None and error.code() != codes.PARTITION_EOF:
                raise fetch_error(error, message, self._where)
            topic, partition, offset = message.topic(), message.partition(), message.offset()
            if (topic, partition) not in positions:
                continue
            if error is not None:
                # The end lies behind transaction markers and aborted records, which are never delivered.
                positions[topic, partition] = offset
                continue
            positions[topic, partition] = offset + 1
            timestamp, headers = message.timestamp()[1], message.headers() or ()
            records.append(Record(topic, partition, offset, timestamp, message.key(), message.value(), headers))
        return records

    def position(self, topic: str, partition: int) -> int:
        return self._positions[topic, partition]

    def close(self, topic: str | None = None, partition: int | None = None) -> None:
        if topic is not None and partition is not None:
            self._close_partition(topic, partition)
        else:
            self._client.close()

    def _close_partition(self, topic: str, partition: int) -> None:
        if self._positions.pop((topic, partition), None) is not None:
            with translated(f"leaving {topic}/{partition} {self._where}"):
                self._client.incremental_unassign([TopicPartition(topic, partition)])
