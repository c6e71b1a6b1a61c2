"""The embedded broker is a real Kafka, found by others, that keeps what it should and leaves nothing else behind."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from typer.testing import CliRunner

from eventbus.broker import BrokerError, EmbeddedBroker, default_bootstrap_servers
from eventbus.broker.memory import resident_bytes
from eventbus.broker.ports import free_ports, is_free
from eventbus.cli.broker import app
from eventbus.errors import ConfigError
from tests.broker.conftest import Eventually

cli = CliRunner()


class ShownNode(msgspec.Struct):
    number: int
    port: int
    pid: int
    memory_bytes: int
    log: str


class Shown(msgspec.Struct):
    """What `eventbus broker status --output json` says."""

    running: bool
    pid: int = 0
    bootstrap_servers: str = ""
    data: str = ""
    nodes: tuple[ShownNode, ...] = ()


def status() -> Shown:
    return msgspec.json.decode(cli.invoke(app, ["status", "--output", "json"]).stdout, type=Shown)


@contextmanager
def foreground(*options: str) -> Iterator[subprocess.Popen[str]]:
    """`eventbus broker run` as a process of its own, ready."""
    command = [sys.executable, "-c", "from eventbus.cli.broker import app; app()", "run", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            assert process.stdout.readline().startswith("Kafka is ready at 127.0.0.1:")
            yield process
        finally:
            process.kill()


def topics(servers: str) -> set[str]:
    return set(AdminClient({"bootstrap.servers": servers}).list_topics(timeout=10).topics)


def create_topic(servers: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(topic, num_partitions=1)])[topic].result(30)


def write(servers: str, topic: str, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": servers, "acks": "all", "log_level": 0})
    outcomes: list[object] = []
    producer.produce(topic, value, on_delivery=lambda error, _: outcomes.append(error))
    assert producer.flush(30) == 0
    assert outcomes == [None]


def read(servers: str, topic: str, count: int) -> list[bytes | None]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "reader", "log_level": 0})
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        return [message.value() for message in consumer.consume(count, 30)]
    finally:
        consumer.close()


def test_three_nodes_replicate_survive_the_loss_of_one_and_leave_nothing(temporary: Path) -> None:
    with EmbeddedBroker(nodes=3, ephemeral=True) as broker:
        servers = broker.bootstrap_servers
        assert sorted(AdminClient({"bootstrap.servers": servers}).list_topics(timeout=10).brokers) == [1, 2, 3]
        create_topic(servers, "replicated")
        write(servers, "replicated", b"with all")

        broker.kill(2)
        assert [node.is_alive() for node in broker.nodes] == [True, False, True]
        write(servers, "replicated", b"without one")

        broker.restart(2)
        assert all(node.is_alive() for node in broker.nodes)
        assert broker.bootstrap_servers == servers
        assert read(servers, "replicated", 2) == [b"with all", b"without one"]
        with pytest.raises(ConfigError, match="there is no node 4"):
            broker.kill(4)
        with pytest.raises(BrokerError, match="already runs"):
            broker.start()
    assert not list(temporary.iterdir())


def runs(log: Path) -> list[bytes]:
    """What a node has logged, run by run."""
    return log.read_bytes().split(b"Registered signal handlers")[1:]


@pytest.mark.parametrize("nodes", [1, 3])
def test_brokers_that_were_all_killed_lead_nothing_before_they_are_registered_anew(nodes: int) -> None:
    """Otherwise they are deposed a moment later, and Kafka loses sight of the transactions that end right then."""
    with EmbeddedBroker(nodes=nodes, ephemeral=True) as broker:
        create_topic(broker.bootstrap_servers, "kept")
        write(broker.bootstrap_servers, "kept", b"before")
        broker.kill()
        broker.restart()
        assert read(broker.bootstrap_servers, "kept", 1) == [b"before"]
        _, brokers = zip(*map(runs, broker.log_files), strict=True)
        controllers = [(node.directory / "controller.log").read_bytes() for node in broker.nodes]
    assert any(b"because its session has timed out" in log for log in controllers)
    assert not any(b"because its session has timed out" in log or b"DUPLICATE_BROKER" in log for log in brokers)


def test_a_broker_that_was_stopped_starts_at_once(tmp_path: Path) -> None:
    with EmbeddedBroker(data=tmp_path / "data", port=free_ports(1)[0]) as broker:
        broker.restart()
        assert len(runs(broker.log_files[0])) == 2


def test_a_foreground_broker_told_to_end_keeps_its_data_and_gives_back_its_port(tmp_path: Path) -> None:
    data = tmp_path / "Größe & mehr"
    [port] = free_ports(1)  # not the default one: another broker on this machine may want that meanwhile
    with foreground("--data", str(data), "--port", str(port)) as process:
        shown = status()
        assert shown.pid == process.pid
        create_topic(shown.bootstrap_servers, "kept")
        write(shown.bootstrap_servers, "kept", b"before")
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    assert not status().running
    assert is_free(port)

    with EmbeddedBroker(data=data, port=port) as broker:
        assert broker.bootstrap_servers == f"127.0.0.1:{port}"
        assert read(broker.bootstrap_servers, "kept", 1) == [b"before"]
        [log] = broker.log_files
        assert log.read_text().count("Kafka Server started") == 2


def test_a_background_broker_is_started_found_shown_and_stopped(temporary: Path) -> None:
    try:
        started = cli.invoke(app, ["start", "--ephemeral"])
        address = default_bootstrap_servers()
        assert address
        assert f"Kafka is ready at {address}" in started.stdout
        assert topics(address) == set()

        shown = status()
        [node] = shown.nodes
        assert shown.bootstrap_servers == address
        assert Path(shown.data).parent == temporary
        assert node.log == str(Path(shown.data) / "node-1" / "server.log")
        assert node.memory_bytes > 50_000_000
        assert str(node.pid) in cli.invoke(app, ["status"]).stdout

        assert address in cli.invoke(app, ["start", "--ephemeral"]).stdout
        assert isinstance(cli.invoke(app, ["start", "--ephemeral", "--nodes", "3"]).exception, ConfigError)
        assert isinstance(cli.invoke(app, ["run"]).exception, BrokerError)
    finally:
        stopped = cli.invoke(app, ["stop"])
    assert f"stopped the broker at {address}" in stopped.stdout
    assert resident_bytes(node.pid) is None
    assert not status().running
    assert not list(temporary.iterdir())


def test_a_killed_broker_takes_its_nodes_and_its_temporary_data_with_it(
    temporary: Path, eventually: Eventually
) -> None:
    with foreground("--ephemeral") as process:
        [node] = status().nodes
        process.kill()
        process.wait()
    eventually(lambda: resident_bytes(node.pid) is None)
    eventually(lambda: not list(temporary.iterdir()))
    assert "removed the stale state file" in cli.invoke(app, ["status"]).stderr
