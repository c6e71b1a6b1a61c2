"""Chooses ports for the broker's nodes, and says which one is taken before Kafka fails on it.

Free ports are taken from below the range that systems use for outgoing connections. A client that keeps connecting to
a closed port *inside* that range can be given the very same port as its own end, connects to itself, and then the
broker cannot come back on it.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Container

from eventbus.broker.errors import BrokerError
from eventbus.errors import ConfigError

HOST = "127.0.0.1"
DEFAULT_PORT = 9092
FREE_PORTS = range(20_000, 32_000)


def is_free(port: int) -> bool:
    """Tell whether a server could listen on this port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def free_ports(count: int, avoid: Container[int] = ()) -> list[int]:
    """Return some ports on which nobody listens, other than those in `avoid`."""
    ports: list[int] = []
    for port in random.sample(FREE_PORTS, len(FREE_PORTS)):
        if port not in avoid and is_free(port):
            ports.append(port)
        if len(ports) == count:
            return ports
    raise BrokerError(f"no free port between {FREE_PORTS.start} and {FREE_PORTS.stop}: choose one with --port")


def consecutive_ports(first: int, count: int) -> list[int]:
    """Return exactly these ports, or say which one is taken."""
    if not 1 <= first <= 65_536 - count:
        raise ConfigError(f"--port {first} cannot be used: choose one between 1 and {65_536 - count}")
    ports = list(range(first, first + count))
    for port in ports:
        if not is_free(port):
            raise ConfigError(
                f"port {port} is taken: another program listens on it. Stop that one, or choose another with --port"
            )
    return ports


def default_ports(count: int) -> list[int]:
    """Return Kafka's usual port and the ones after it if they are free, else any free ones."""
    ports = list(range(DEFAULT_PORT, DEFAULT_PORT + count))
    return ports if all(map(is_free, ports)) else free_ports(count)
