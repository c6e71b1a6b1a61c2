"""A real Apache Kafka, started and stopped from Python: one node or three, each a process of its own.

Ready means that every node has answered a client's metadata request and knows all the others, not that a port is open.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from eventbus.broker.config import Further, NodeAddress, nothing_further
from eventbus.broker.data import DataDirectory
from eventbus.broker.errors import BrokerError
from eventbus.broker.node import Node, Runtime
from eventbus.broker.places import KAFKA, home_directory
from eventbus.broker.ports import HOST, consecutive_ports, default_ports, free_ports
from eventbus.errors import ConfigError
from eventbus.jvm.jars import ensure_jars
from eventbus.jvm.java import BROKER, find_java

START_SECONDS = 120.0
STOP_SECONDS = 15.0


class EmbeddedBroker:
    """A Kafka cluster on this machine that lives no longer than this process.

    >>> with EmbeddedBroker(ephemeral=True) as broker:  # doctest: +SKIP
    ...     print(broker.bootstrap_servers)
    127.0.0.1:27841

    Without `data` it keeps its data in the user's data directory, where the next one finds it; `ephemeral` uses a
    temporary directory that is removed at the end. Without `port` an ephemeral one takes any free port, another one
    9092 if that is free; with three nodes the ports that follow.
    """

    def __init__(
        self,
        *,
        nodes: int = 1,
        data: Path | None = None,
        port: int | None = None,
        ephemeral: bool = False,
        further: Further = nothing_further,
    ) -> None:
        """Describe the cluster; `start` or entering the context starts it."""
        if nodes not in {1, 3}:
            raise ConfigError(f"a broker has 1 or 3 nodes, not {nodes}")
        if ephemeral and data:
            raise ConfigError("--ephemeral and --data exclude each other: ephemeral data has no place of its own")
        self._count = nodes
        self._data_path = None if ephemeral else data or home_directory() / "data"
        self._port = port
        self._further = further
        self._data: DataDirectory | None = None
        self.nodes: Sequence[Node] = ()
        """The running cluster's nodes, the first has number 1."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def bootstrap_servers(self) -> str:
        """The address for clients."""
        return ",".join(f"{HOST}:{node.address.port}" for node in self.nodes)

    @property
    def log_files(self) -> list[Path]:
        """What the nodes log, in their order."""
        return [node.log_file for node in self.nodes]

    @property
    def data_directory(self) -> Path:
        """Where the data of the running cluster is."""
        return self._running().path

    def start(self) -> None:
        """Start all nodes and return when they are ready. Fetches Kafka first if that was never done."""
        if self._data:
            raise BrokerError(f"this broker already runs at {self.bootstrap_servers}")
        runtime = Runtime(find_java(BROKER).path, ensure_jars(KAFKA))
        self._data = DataDirectory(self._data_path, self._count)
        try:
            self.nodes = self._described(runtime, self._data)
            self._start(self.nodes)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop all nodes: cleanly, or at once if their data is not kept. Does nothing if none runs."""
        if not self._data:
            return
        for node in self.nodes:
            if self._data.temporary:
                node.kill()
            else:
                node.terminate()
        deadline = time.monotonic() + STOP_SECONDS
        for node in self.nodes:
            node.wait(max(0.0, deadline - time.monotonic()))
        self._data.close()
        self._data = None
        self.nodes = ()

    def kill(self, *numbers: int) -> None:
        """Kill these nodes (all, if none is named) as a power cut would; their data stays."""
        nodes = self._chosen(numbers)
        for node in nodes:
            node.kill()
        for node in nodes:
            node.wait(STOP_SECONDS)

    def restart(self, *numbers: int) -> None:
        """Start these nodes again (all, if none is named), on the ports they had; stop first what still runs."""
        nodes = self._chosen(numbers)
        for node in nodes:
            node.terminate()
        for node in nodes:
            node.wait(STOP_SECONDS)
        self._start(nodes)

    def _described(self, runtime: Runtime, data: DataDirectory) -> list[Node]:
        if self._port is not None:
            ports = consecutive_ports(self._port, self._count)
        elif data.temporary:
            ports = free_ports(self._count)
        else:
            ports = default_ports(self._count)
        addresses = [
            NodeAddress(number, port, controller_port)
            for number, port, controller_port in zip(
                range(1, self._count + 1), ports, free_ports(self._count, avoid=ports), strict=True
            )
        ]
        nodes = [Node(address, data.node(address.number), runtime, temporary=data.temporary) for address in addresses]
        for node in nodes:
            node.prepare(addresses, self._further)
        with ThreadPoolExecutor() as formats:
            list(formats.map(lambda node: node.format(data.cluster_id), nodes))
        return nodes

    def _start(self, nodes: Sequence[Node]) -> None:
        data = self._running()
        if len(nodes) == self._count and any(node.was_killed() for node in nodes):
            self._bury(nodes)
        for node in nodes:
            node.start(data.lock)
        _wait_for(nodes, self._answers)

    def _bury(self, nodes: Sequence[Node]) -> None:
        """Let the controllers find, before any broker is back, that all of them are dead.

        A broker that comes back before its session has ended leads its partitions as if nothing had happened. When the
        session ends they have no leader for a moment, and Kafka 4.3 takes such partitions for deleted: a transaction
        that is being ended right then stays open for ever.
        """
        data = self._running()
        for node in nodes:
            node.start(data.lock, controller_only=True)
        _wait_for(nodes, lambda _: _all_dead(nodes))
        for node in nodes:
            node.terminate()
        for node in nodes:
            node.wait(STOP_SECONDS)

    def _answers(self, node: Node) -> bool:
        """Tell whether the node answers a metadata request and knows all nodes that run."""
        try:
            socket.create_connection((HOST, node.address.port), timeout=1).close()
            client = AdminClient({"bootstrap.servers": f"{HOST}:{node.address.port}", "log_level": 0})
            known = client.list_topics(timeout=2).brokers
        except (OSError, KafkaException):
            return False
        return all(other.address.number in known for other in self.nodes if other.is_alive())

    def _chosen(self, numbers: Sequence[int]) -> list[Node]:
        self._running()
        unknown = [number for number in numbers if not 1 <= number <= self._count]
        if unknown:
            raise ConfigError(f"there is no node {unknown[0]}: this broker has {self._count}, counted from 1")
        return [self.nodes[number - 1] for number in numbers] or list(self.nodes)

    def _running(self) -> DataDirectory:
        if not self._data:
            raise BrokerError("this broker does not run: start it first")
        return self._data


def _all_dead(nodes: Sequence[Node]) -> bool:
    """Tell whether the controller that leads takes all brokers for dead, and most of the others know."""
    known = [node.brokers() for node in nodes]
    leading = [node.brokers() for node in nodes if node.is_active_controller()]
    return any(known.count(each) > len(nodes) // 2 and not any(each.values()) for each in leading)


def _wait_for(nodes: Sequence[Node], ready: Callable[[Node], bool]) -> None:
    deadline = time.monotonic() + START_SECONDS
    for node in nodes:
        while not ready(node):
            if not node.is_alive():
                raise BrokerError(f"node {node.address.number} ended while it started. {node.last_words()}")
            if time.monotonic() > deadline:
                raise BrokerError(
                    f"node {node.address.number} did not answer within {START_SECONDS:.0f} s. {node.last_words()}"
                )
            time.sleep(0.05)
