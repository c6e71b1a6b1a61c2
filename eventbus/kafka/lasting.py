"""A producer that outlives its clients.

Theory of operation. An idempotent client of librdkafka gives up for good (a "fatal" error) when it cannot tell any more
what it has written in which order, as can happen in an outage (librdkafka #4736). Whoever waits for a report of it is
told that error at once, and another client goes on. confluent-kafka raises such an error from whichever call meets it
first, and on the way out goes on to call back with that exception pending, so that a callback may fail anywhere. So
callbacks only take down what is reported; it is told when the client's call has returned, and so is whoever is left.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from itertools import count
from threading import Lock
from typing import Any, NamedTuple, TypeAlias

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from eventbus.kafka import codes
from eventbus.kafka.errors import kafka_error

Told: TypeAlias = Callable[[KafkaError | None, Message | None], None]
"""Called once per record; without a message when its client has given up, and nobody knows what became of it."""

_log = logging.getLogger("eventbus.kafka")


class _Client(NamedTuple):
    producer: Producer
    waiting: dict[int, Told]
    reports: deque[tuple[int, KafkaError | None, Message]]

    def taking_down(self, number: int) -> Callable[[KafkaError | None, Message], None]:
        take_down = self.reports.append
        return lambda error, message: take_down((number, error, message))

    def tell(self) -> None:
        """Several threads may do so at the same time."""
        while self.reports:
            try:
                report = self.reports.popleft()
            except IndexError:
                return
            self._tell(*report)

    def tell_all(self, error: KafkaError) -> None:
        """Also those that nothing will be reported about."""
        self.tell()
        for number in list(self.waiting):
            self._tell(number, error, None)

    def _tell(self, number: int, error: KafkaError | None, message: Message | None) -> None:
        told = self.waiting.pop(number, None)
        if told is not None:
            told(error, message)


class LastingProducer:
    """Thread-safe: whichever thread polls, the report of a record reaches whoever waits for it."""

    def __init__(self, new_client: Callable[[], Producer]) -> None:
        self._new_client = new_client
        self._numbers = count()
        self._changing = Lock()
        self._client: _Client | None = None
        """None after one has given up, until the next is needed."""
        self._open()

    @property
    def client(self) -> Producer:
        """The one that is at work. Raises whatever the maker of clients raises."""
        return (self._client or self._open()).producer

    def produce(self, told: Told, topic: str, **record: Any) -> None:
        """Queue one record. Raises `BufferError` and `KafkaException`, as the client does; then nobody is told."""
        while True:
            client = self._client or self._open()
            number = next(self._numbers)
            client.waiting[number] = told
            try:
                client.producer.produce(topic, on_delivery=client.taking_down(number), **record)
            except (BufferError, KafkaException) as exception:
                if client.waiting.pop(number, None) is None:
                    return  # another thread has met the client's end before, and told it
                if isinstance(exception, BufferError) or kafka_error(exception).code() != codes.CLIENT_DEAD:
                    raise
                self._give_up(client, kafka_error(exception))
            else:
                return

    def poll(self, timeout: float) -> None:
        client = self._client
        if client is None:
            time.sleep(timeout)  # nobody waits for a report
            return
        try:
            client.producer.poll(timeout)
        except (KafkaException, SystemError) as exception:
            self._give_up(client, kafka_error(exception))
        else:
            client.tell()

    def flush(self, timeout: float) -> int:
        """Returns how many records are still under way."""
        client = self._client
        if client is None:
            return 0
        try:
            left = client.producer.flush(timeout)
        except (KafkaException, SystemError) as exception:
            self._give_up(client, kafka_error(exception))
            return 0
        client.tell()
        return left

    def close(self) -> None:
        """Without waiting for anything."""
        if self._client is not None:
            self._client.producer.purge(blocking=False)
            self._client = None

    def _open(self) -> _Client:
        with self._changing:
            if self._client is None:
                self._client = _Client(self._new_client(), {}, deque())
            return self._client

    def _give_up(self, client: _Client, error: KafkaError) -> None:
        """The next record gets another one. Several threads may come to that at the same time."""
        with self._changing:
            if self._client is client:
                self._client = None
                _log.warning("a Kafka client that writes has given up, another one goes on: %s", error)
        client.producer.purge(blocking=False)
        client.tell_all(error)
