"""A network of a cluster's own: a bridge of this machine that all pods are connected to.

The machine has two addresses on it. One is that of the servers, and the first of the network of Services, where pods
look for the API; the other is the gateway of the pods. Nothing is forwarded to anywhere else.
"""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from eventbus.broker import EmbeddedBroker
from eventbus.broker.config import Further, NodeAddress
from eventbus.broker.ports import HOST
from eventbus.errors import MachineError

_PREFIX = "eb-"
_APART = 10_000
"""Kafka does not allow two listeners of one port, whatever their addresses are."""
_LONGEST = 15
"""Of the name of an interface."""


class Network(msgspec.Struct, frozen=True):
    """Two halves: that of the servers and Services, and that of pods."""

    bridge: str
    half: str
    """The first two numbers of its addresses."""

    @property
    def address(self) -> str:
        """Of this machine, for its servers."""
        return f"{self.half}.0.1"

    @property
    def services(self) -> str:
        return f"{self.half}.0.0/24"

    @property
    def pods(self) -> str:
        return f"{self.half}.1.0/24"

    @property
    def gateway(self) -> str:
        """Of this machine, for pods."""
        return f"{self.half}.1.1"

    def settings(self, addresses: Path) -> Mapping[str, Any]:
        """For the plugins that connect pods. Which addresses are taken is kept in a directory."""
        ipam = {
            "type": "host-local",
            "dataDir": str(addresses),
            "ranges": [[{"subnet": self.pods, "gateway": self.gateway}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        }
        bridge = {"type": "bridge", "bridge": self.bridge, "hairpinMode": True, "ipam": ipam}
        return {"cniVersion": "0.4.0", "name": "eventbus", "plugins": [bridge]}

    def listener(self) -> Further:
        """Lets a broker of this machine listen there, too: where pods reach it."""

        def further(node: NodeAddress) -> Mapping[str, object]:
            own = f"BROKER://{HOST}:{node.port},CONTROLLER://{HOST}:{node.controller_port}"
            listeners = f"{own},PODS://{self.address}:{node.port + _APART}"
            protocols = ",".join(f"{name}:PLAINTEXT" for name in ("BROKER", "CONTROLLER", "PODS"))
            return {
                "listeners": listeners,
                "advertised.listeners": listeners,
                "listener.security.protocol.map": protocols,
            }

        return further

    def bootstrap_servers(self, broker: EmbeddedBroker) -> str:
        """Of a broker with that listener, as pods reach it."""
        return ",".join(f"{self.address}:{node.address.port + _APART}" for node in broker.nodes)


@contextmanager
def network(name: str) -> Iterator[Network]:
    """As long as it is needed. Raises `MachineError`."""
    made = Network(bridge_name(name), f"10.{random.randrange(128, 255)}")
    _ip("link", "add", made.bridge, "type", "bridge")
    try:
        for address in (made.address, made.gateway):
            _ip("address", "add", f"{address}/24", "dev", made.bridge)
        _ip("link", "set", made.bridge, "up")
        yield made
    finally:
        remove_network(name)


def remove_network(name: str) -> None:
    """Also one that somebody has left who was killed."""
    subprocess.run(["ip", "link", "delete", bridge_name(name)], capture_output=True, check=False)


def bridge_name(name: str) -> str:
    return _PREFIX + name[-(_LONGEST - len(_PREFIX)) :].lstrip("-")


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise MachineError(f"this machine lets us make no network: ip {' '.join(arguments)}: {done.stderr.strip()}")
