"""What a member of a group commits outside of transactions: for who reads a cluster that is not the bus's own.

The client's own way to wait for the answer knows no time-out, and was seen to hang for good after a broker had been
killed. So nobody waits: the answer comes to a callback, and what the group has not taken, because its partitions were
just then shared out anew, is sent again.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from confluent_kafka import Consumer, KafkaError, TopicPartition

from eventbus.errors import AbortableError, LogError, RetriableError
from eventbus.kafka.errors import log_error, translated


class Progress:
    """Of one member, until the group has it."""

    def __init__(self, topic: str, doing: str) -> None:
        self._topic = topic
        self._doing = doing
        self._open: dict[int, int] = {}
        self._again = False
        self._failure: LogError | None = None
        self.unanswered = 0
        """Commits that are on their way."""

    def commit(self, client: Consumer, offsets: Mapping[int, int]) -> None:
        """Send it at once, so that it goes before whatever is sent next: even before the member leaves."""
        self._open.update(offsets)
        self._send(client)

    def look_after(self, client: Consumer) -> None:
        """Send again what was not taken. Raises what only a person can change."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        if self._again:
            self._send(client)

    def hand_over(self, client: Consumer) -> None:
        """Partitions are about to go: send once more what has no answer yet. A refusal would come too late."""
        with suppress(LogError):  # nothing but a repeat comes of it
            self._send(client)

    def forget(self, partition: int) -> None:
        """It is another member's now."""
        self._open.pop(partition, None)

    def answered(self, error: KafkaError | None, places: list[TopicPartition]) -> None:
        """The client's callback."""
        self.unanswered -= 1
        for place in places:
            reason = error or place.error
            if reason is None:
                if self._open.get(place.partition) == place.offset:
                    del self._open[place.partition]
                continue
            self._again = True
            failure = log_error(reason, self._doing)
            if not isinstance(failure, AbortableError | RetriableError):
                self._failure = failure

    def _send(self, client: Consumer) -> None:
        self._again = False
        places = [TopicPartition(self._topic, partition, offset) for partition, offset in self._open.items()]
        if places:
            with translated(self._doing):
                client.commit(offsets=places, asynchronous=True)
            self.unanswered += 1
