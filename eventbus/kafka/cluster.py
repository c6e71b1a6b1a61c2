"""The Kafka cluster itself: makes everything that reads and writes it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from confluent_kafka import Consumer

from eventbus.kafka.admin import KafkaAdmin
from eventbus.kafka.commits import committed
from eventbus.kafka.config import Settings, make_client
from eventbus.kafka.connection import CLIENT_ID, Connection
from eventbus.kafka.consumer import KafkaConsumer
from eventbus.kafka.producer import KafkaProducer
from eventbus.kafka.publisher import KafkaPublisher
from eventbus.kafka.reader import KafkaReader
from eventbus.ports import Committed, RebalanceListener, TopicInfo, TopicSpec


class KafkaCluster:
    """`eventbus.ports.Cluster` with confluent-kafka: at an address, with further settings of librdkafka in `config`,
    or by a `Connection`, which says all of that."""

    def __init__(
        self, where: str | Connection, *, config: Mapping[str, str] | None = None, client_id: str = CLIENT_ID
    ) -> None:
        connection = where if isinstance(where, Connection) else Connection(where, config or {})
        self._settings = Settings(connection, client_id)
        self._admin = KafkaAdmin(self._settings)

    def describe(self, topics: Iterable[str]) -> dict[str, TopicInfo | None]:
        return self._admin.describe(topics)

    def partitions(self, topic: str) -> range:
        """Of a topic of which nothing else need be known. Raises `FatalError` where it does not exist."""
        return self._admin.partitions(topic)

    def create(self, topics: Iterable[TopicSpec]) -> None:
        self._admin.create(topics)

    def delete(self, topics: Iterable[str]) -> None:
        self._admin.delete(topics)

    def forget(self, groups: Iterable[str]) -> None:
        self._admin.forget(groups)

    def committed(self, group: str, topic: str) -> dict[int, Committed | None]:
        partitions = self._admin.partitions(topic)
        client = make_client(Consumer, self._settings.observer(group))
        try:
            return committed(client, group, topic, partitions, f"on {self._settings.bootstrap_servers}")
        finally:
            client.close()

    def members(self, group: str) -> int:
        return self._admin.members(group)

    def consumer(self, group: str, topic: str, listener: RebalanceListener) -> KafkaConsumer:
        return KafkaConsumer(self._settings, self._admin, group, topic, listener)

    def producer(self, transactional_id: str) -> KafkaProducer:
        return KafkaProducer(self._settings, self._admin, transactional_id)

    def reader(self) -> KafkaReader:
        return KafkaReader(self._settings, self._admin)

    def publisher(self) -> KafkaPublisher:
        return KafkaPublisher(self._settings)

    def close(self) -> None:
        self._admin.close()
