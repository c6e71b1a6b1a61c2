"""A topic of another Kafka than the bus's, for sources to read."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from eventbus.kafka import KafkaCluster
from eventbus.ports import TopicSpec
from eventsources.base import Identity, Source
from eventsources.sources.kafka import KafkaSource, KafkaSourceSpec
from tests.contract.lab import stable

IDENTITY = Identity("orders", "order", "kafka")


class Topic:
    """With a producer of its own."""

    def __init__(self, address: str, name: str, partitions: int = 1) -> None:
        self.address = address
        self.name = name
        self.group = f"{name}-group"
        self.cluster = KafkaCluster(address)
        self._producer = Producer({"bootstrap.servers": address, "linger.ms": 0, "log_level": 0})
        self._admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
        if partitions:
            self.create(partitions)

    def create(self, partitions: int, **config: str) -> None:
        """Settings are written with `_` for `.`."""
        self.cluster.create([TopicSpec(self.name, partitions, {key.replace("_", "."): config[key] for key in config})])

    def spec(self, **changes: Any) -> dict[str, Any]:
        """Of a source that reads all that the topic has."""
        group = {"groupName": self.group, "oldest": True}
        return {"url": self.address, "topic": self.name, "consumerGroup": group, **changes}

    def source(self, **changes: Any) -> Source:
        return KafkaSource(KafkaSourceSpec.model_validate(self.spec(**changes)))

    def send(
        self,
        *values: str | bytes | None,
        key: bytes | None = None,
        partition: int = 0,
        headers: Sequence[tuple[str, bytes | None]] = (),
        timestamp: int = 0,
    ) -> None:
        errors: list[KafkaError | None] = []
        for value in values:
            self._producer.produce(
                self.name,
                value,
                key,
                partition,
                on_delivery=lambda error, _: errors.append(error),
                headers=list(headers),
                timestamp=timestamp,
            )
        self._producer.flush(30)
        assert errors == [None] * len(values)

    def unacknowledged(self) -> int:
        """How many records the group has not committed."""
        with closing(self.cluster.reader()) as reader:
            committed = stable(lambda: self.cluster.committed(self.group, self.name))
            ends = {each: stable(partial(reader.offsets, self.name, each))[1] for each in committed}
        return sum(ends.values()) - sum(each.offset for each in committed.values() if each is not None)

    def remove_before(self, offset: int) -> None:
        for future in self._admin.delete_records([TopicPartition(self.name, 0, offset)]).values():
            future.result(30)

    def close(self) -> None:
        self.cluster.delete([self.name])
        self.cluster.close()
