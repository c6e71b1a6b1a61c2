"""The bus as a library user sees it: a place to publish events, on Kafka or in memory."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import count
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeAlias

from eventbus.clock import Deadline, SystemClock
from eventbus.cloudevents import to_kafka
from eventbus.errors import ConfigError, LogError, RetriableError, UnproducibleError
from eventbus.events import Event
from eventbus.hashing import partition_of
from eventbus.names import BusName
from eventbus.ports import Cluster, Output, Position, Publisher
from eventbus.topics import ensure_event_topic

if TYPE_CHECKING:
    from eventbus.kafka.connection import Connection

PUBLISH_SECONDS = 30.0


class Bus:
    """One event bus. Use it as a context manager, or call `close`.

    >>> from eventbus import Bus, Event
    >>> with Bus.memory() as bus:
    ...     [position] = bus.publish(Event.new("shop", "order", {"id": 17}))
    >>> position.topic
    'default-default'
    """

    def __init__(
        self,
        cluster: Cluster,
        name: BusName | None = None,
        *,
        bootstrap_servers: str = "",
        connection: Connection | None = None,
    ) -> None:
        self.cluster = cluster
        self.name = name or BusName()
        self.bootstrap_servers = bootstrap_servers
        self._connection = connection
        self._publisher: Publisher | None = None
        self._partitions = 0
        # Short-lived senders must not all begin with the same partition.
        self._turn = count(random.randrange(1 << 30))  # noqa: S311 - load spreading, not a secret

    @classmethod
    def connect(
        cls,
        bootstrap_servers: str | None = None,
        *,
        namespace: str = "default",
        bus: str = "default",
        config: Mapping[str, str] | None = None,
    ) -> Self:
        """A bus on Kafka: at this address, else `KAFKA_BOOTSTRAP_SERVERS`, else the embedded broker that runs.

        `config` is passed on to the client (librdkafka's names), and goes before `EVENTBUS_KAFKA_…` in the environment.
        """
        from eventbus.kafka.connection import from_environment

        servers = bootstrap_servers or os.environ.get("KAFKA_BOOTSTRAP_SERVERS") or _embedded()
        return cls.on(from_environment(servers, config or {}), BusName(namespace, bus))

    @classmethod
    def on(cls, connection: Connection, name: BusName | None = None) -> Self:
        """A bus on Kafka, reached as the connection says."""
        from eventbus.kafka import KafkaCluster

        cluster = KafkaCluster(connection)
        return cls(cluster, name, bootstrap_servers=connection.bootstrap_servers, connection=connection)

    @classmethod
    def memory(cls, *, namespace: str = "default", bus: str = "default") -> Self:
        """A bus inside this process, with Kafka's transactions and consumer groups, for tests and try-outs."""
        from eventbus.memory import MemoryCluster

        return cls(MemoryCluster(), BusName(namespace, bus))

    def java_settings(self) -> dict[str, str]:
        """How a Java client reaches the same brokers; its secrets are among it."""
        from eventbus.kafka.connection import Connection
        from eventbus.kafka.java import java_settings

        return java_settings(self._connection or Connection(self.bootstrap_servers))

    def ensure(self, partitions: int | None = None) -> int:
        """Create the event topic if it is missing, check it if it is there; returns its partition count."""
        self._partitions = ensure_event_topic(self.cluster, self.name, partitions)
        return self._partitions

    def publish(self, *events: Event, timeout: float = PUBLISH_SECONDS) -> list[Position]:
        """Write events and wait until all in-sync replicas have them. Raises if any of them was not written."""
        return self.publish_all(events, timeout=timeout)

    def publish_all(self, events: Iterable[Event], *, timeout: float = PUBLISH_SECONDS) -> list[Position]:
        """As `publish`. Events with the same key (see `Event.key`) keep their order."""
        fates = self.write(map(self.output, events), timeout=timeout)
        for fate in fates:
            if isinstance(fate, LogError):
                raise fate
        positions = [fate for fate in fates if isinstance(fate, Position)]
        if len(positions) < len(fates):
            missing = len(fates) - len(positions)
            raise RetriableError(
                f"{missing} of {len(fates)} events were not acknowledged within {timeout:g} s. Check that the brokers "
                "run and can be reached from here; what was sent may still be written."
            )
        return positions

    def write(self, outputs: Iterable[Output], *, timeout: float = PUBLISH_SECONDS) -> list[Fate]:
        """Write records where they say; returns what became of each of them, whatever that is."""
        publisher = self._open_publisher()
        deadline = Deadline(SystemClock(), timeout)
        fates: list[Fate] = []
        for output in outputs:
            fates.append(None)
            settle = partial(_settle, fates, len(fates) - 1)
            try:
                _send(publisher, output, settle, deadline)
            except UnproducibleError as error:
                settle(error, None)
        publisher.flush(deadline.left())
        return fates

    def output(self, event: Event) -> Output:
        """The record of an event, in the partition where it belongs. Raises `InvalidEvent`."""
        event.check()
        headers, value = to_kafka(event)
        key = event.key
        partition = next(self._turn) % self._partitions if key is None else partition_of(key, self._partitions)
        return Output(self.name.event_topic, partition, key, value, headers)

    def _open_publisher(self) -> Publisher:
        if self._publisher is None:
            if not self._partitions:
                self.ensure()
            self._publisher = self.cluster.publisher()
        return self._publisher

    def close(self) -> None:
        if self._publisher is not None:
            self._publisher.close()
            self._publisher = None
        self.cluster.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


Fate: TypeAlias = LogError | Position | None
"""Where a record was written, or why not; None: nobody has said so in time, and it may still be written."""


def _settle(fates: list[Fate], index: int, error: LogError | None, position: Position | None) -> None:
    fates[index] = error or position


def _send(
    publisher: Publisher, output: Output, done: Callable[[LogError | None, Position | None], None], deadline: Deadline
) -> None:
    """Queue a record; while the queue is full, wait for it to drain."""
    while True:
        try:
            publisher.send(output, done)
        except RetriableError:
            if deadline.over():
                raise
            publisher.flush(min(deadline.left(), 0.1))
        else:
            return


def _embedded() -> str:
    from eventbus.broker import default_bootstrap_servers

    servers = default_bootstrap_servers()
    if servers is None:
        raise ConfigError(
            "no broker is named and the embedded one does not run: start it with `eventbus broker start`, "
            "or name one with --bootstrap-servers or KAFKA_BOOTSTRAP_SERVERS"
        )
    return servers
