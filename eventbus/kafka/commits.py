"""What a group has committed.

The admin client has a request for that, which would answer "unstable" at once while a transaction is pending. It is
not used: when the connection to the coordinator breaks at the wrong moment it aborts the process (librdkafka's issues
3663 and 4605, seen here within a minute of killing a broker). A consumer's own request waits instead.
"""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka import OFFSET_INVALID, Consumer, KafkaException, TopicPartition

from eventbus.errors import RetriableError
from eventbus.kafka import codes
from eventbus.kafka.errors import kafka_error, log_error
from eventbus.ports import Committed

PATIENCE = 1.0
"""Seconds to wait for a pending transaction. The caller has other things to do meanwhile, and asks again."""


def committed(
    client: Consumer, group: str, topic: str, partitions: Iterable[int], where: str
) -> dict[int, Committed | None]:
    """Ask with a consumer of the group, be it a member or not."""
    wanted = [TopicPartition(topic, partition) for partition in partitions]
    if not wanted:
        return {}
    doing = f"asking what group {group} has committed of {topic} {where}"
    try:
        entries = client.committed(wanted, PATIENCE)
    except KafkaException as exception:
        error = kafka_error(exception)
        if error.code() == codes.TIMED_OUT:
            raise RetriableError(f"Kafka, {doing}: no answer, or a transaction is still pending") from None
        raise log_error(error, doing) from None
    for entry in entries:
        if entry.error is not None:
            raise log_error(entry.error, doing)
    return {entry.partition: _committed(entry) for entry in entries}


def _committed(entry: TopicPartition) -> Committed | None:
    if entry.offset == OFFSET_INVALID:
        return None
    # librdkafka sends the terminating NUL of the metadata along with it.
    return Committed(entry.offset, (entry.metadata or "").rstrip("\0"))
