"""A Kafka producer for single records whose fate must be known before the caller goes on."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Event as Flag
from threading import Lock
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from eventbus.errors import ConfigError
from eventbus.logfields import fields_logger
from sensors.actions.base import ActionError

DELIVERY_SECONDS = 30
_POLL_SECONDS = 0.02
_REFUSED = frozenset(
    (
        "MSG_SIZE_TOO_LARGE",
        "RECORD_LIST_TOO_LARGE",
        "INVALID_RECORD",
        "POLICY_VIOLATION",
        "TOPIC_AUTHORIZATION_FAILED",
        "CLUSTER_AUTHORIZATION_FAILED",
        "TOPIC_EXCEPTION",
    )
)
"""Answers that mean: not written, and not next time either."""
_NO_TOPIC = frozenset(("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION"))
"""Not written, but the topic may appear."""


class DeliveryProducer:
    """Thread-safe: whichever thread polls, the delivery report of a record reaches the thread that waits for it."""

    def __init__(self, connection: Mapping[str, Any]) -> None:
        """`connection` says which brokers, and how to reach them."""
        self._config = {
            **connection,
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": 0,
            "delivery.timeout.ms": DELIVERY_SECONDS * 1000,
            "partitioner": "murmur2_random",  # as Java clients do it
        }
        self._lock = Lock()
        self._producer = self._new_producer()

    def deliver(self, topic: str, key: bytes | None, value: bytes, headers: list[tuple[str, bytes]]) -> str:
        """Write one record and wait. Returns where it is, as `topic-partition@offset`. Raises `ActionError`."""
        producer = self._producer
        done = Flag()
        reports: list[tuple[KafkaError | None, Message]] = []

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            reports.append((error, message))
            done.set()

        try:
            producer.produce(topic, value=value, key=key, headers=list(headers), on_delivery=on_delivery)
        except BufferError:
            raise ActionError("the producer's queue is full", retriable=True, sent=False) from None
        except KafkaException as refusal:
            raise self._failure(producer, refusal.args[0]) from None
        while not done.is_set():
            producer.poll(_POLL_SECONDS)
        failure, message = reports[0]
        if failure is not None:
            raise self._failure(producer, failure)
        return f"{topic}-{message.partition()}@{message.offset()}"

    def close(self) -> None:
        self._producer.flush(DELIVERY_SECONDS)

    def _new_producer(self) -> Producer:
        try:
            return Producer(self._config, logger=fields_logger("eventbus.action.kafka"))
        except KafkaException as error:
            raise ConfigError(f"the Kafka client cannot be made: {error.args[0].str()}") from None

    def _failure(self, producer: Producer, error: KafkaError) -> ActionError:
        if error.fatal():  # an idempotent producer that lost its sequence never recovers
            with self._lock:
                if self._producer is producer:
                    self._producer = self._new_producer()
        name = error.name()
        return ActionError(
            f"Kafka: {error.str()}",
            retriable=name not in _REFUSED,
            sent=name not in _REFUSED | _NO_TOPIC,
            status=name,
        )
