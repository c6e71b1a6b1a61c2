"""The `server.properties` of a node: a small Kafka that behaves like a large one where it matters.

Every node is broker and controller. Listeners are on the loopback interface only. With three nodes every topic has
three replicas, two of which must be in sync, as in production; with one node, one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import msgspec

from eventbus.broker.ports import HOST
from eventbus.jvm.places import MIB


class NodeAddress(msgspec.Struct, frozen=True):
    """Where one node listens: for clients, and for the other nodes' controllers."""

    number: int
    port: int
    controller_port: int


Further: TypeAlias = Callable[[NodeAddress], Mapping[str, object]]
"""What a node is to have beside, or instead of, the properties below: another listener, for instance."""


def nothing_further(_node: NodeAddress) -> Mapping[str, object]:
    return {}


def server_properties(
    node: NodeAddress, cluster: Sequence[NodeAddress], data: Path, further: Further = nothing_further
) -> str:
    """Return the text of this node's properties file."""
    return _text({**_settings(node, cluster, data), **further(node)})


def controller_properties(
    node: NodeAddress, cluster: Sequence[NodeAddress], data: Path, further: Further = nothing_further
) -> str:
    """Of the node without its broker: a controller that soon takes every broker for dead."""
    settings = {**_settings(node, cluster, data), **further(node)}
    del settings["inter.broker.listener.name"]
    listener = f"CONTROLLER://{HOST}:{node.controller_port}"
    return _text(
        settings
        | {
            "process.roles": "controller",
            "listeners": listener,
            "advertised.listeners": listener,
            "broker.session.timeout.ms": 200,
            "broker.heartbeat.interval.ms": 100,
        }
    )


def _settings(node: NodeAddress, cluster: Sequence[NodeAddress], data: Path) -> dict[str, object]:
    replicas = len(cluster)
    alone = replicas == 1
    in_sync = max(1, replicas - 1)
    listeners = f"BROKER://{HOST}:{node.port},CONTROLLER://{HOST}:{node.controller_port}"
    return {
        "process.roles": "broker,controller",
        "node.id": node.number,
        "controller.quorum.voters": ",".join(f"{each.number}@{HOST}:{each.controller_port}" for each in cluster),
        "listeners": listeners,
        "advertised.listeners": listeners,
        "listener.security.protocol.map": "BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "BROKER",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": data,
        "auto.create.topics.enable": "false",
        "default.replication.factor": replicas,
        "min.insync.replicas": in_sync,
        "offsets.topic.num.partitions": 8,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.num.partitions": 8,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
        # How often Kafka looks whether a transaction has timed out, and a survivor waits for that. But Kafka takes
        # partitions without a leader for deleted, and a transaction that it aborts then stays open for ever. One of
        # several nodes that was killed leads on until the session below has ended, and is then deposed.
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1000 if alone else 8000,
        "share.coordinator.state.topic.num.partitions": 8,
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": in_sync,
        "group.initial.rebalance.delay.ms": 0,
        "group.min.session.timeout.ms": 1000,
        # A node that was killed may come back when its session has ended: soon, but not at every hiccup. Nobody could
        # lead in the place of a single one, which is never to be deposed.
        "broker.session.timeout.ms": 60_000 if alone else 5000,
        "broker.heartbeat.interval.ms": 1000,
        # Small: files that are preallocated, buffers and threads sized for one developer's machine.
        "log.segment.bytes": 64 * MIB,
        "log.index.size.max.bytes": MIB,
        "log.cleaner.dedupe.buffer.size": 16 * MIB,
        "num.network.threads": 2,
        "num.io.threads": 4,
        "background.threads": 2,
    }


def _text(settings: Mapping[str, object]) -> str:
    return "".join(f"{name}={_escaped(str(value))}\n" for name, value in settings.items())


def _escaped(value: str) -> str:
    """Write a value as Java's properties format wants it: ASCII only, which JSON happens to escape the same way."""
    return json.dumps(value)[1:-1]
