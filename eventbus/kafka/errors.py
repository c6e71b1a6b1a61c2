"""The one place that turns confluent-kafka's errors into ours.

librdkafka says of an error whether it is retriable, whether it spoils the transaction, or whether it spoils the
client. That is nearly the reaction we want, but not quite: a fenced producer is "fatal" there and a new start here,
a missing permission "spoils the transaction" there and stops us here. So the code decides first, the flags second.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import KafkaError, KafkaException

from eventbus.errors import (
    AbortableError,
    FatalError,
    FencedError,
    LogError,
    RetriableError,
    UnknownOutcome,
    UnproducibleError,
)
from eventbus.kafka import codes
from eventbus.kafka.fetched import Fetched


def log_error(error: KafkaError, doing: str) -> LogError:
    """Our error for one of Kafka's. `doing` completes the sentence "while …" and names the brokers or the topic."""
    code = error.code()
    message = f"Kafka, {doing}: {_reason(error)}"
    if code in codes.FENCED:
        return FencedError(f"{message}. Another process uses the same identity, or this one was too slow.")
    if code in codes.ADVICE:
        return FatalError(f"{message}. {codes.ADVICE[code]}")
    if error.txn_requires_abort() or code in codes.STALE_MEMBER:
        return AbortableError(message)
    if code in codes.UNREACHABLE:
        return RetriableError(f"{message}. Check that the brokers run and can be reached from here.")
    if error.retriable() or code in codes.TRANSIENT:
        return RetriableError(message)
    if error.fatal():
        return UnknownOutcome(f"{message}. The client has given up and must be made anew.")
    return FatalError(message)


def refused_record(error: KafkaError, topic: str, partition: int, index: int) -> UnproducibleError:
    """Our error for a record that Kafka will never take."""
    return UnproducibleError(f"Kafka refuses a record for {topic}/{partition}: {_reason(error)}", index)


def fetch_error(error: KafkaError, message: Fetched, where: str) -> LogError:
    """Our error for a message that is none. An offset that does not exist is never replaced by another one."""
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    if error.code() in codes.OUT_OF_RANGE:
        return FatalError(
            f"{topic}/{partition} has no offset {offset} {where}: its records were removed before they were read, or "
            "the topic was made anew. Nothing was skipped. To go on, set the committed offset to one that exists."
        )
    return log_error(error, f"reading {topic} {where}")


def needs_a_person(error: KafkaError) -> bool:
    """Whether trying again is useless until somebody has changed a permission or a setting."""
    return error.code() in codes.ADVICE


def kafka_error(exception: KafkaException) -> KafkaError:
    """The error inside an exception: confluent-kafka keeps it among the arguments."""
    error: KafkaError = exception.args[0]
    return error


@contextmanager
def translated(doing: str) -> Iterator[None]:
    """Let nothing but our own errors out of a call to the client."""
    try:
        yield
    except KafkaException as exception:
        raise log_error(kafka_error(exception), doing) from None


def _reason(error: KafkaError) -> str:
    return error.str().strip().rstrip(".")
