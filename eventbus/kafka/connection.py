"""How to reach a Kafka cluster: its brokers, the settings of its clients, and secrets, which are read when needed.

Without anything else the environment says it. `EVENTBUS_KAFKA_SASL_USERNAME` is librdkafka's `sasl.username`, and so
on for every setting; with `_FILE` behind the name, the variable names the file that has the value.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from eventbus.errors import ConfigError
from eventbus.kafka.tokens import Tokens
from eventbus.topics import INTERNAL_BYTES

CLIENT_ID = "eventbus"
PREFIX = "EVENTBUS_KAFKA_"
_FILE = "_FILE"

Config: TypeAlias = dict[str, Any]

WRITER_FIXED: Config = {
    "enable.idempotence": True,
    "acks": "all",
    # What fits into a topic must get there: a dead letter that the client refuses could never be written.
    "message.max.bytes": INTERNAL_BYTES,
}
FETCHER_FIXED: Config = {
    "isolation.level": "read_committed",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
    "enable.partition.eof": True,
    "allow.auto.create.topics": False,
}
_FIXED = frozenset(
    {
        *WRITER_FIXED,
        *FETCHER_FIXED,
        "bootstrap.servers",
        "client.id",
        "delivery.report.only.error",
        "group.id",
        "group.protocol",
        "metadata.broker.list",
        "partition.assignment.strategy",
        "request.required.acks",
        "transactional.id",
    }
)
_FIXED_OF_TOPICS = frozenset({"cleanup.policy", "message.timestamp.type"})


class Connection(msgspec.Struct, frozen=True):
    """One cluster, as its clients see it. Settings are librdkafka's, those of topics are Kafka's."""

    bootstrap_servers: str
    clients: Mapping[str, str] = {}
    """Settings of all clients."""
    producer: Mapping[str, str] = {}
    consumer: Mapping[str, str] = {}
    topics: Mapping[str, str] = {}
    """Settings of topics that are created; those that exist stay as they are."""
    secrets: Callable[[], Mapping[str, Any]] = dict
    """Reads the settings that nobody may see, for every new client. Raises `ConfigError`."""
    tokens: Tokens | None = None
    """For clients that log in by token."""

    def __post_init__(self) -> None:
        for name in (*self.clients, *self.producer, *self.consumer):
            _refuse(fixed_setting(name))
        for name in self.topics:
            _refuse(fixed_topic_setting(name))

    def security(self) -> Config:
        """What decides whether brokers let a client in, as it is now."""
        return {**self.clients, **self.secrets()}


def fixed_setting(name: str) -> str | None:
    """Why a client's setting cannot be changed, if so: it carries the guarantees."""
    if name in _FIXED:
        return f"the Kafka setting `{name}` is chosen by the event bus and cannot be changed"
    return None


def fixed_topic_setting(name: str) -> str | None:
    if name in _FIXED_OF_TOPICS:
        return f"the topic setting `{name}` is chosen by the event bus and cannot be changed"
    return None


def _refuse(reason: str | None) -> None:
    if reason is not None:
        raise ConfigError(reason)


def environment_variables() -> list[str]:
    """Those that say something about the connection."""
    return sorted(name for name in os.environ if name.startswith(PREFIX))


def from_environment(bootstrap_servers: str, settings: Mapping[str, str]) -> Connection:
    """`settings` go before those of the environment."""
    for variable in environment_variables():
        _refuse(fixed_setting(_setting(variable)))
    return Connection(bootstrap_servers, settings, secrets=lambda: {**_environment_settings(), **settings})


def _environment_settings() -> dict[str, str]:
    """All count as secrets, because any of them may be one."""
    return {_setting(variable): _value(variable) for variable in environment_variables()}


def _setting(variable: str) -> str:
    return variable.removeprefix(PREFIX).removesuffix(_FILE).lower().replace("_", ".")


def _value(variable: str) -> str:
    value = os.environ[variable]
    if not variable.endswith(_FILE):
        return value
    try:
        return Path(value).read_text().removesuffix("\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError(f"the file {value}, which {variable} names, cannot be read: {reason}") from None
