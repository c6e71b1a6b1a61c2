"""Fixtures for tests on a log, in memory or on a real Kafka; for this project and for its users.

pytest loads this module in every run of every project that has the package installed, so it imports nothing that is
not needed to declare the fixtures.
"""
# ruff: noqa: PLC0415 - see above

from __future__ import annotations

import gc
import os
import uuid
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from eventbus.bus import Bus
    from eventbus.kafka import KafkaCluster
    from eventbus.memory import MemoryCluster

_BROKERS = ("embedded", "testcontainers")
_ONE_NODE = {
    "KAFKA_AUTO_CREATE_TOPICS_ENABLE": "false",
    "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
    "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
}


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "kafka: needs a real broker")


@pytest.fixture
def namespace() -> str:
    """A name that no other test uses, so that tests can share a broker."""
    return f"t{uuid.uuid4().hex[:12]}"


@pytest.fixture
def memory_cluster() -> MemoryCluster:
    """An empty log in memory."""
    from eventbus.memory import MemoryCluster

    return MemoryCluster()


@pytest.fixture
def kafka_cluster(kafka_bootstrap_servers: str) -> Iterator[KafkaCluster]:
    """The log on a real Kafka. Other tests use it too: keep to the `namespace` in the names of topics and groups."""
    from eventbus.kafka import KafkaCluster

    cluster = KafkaCluster(kafka_bootstrap_servers)
    yield cluster
    cluster.close()


@pytest.fixture
def memory_bus(memory_cluster: MemoryCluster, namespace: str) -> Iterator[Bus]:
    """An empty bus in memory."""
    from eventbus.bus import Bus
    from eventbus.names import BusName

    with Bus(memory_cluster, BusName(namespace)) as bus:
        yield bus


@pytest.fixture
def kafka_bus(kafka_bootstrap_servers: str, namespace: str) -> Iterator[Bus]:
    """A bus on a real Kafka, with a namespace of its own."""
    from eventbus.bus import Bus

    with Bus.connect(kafka_bootstrap_servers, namespace=namespace) as bus:
        yield bus


@pytest.fixture(scope="session")
def kafka_bootstrap_servers(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a real Kafka.

    `KAFKA_BOOTSTRAP_SERVERS` names one that runs. Otherwise one is started for this session: a container if
    `EVENTBUS_TEST_BROKER=testcontainers` and there is a container engine with the image, else the embedded one.
    """
    named = os.environ.get("KAFKA_BOOTSTRAP_SERVERS")
    wanted = os.environ.get("EVENTBUS_TEST_BROKER", "embedded")
    if wanted not in _BROKERS:
        pytest.fail(f"EVENTBUS_TEST_BROKER is `{wanted}`; it can be {' or '.join(_BROKERS)}", pytrace=False)
    if named:
        yield named
        return
    container = _container(request.config) if wanted == "testcontainers" else None
    with _embedded() if container is None else _started(container) as servers:
        yield servers


@contextmanager
def _embedded() -> Iterator[str]:
    from eventbus.broker import EmbeddedBroker
    from eventbus.errors import EventBusError

    broker = EmbeddedBroker(ephemeral=True)
    try:
        broker.start()
    except EventBusError as error:
        pytest.fail(f"no broker for the tests: {error}", pytrace=False)
    try:
        yield broker.bootstrap_servers
    finally:
        broker.stop()


@contextmanager
def _started(container: Any) -> Iterator[str]:
    with container as running:
        yield running.get_bootstrap_server()


def _container(config: pytest.Config) -> Any:
    """A Kafka container that is ready to be started; None, with the reason printed, where that is not possible."""
    with warnings.catch_warnings():
        # The package warns of having moved its modules, and leaves sockets open where there is no engine.
        warnings.simplefilter("ignore")
        try:
            return _prepared_container()
        except Exception as error:
            reason = str(error)
        gc.collect()
    capture = config.pluginmanager.get_plugin("capturemanager")
    with capture.global_and_fixture_disabled() if capture else nullcontext():
        config.get_terminal_writer().line(f"\nno Kafka container ({reason}): using the embedded broker")
    return None


def _prepared_container() -> Any:
    from testcontainers.core.docker_client import DockerClient
    from testcontainers.kafka import KafkaContainer

    container = KafkaContainer().with_kraft()
    for name, value in _ONE_NODE.items():
        container.with_env(name, value)
    DockerClient().client.images.get(container.image)
    return container
