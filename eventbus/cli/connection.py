"""The bus that a command works on."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from pathlib import Path

    from eventbus.bus import Bus
    from eventbus.clock import Deadline
    from eventbus.kafka.connection import Connection
    from eventbus.names import SensorName
    from eventbus.ports import Cluster
    from eventbus.topics import Topology

_PAUSE = 0.2

T = TypeVar("T")


def connect(bootstrap_servers: str | None, bus_file: Path | None, namespace: str, bus: str, *, verbose: bool) -> Bus:
    """The one way in which commands get to Kafka. Use the result as a context manager."""
    from eventbus.bus import Bus
    from eventbus.cli.logs import set_up_logging
    from eventbus.names import BusName

    if verbose:
        set_up_logging(logging.DEBUG)
    if bus_file is None:
        return Bus.connect(bootstrap_servers, namespace=namespace, bus=bus)
    return Bus.on(_connection(bus_file, bootstrap_servers), BusName(namespace, bus))


def _connection(bus_file: Path, bootstrap_servers: str | None) -> Connection:
    import msgspec

    from eventbus.errors import ConfigError
    from eventbus.kafka.connection import environment_variables
    from sensors.spec.busloader import load_event_bus

    connection = load_event_bus(bus_file).connection()
    rivals = environment_variables()
    if rivals:
        raise ConfigError(f"{bus_file} and the environment variable {rivals[0]} both say how to reach Kafka: drop one")
    return msgspec.structs.replace(connection, bootstrap_servers=bootstrap_servers or connection.bootstrap_servers)


def insist(call: Callable[[], T], deadline: Deadline) -> T:
    """Repeat a call while the brokers do not answer or are busy with a transaction, until the deadline."""
    import time

    from eventbus.errors import RetriableError

    while True:
        try:
            return call()
        except RetriableError:
            if deadline.over():
                raise
        time.sleep(_PAUSE)


def existing_topology(cluster: Cluster, name: SensorName) -> Topology:
    """Of a sensor that has run: looking must not create anything."""
    from eventbus.errors import ConfigError
    from eventbus.names import Kind
    from eventbus.topics import ensure_sensor_topics

    topics = [name.event_topic, *(name.topic(kind) for kind in Kind)]
    missing = [topic for topic, info in cluster.describe(topics).items() if info is None]
    if missing:
        raise ConfigError(f"the topic `{missing[0]}` does not exist: the sensor {name} has never run here")
    return ensure_sensor_topics(cluster, name)
