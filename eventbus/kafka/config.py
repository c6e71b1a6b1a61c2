"""librdkafka's settings: which ones we choose, and which ones nobody may change.

The fixed settings carry the guarantees of the protocol (exactly once, no silent reset, no dirty reads). All others
are defaults that a user's own settings replace.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, Producer

from eventbus.errors import ConfigError
from eventbus.kafka.errors import kafka_error, translated

Config = dict[str, Any]
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
    # Above the size of a topic the broker's own refusal names the topic's limit; that is the better message.
    "message.max.bytes": 10_000_000,
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
_WRITER_FIXED: Config = {"enable.idempotence": True, "acks": "all"}
_FETCHER_FIXED: Config = {
    "isolation.level": "read_committed",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
    "enable.partition.eof": True,
    "allow.auto.create.topics": False,
}
_FIXED = frozenset(
    {
        *_WRITER_FIXED,
        *_FETCHER_FIXED,
        "bootstrap.servers",
        "client.id",
        "delivery.report.only.error",
        "group.id",
        "group.protocol",
        "partition.assignment.strategy",
        "transactional.id",
    }
)


class Settings:
    """Everything a client of one cluster is configured with."""

    def __init__(self, bootstrap_servers: str, config: Mapping[str, str], client_id: str) -> None:
        for name in config:
            if name in _FIXED:
                raise ConfigError(f"the Kafka setting `{name}` is chosen by the event bus and cannot be changed")
        self.bootstrap_servers = bootstrap_servers
        self._user = dict(config)
        self._client_id = client_id

    @property
    def transaction_timeout(self) -> float:
        """Seconds until the log aborts a transaction that nobody finishes: a successor waits no longer than that."""
        return int(self._user.get("transaction.timeout.ms", 10_000)) / 1000

    def admin(self) -> Config:
        return self._merged(_COMMON, {})

    def member(self, group: str) -> Config:
        fixed = {
            "group.id": group,
            # The newer protocol changes a member's epoch without telling it, which fences its commits (KIP-1251).
            "group.protocol": "classic",
            "partition.assignment.strategy": "cooperative-sticky",
        }
        return self._merged(_COMMON | _FETCHER, _FETCHER_FIXED | fixed)

    def observer(self, group: str) -> Config:
        """For one who asks about a group without joining it."""
        return self._merged(_COMMON | _FETCHER, _FETCHER_FIXED | {"group.id": group})

    def reader(self) -> Config:
        # A reader asks "was that all?", and the broker answers only when a fetch found nothing for that long.
        defaults = {"fetch.wait.max.ms": 10}
        # The client insists on a group, though a reader never joins one.
        fixed = {"group.id": self._client_id}
        return self._merged(_COMMON | _FETCHER | defaults, _FETCHER_FIXED | fixed)

    def transactional(self, transactional_id: str) -> Config:
        defaults = {"transaction.timeout.ms": round(self.transaction_timeout * 1000)}
        fixed = {"transactional.id": transactional_id, "delivery.report.only.error": True}
        return self._merged(_COMMON | _WRITER | defaults, _WRITER_FIXED | fixed)

    def publisher(self) -> Config:
        return self._merged(_COMMON | _WRITER | {"message.timeout.ms": 30_000}, _WRITER_FIXED)

    def _merged(self, defaults: Config, fixed: Config) -> Config:
        return {
            **defaults,
            **self._user,
            **fixed,
            "bootstrap.servers": self.bootstrap_servers,
            "client.id": self._client_id,
            "logger": _Chatter(),
            "error_cb": _log_error,
        }


def make_client(client: Callable[[Config], Client], config: Config) -> Client:
    """Make a client; a setting that librdkafka does not know is the user's mistake, so it is told as one."""
    try:
        return client(config)
    except KafkaException as exception:
        raise ConfigError(f"Kafka settings: {kafka_error(exception).str()}") from None
    except (TypeError, ValueError) as error:
        raise ConfigError(f"Kafka settings: {error}") from None


def connect(producer: Producer, where: str) -> None:
    """Wait until a broker answers. Asked without a connection, librdkafka looks for a coordinator every 500 ms only."""
    with translated(f"connecting {where}"):
        producer.cluster_id(REQUEST_TIMEOUT)


class _Chatter:
    """What librdkafka would print to stderr. It repeats what our errors say, and more: only for debugging."""

    def log(self, _level: int, message: str, *arguments: object) -> None:
        _log.debug(message, *arguments)


def _log_error(error: KafkaError) -> None:
    _log.debug("%s", error)
