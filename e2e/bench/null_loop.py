"""The null loop: consume, produce, send offsets, commit. What Kafka and its client cost without any logic.

It uses confluent-kafka directly, so that the cost of our own adapter counts against us.
"""

from __future__ import annotations

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, Message, Producer, TopicPartition

BATCH = 5000


class NullLoop:
    """Copies one topic to another in transactions; key, value, headers and partition stay as they are."""

    def __init__(self, servers: str, source: str, target: str, *, name: str, from_end: bool = False) -> None:
        self._target = target
        self._start = OFFSET_END if from_end else OFFSET_BEGINNING
        self._joined = False
        self._first: list[Message] = []
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": name,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "partition.assignment.strategy": "cooperative-sticky",
            }
        )
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "transactional.id": name,
                "retry.backoff.ms": 1,
                "retry.backoff.max.ms": 5,
                "queue.buffering.max.messages": 1_000_000,
            }
        )
        self._producer.init_transactions()
        self._consumer.subscribe([source], on_assign=self._assigned)
        while not self._joined:  # joining the group is not what we measure
            self._first += self._consumer.consume(1, 0.05)

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for partition in partitions:
            partition.offset = self._start
        consumer.incremental_assign(partitions)
        self._joined = True

    def step(self, timeout: float) -> list[Message]:
        """One transaction; returns what it copied."""
        messages = self._first or self._consumer.consume(1, timeout)
        self._first = []
        if not messages:
            return []
        messages += self._consumer.consume(BATCH - 1, 0)
        self._producer.begin_transaction()
        ends: dict[int | None, TopicPartition] = {}
        produce = self._producer.produce
        for message in messages:
            partition = message.partition() or 0
            produce(self._target, message.value(), message.key(), partition, headers=message.headers() or [])
            ends[partition] = TopicPartition(message.topic() or "", partition, (message.offset() or 0) + 1)
        self._producer.send_offsets_to_transaction(list(ends.values()), self._consumer.consumer_group_metadata())
        self._producer.commit_transaction()
        return messages

    def close(self) -> None:
        """Leaves no thread behind that would disturb the next measurement."""
        self._consumer.close()
        self._producer.close()
