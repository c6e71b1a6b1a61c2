"""Which record of a transaction Kafka will never take.

Kafka refuses whole batches, after `produce` has returned, and reports the same error for every record of the batch.
The one to blame has to be worked out from what was sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import msgspec
from confluent_kafka import KafkaError, Message

from eventbus.kafka import codes
from eventbus.ports import Output

_Identity = tuple[str | None, int | None, bytes | None, bytes | None]


class Culprit(msgspec.Struct, frozen=True):
    """The record to blame, its index in the transaction, and what Kafka said of its batch."""

    output: Output
    index: int
    error: KafkaError


class Refusals:
    """What was sent in one transaction, and what of it was refused."""

    def __init__(self) -> None:
        self._sent: list[Sequence[Output]] = []
        self._errors: dict[_Identity, KafkaError] = {}

    def __bool__(self) -> bool:
        return bool(self._errors)

    def sending(self, outputs: Sequence[Output]) -> int:
        """Note what is sent next; return how many records were sent before it."""
        before = sum(map(len, self._sent))
        self._sent.append(outputs)
        return before

    def on_delivery(self, error: KafkaError | None, message: Message) -> None:
        """The client's report about one record."""
        if error is not None and error.code() in codes.REFUSED_RECORD:
            self._errors[message.topic(), message.partition(), message.key(), message.value()] = error

    def culprit(self) -> Culprit:
        """The most suspicious record: one without a key where Kafka found a record invalid, else the largest."""
        refused = [
            Culprit(output, index, self._errors[_identity(output)])
            for index, output in enumerate(chain.from_iterable(self._sent))
            if _identity(output) in self._errors
        ]
        return max(refused, key=_suspicion)


def _identity(output: Output) -> _Identity:
    return output.topic, output.partition, output.key, output.value


def _suspicion(culprit: Culprit) -> tuple[bool, int]:
    keyless = culprit.error.code() == codes.INVALID_RECORD and culprit.output.key is None
    return keyless, culprit.output.size()
