"""From the client's messages to our records, a batch at a time.

This is the hot path of everything that reads. Fields are taken column by column with `map`, which is more than twice
as fast as a loop over the messages. It is also the only safe way to get at the headers: if the name of a header is
not UTF-8, `Message.headers` returns garbage *and* sets an exception, which a call from Python code may not notice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import itemgetter

import msgspec
from confluent_kafka import Consumer, KafkaError, Message

from eventbus.ports import Headers, Record

UNREADABLE_HEADERS: Headers = (("\N{REPLACEMENT CHARACTER}", None),)
"""Stands for headers with a name that is not UTF-8."""

_time_of = itemgetter(1)


class Trouble(msgspec.Struct, frozen=True):
    """An error that came in the guise of a message."""

    error: KafkaError
    topic: str
    partition: int
    offset: int


def consume(client: Consumer, max_messages: int, timeout: float) -> list[Message]:
    """Up to `max_messages`; waits only for the first one (the client's own call would wait for all of them)."""
    messages = client.consume(1, timeout)
    if messages and max_messages > 1:
        messages += client.consume(max_messages - 1, 0)
    return messages


def split(messages: list[Message]) -> tuple[list[Message], list[Trouble]]:
    """Tell records from errors."""
    if not any(map(Message.error, messages)):
        return messages, []
    records, troubles = [], []
    for message in messages:
        error = message.error()
        if error is None:
            records.append(message)
        else:
            place = message.topic() or "", message.partition() or 0, message.offset() or 0
            troubles.append(Trouble(error, *place))
    return records, troubles


def to_records(messages: Sequence[Message], topics: Iterable[str]) -> list[Record]:
    return list(
        map(
            Record,
            topics,
            map(Message.partition, messages),
            map(Message.offset, messages),
            map(_time_of, map(Message.timestamp, messages)),
            map(Message.key, messages),
            map(Message.value, messages),
            _headers(messages),
        )
    )


def _headers(messages: Iterable[Message]) -> list[Headers]:
    headers: list[Headers | None] = []
    remaining = iter(messages)
    while True:
        try:
            headers.extend(map(Message.headers, remaining))  # type: ignore[arg-type]  # values read are never str
        except SystemError:
            headers.append(UNREADABLE_HEADERS)
        else:
            return [present or () for present in headers]
