"""A Kafka producer for single records whose fate must be known before the caller goes on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from eventbus.errors import ConfigError
from eventbus.kafka.errors import kafka_error
from eventbus.kafka.lasting import LastingProducer
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
        self._producer = LastingProducer(self._new_client)

    def deliver(self, topic: str, key: bytes | None, value: bytes, headers: list[tuple[str, bytes]]) -> str:
        """Write one record and wait. Returns where it is, as `topic-partition@offset`. Raises `ActionError`."""
        reports: list[tuple[KafkaError | None, Message | None]] = []

        def told(error: KafkaError | None, message: Message | None) -> None:
            reports.append((error, message))

        try:
            self._producer.produce(told, topic, value=value, key=key, headers=list(headers))
        except BufferError:
            raise ActionError("the producer's queue is full", retriable=True, sent=False) from None
        except KafkaException as refusal:
            raise _action_error(kafka_error(refusal)) from None
        while not reports:
            self._producer.poll(_POLL_SECONDS)
        failure, message = reports[0]
        if failure is not None:
            raise _action_error(failure)
        return "" if message is None else f"{topic}-{message.partition()}@{message.offset()}"

    def close(self) -> None:
        self._producer.flush(DELIVERY_SECONDS)

    def _new_client(self) -> Producer:
        try:
            return Producer(self._config, logger=fields_logger("eventbus.action.kafka"))
        except KafkaException as error:
            raise ConfigError(f"the Kafka client cannot be made: {error.args[0].str()}") from None


def _action_error(error: KafkaError) -> ActionError:
    name = error.name()
    return ActionError(
        f"Kafka: {error.str()}",
        retriable=name not in _REFUSED,
        sent=name not in _REFUSED | _NO_TOPIC,
        status=name,
    )
