"""Runs this user's broker in the foreground: claimed, published so that other commands find it, and watched."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from eventbus.broker import state
from eventbus.broker.cluster import EmbeddedBroker
from eventbus.broker.errors import BrokerError
from eventbus.broker.state import Instance, NodeState

LOOK_SECONDS = 0.2


class Options(msgspec.Struct, frozen=True):
    """What kind of broker to run; see `EmbeddedBroker`."""

    nodes: int = 1
    data: Path | None = None
    port: int | None = None
    ephemeral: bool = False


def serve(options: Options, ready: Callable[[Instance], None], warn: Callable[[str], None]) -> None:
    """Run a broker until SIGINT or SIGTERM, or until all its nodes have ended."""
    broker = EmbeddedBroker(nodes=options.nodes, data=options.data, port=options.port, ephemeral=options.ephemeral)
    with _until_interrupted(), state.claimed(), broker:
        instance = _describe(broker, options)
        state.publish(instance)
        ready(instance)
        _watch(broker, instance, warn)


@contextmanager
def _until_interrupted() -> Iterator[None]:
    """Treat SIGTERM like Ctrl-C, and both as the wish to end in good order."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with suppress(KeyboardInterrupt):
            yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _describe(broker: EmbeddedBroker, options: Options) -> Instance:
    return Instance(
        pid=os.getpid(),
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        bootstrap_servers=broker.bootstrap_servers,
        data=str(broker.data_directory),
        ephemeral=options.ephemeral,
        nodes=_node_states(broker),
    )


def _node_states(broker: EmbeddedBroker) -> tuple[NodeState, ...]:
    return tuple(
        NodeState(
            number=node.address.number,
            port=node.address.port,
            pid=node.pid if node.is_alive() else None,
            log=str(node.log_file),
        )
        for node in broker.nodes
    )


def _watch(broker: EmbeddedBroker, instance: Instance, warn: Callable[[str], None]) -> None:
    """Wait. A cluster that lost a node goes on; one that lost all of them is over."""
    running = list(broker.nodes)
    last_words = ""
    while running:
        time.sleep(LOOK_SECONDS)
        for node in [node for node in running if not node.is_alive()]:
            running.remove(node)
            last_words = node.last_words()
            warn(f"node {node.address.number} has ended; its log is {node.log_file}")
            state.publish(msgspec.structs.replace(instance, nodes=_node_states(broker)))
    raise BrokerError(f"all nodes of the broker have ended. {last_words}")
