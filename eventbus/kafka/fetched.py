"""What a consumer hands out, typed as what it is.

confluent-kafka's stubs call every field of a message optional, because a message may also be an error. Checking six
fields of every record for None would cost more than reading them, so the difference is stated once, here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, cast

from confluent_kafka import Consumer, KafkaError

from eventbus.ports import Headers


class Fetched(Protocol):
    """A record, or an error that concerns the partition (if `error` is not None)."""

    def error(self) -> KafkaError | None: ...
    def topic(self) -> str: ...
    def partition(self) -> int: ...
    def offset(self) -> int: ...
    def timestamp(self) -> tuple[int, int]: ...
    def key(self) -> bytes | None: ...
    def value(self) -> bytes | None: ...
    def headers(self) -> Headers | None: ...


def consume(client: Consumer, max_messages: int, timeout: float) -> list[Fetched]:
    """Up to `max_messages`; waits only for the first one (the client's own call would wait for all of them)."""
    messages: Sequence[object] = client.consume(1, timeout)
    if messages and max_messages > 1:
        messages = [*messages, *client.consume(max_messages - 1, 0)]
    return cast("list[Fetched]", messages)
