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
from eventbus.kafka.fetched import Trouble
from eventbus.kafka.tokens import NoToken


def log_error(error: KafkaError, doing: str) -> LogError:
    """Our error for one of Kafka's. `doing` says what was tried and where, as in "reading t on localhost:9092"."""
    if error.code() in codes.UNREACHABLE and not error.txn_requires_abort():
        return no_answer(doing)
    advice = codes.NEEDS_A_PERSON.get(error.code())
    message = f"Kafka, {doing}: {_reason(error)}"
    return _reaction(error)(f"{message}. {advice}" if advice else message)


def no_answer(doing: str, reason: str = "Check that the brokers run and can be reached from here.") -> RetriableError:
    return RetriableError(f"Kafka, {doing}: no answer. {reason}")


def no_token(trouble: NoToken, doing: str) -> LogError:
    """Our error for a client that has nothing to log in with."""
    return (RetriableError if trouble.passing else FatalError)(f"Kafka, {doing}: {trouble}")


def _reaction(error: KafkaError) -> type[LogError]:
    code = error.code()
    if code in codes.FENCED:
        return FencedError
    if code in codes.NEEDS_A_PERSON:
        return FatalError
    if error.txn_requires_abort() or code in codes.STALE_MEMBER:
        return AbortableError
    if error.retriable() or code in codes.TRANSIENT:
        return RetriableError
    # What is fatal for the client is not fatal for us: a new client can go on from the last commit.
    return UnknownOutcome if error.fatal() or code in codes.GIVEN_UP else FatalError


def refused_record(error: KafkaError, topic: str, partition: int, index: int) -> UnproducibleError:
    """Our error for a record that Kafka will never take."""
    return UnproducibleError(f"Kafka refuses a record for {topic}/{partition}: {_reason(error)}", index)


def fetch_error(trouble: Trouble, where: str) -> LogError:
    """Our error for a partition that cannot be read. An offset that does not exist is never replaced by another."""
    if trouble.error.code() in codes.OUT_OF_RANGE:
        place = f"{trouble.topic}/{trouble.partition}"
        return FatalError(
            f"{place} has no offset {trouble.offset} {where}: its records were removed before they were read, or "
            "the topic was made anew. Nothing was skipped. "
            "A sensor can only begin anew: docs/protocol.md tells how, under Damage."
        )
    return log_error(trouble.error, f"reading {trouble.topic} {where}")


def needs_a_person(error: KafkaError) -> bool:
    """Whether trying again is useless until somebody has changed a permission or a setting."""
    return error.code() in codes.NEEDS_A_PERSON


def kafka_error(exception: KafkaException | SystemError) -> KafkaError:
    """The error inside an exception: confluent-kafka keeps it among the arguments.

    When a client gives up, confluent-kafka goes on to call back with its exception pending. Python complains about that
    in the middle of the callback, by a `SystemError` (or several) with the exception behind it.
    """
    cause: BaseException | None = exception
    while isinstance(cause, SystemError):
        cause = cause.__cause__
    if not isinstance(cause, KafkaException):
        raise exception
    error: KafkaError = cause.args[0]
    return error


@contextmanager
def translated(doing: str) -> Iterator[None]:
    """Let nothing but our own errors out of a call to the client."""
    try:
        yield
    except (KafkaException, SystemError) as exception:
        raise log_error(kafka_error(exception), doing) from None


def _reason(error: KafkaError) -> str:
    return error.str().strip().rstrip(".")
