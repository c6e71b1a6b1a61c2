"""A cluster that loses a node goes on and says so; one that has lost all is over. The nodes here only sleep."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from eventbus.broker import BrokerError, EmbeddedBroker, state
from eventbus.broker.config import NodeAddress
from eventbus.broker.node import Node, Runtime
from eventbus.broker.service import _watch
from eventbus.broker.state import Instance
from tests.broker.conftest import Eventually
from tests.conftest import FakeJava

INSTANCE = Instance(pid=1, started="", bootstrap_servers="127.0.0.1:9092", data="", ephemeral=False, nodes=())


@pytest.fixture
def broker(tmp_path: Path, fake_java: FakeJava) -> Iterator[EmbeddedBroker]:
    """A broker of three processes that run until they are killed."""
    runtime = Runtime(fake_java(tmp_path / "java", "21", "exec sleep 1000"), [])
    addresses = [NodeAddress(number, 9091 + number, 19091 + number) for number in (1, 2, 3)]
    broker = EmbeddedBroker(nodes=3)
    broker.nodes = [Node(each, tmp_path / f"node-{each.number}", runtime, temporary=False) for each in addresses]
    with (tmp_path / "lock").open("w") as lock:
        for node in broker.nodes:
            node.prepare(addresses)
            node.start(lock.fileno())
        yield broker
        for node in broker.nodes:
            node.wait(0.0)


def test_lost_nodes_are_reported_and_published_until_none_is_left(
    broker: EmbeddedBroker, eventually: Eventually
) -> None:
    warnings: list[str] = []

    def shown() -> list[bool]:
        instance = state.running_instance()
        return [node.pid is not None for node in instance.nodes] if instance else []

    with state.claimed(), ThreadPoolExecutor() as threads:
        watching = threads.submit(_watch, broker, INSTANCE, warnings.append)
        broker.nodes[1].kill()
        eventually(lambda: shown() == [True, False, True])
        assert not watching.done()
        broker.nodes[0].kill()
        broker.nodes[2].kill()
        with pytest.raises(BrokerError, match="all nodes of the broker have ended"):
            watching.result(30)
    assert len(warnings) == 3
    assert warnings[0].startswith("node 2 has ended; its log is ")


def test_a_java_that_cannot_be_executed_is_named(tmp_path: Path) -> None:
    node = Node(NodeAddress(1, 9092, 19092), tmp_path / "node-1", Runtime(tmp_path / "gone", []), temporary=False)
    node.prepare([node.address])
    with (tmp_path / "lock").open("w") as lock, pytest.raises(BrokerError, match=f"{tmp_path}/gone could not be"):
        node.start(lock.fileno())
    assert not node.is_alive()
