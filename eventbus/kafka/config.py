"""librdkafka's settings: which ones we choose, and which ones nobody may change.

The fixed settings carry the guarantees of the protocol (exactly once, no silent reset, no dirty reads). All others
are defaults that a user's own settings replace.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from eventbus.errors import ConfigError
from eventbus.kafka.connection import FETCHER_FIXED, WRITER_FIXED, Config, Connection
from eventbus.kafka.errors import kafka_error, no_token
from eventbus.kafka.tokens import NoToken

Client = TypeVar("Client")

REQUEST_TIMEOUT = 10.0
"""Seconds until a question to the brokers counts as unanswered."""

_log = logging.getLogger("eventbus.kafka")

_COMMON: Config = {
    # The default of 100 ms makes every transaction wait that long for its predecessor's markers.
    "retry.backoff.ms": 1,
    "retry.backoff.max.ms": 5,
    # Connect to every broker at the start. Connecting on demand waits for timers of up to a second.
    "enable.sparse.connections": False,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 1000,
}
_WRITER: Config = {
    "linger.ms": 5,
    # A topic that was never created is told from one that is just being created.
    "topic.metadata.propagation.max.ms": 5000,
}
_FETCHER: Config = {
    "session.timeout.ms": 6000,
    # Members learn of a rebalance by their heartbeat.
    "heartbeat.interval.ms": 500,
    "max.poll.interval.ms": 60_000,
    # One fetch at a time goes to each broker: a partition that starts or resumes waits for the one under way.
    "fetch.wait.max.ms": 50,
    "fetch.error.backoff.ms": 50,
    # The default of 1 s lets the local queue run dry under load.
    "fetch.queue.backoff.ms": 5,
    # New partitions are found by the next look at the topic. The default of 5 min leaves their records lying that long.
    "topic.metadata.refresh.interval.ms": 10_000,
}


class Settings:
    """Everything a client of one cluster is configured with."""

    def __init__(self, connection: Connection, client_id: str) -> None:
        self.connection = connection
        self.bootstrap_servers = connection.bootstrap_servers
        self._client_id = client_id

    @property
    def transaction_timeout(self) -> float:
        """Seconds until the log aborts a transaction that nobody finishes: a successor waits no longer than that."""
        settings: Config = {"transaction.timeout.ms": 10_000, **self.connection.clients, **self.connection.producer}
        return int(settings["transaction.timeout.ms"]) / 1000

    def admin(self) -> Config:
        return self._merged(_COMMON, {}, {})

    def member(self, group: str) -> Config:
        fixed = {
            "group.id": group,
            # The newer protocol changes a member's epoch without telling it, which fences its commits (KIP-1251).
            "group.protocol": "classic",
            "partition.assignment.strategy": "cooperative-sticky",
        }
        return self._merged(_COMMON | _FETCHER, self.connection.consumer, FETCHER_FIXED | fixed)

    def observer(self, group: str) -> Config:
        """For one who asks about a group without joining it."""
        return self._merged(_COMMON | _FETCHER, self.connection.consumer, FETCHER_FIXED | {"group.id": group})

    def reader(self) -> Config:
        # A reader asks "was that all?", and the broker answers only when a fetch found nothing for that long.
        defaults = {"fetch.wait.max.ms": 10}
        # The client insists on a group, though a reader never joins one.
        fixed = {"group.id": self._client_id}
        return self._merged(_COMMON | _FETCHER | defaults, self.connection.consumer, FETCHER_FIXED | fixed)

    def transactional(self, transactional_id: str) -> Config:
        defaults = {"transaction.timeout.ms": round(self.transaction_timeout * 1000)}
        fixed = {"transactional.id": transactional_id, "delivery.report.only.error": True}
        return self._merged(_COMMON | _WRITER | defaults, self.connection.producer, WRITER_FIXED | fixed)

    def publisher(self) -> Config:
        defaults = {"message.timeout.ms": 30_000}
        return self._merged(_COMMON | _WRITER | defaults, self.connection.producer, WRITER_FIXED)

    def _merged(self, defaults: Config, chosen: Mapping[str, str], fixed: Config) -> Config:
        return {
            **defaults,
            **self.connection.security(),
            **self._login(),
            **chosen,
            **fixed,
            "bootstrap.servers": self.bootstrap_servers,
            "client.id": self._client_id,
            "logger": _Chatter(),
            "error_cb": _log_error,
        }

    def _login(self) -> Config:
        """Whether there is a token is better known before: a client waits for it, and then does not say why."""
        tokens = self.connection.tokens
        if tokens is None:
            return {}
        try:
            tokens.get()
        except NoToken as trouble:
            raise no_token(trouble, f"connecting to {self.bootstrap_servers}") from None
        return {"oauth_cb": tokens}


def setting_fault(name: str, value: str, *, of_consumer: bool) -> str | None:
    """Why librdkafka would not take a setting, if so."""
    try:
        if of_consumer:
            make_client(Consumer, {"group.id": "nobody", "logger": _Chatter(), name: value}).close()
        else:
            make_client(Producer, {"logger": _Chatter(), name: value})
    except ConfigError as error:
        return str(error)
    return None


def make_client(client: Callable[[Config], Client], config: Config) -> Client:
    """Make a client; a setting that librdkafka does not know is the user's mistake, so it is told as one."""
    try:
        return client(config)
    except KafkaException as exception:
        raise ConfigError(f"Kafka settings: {kafka_error(exception).str()}") from None
    except (TypeError, ValueError) as error:
        raise ConfigError(f"Kafka settings: {error}") from None


class _Chatter:
    """What librdkafka would print to stderr. It repeats what our errors say, and more: only for debugging."""

    def log(self, _level: int, message: str, *arguments: object) -> None:
        _log.debug(message, *arguments)


def _log_error(error: KafkaError) -> None:
    _log.debug("%s", error)
