"""Ports that are free are found; one that is taken is named."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from eventbus.broker import BrokerError, ports
from eventbus.errors import ConfigError


@pytest.fixture
def taken() -> Iterator[int]:
    """A port on which somebody listens."""
    with socket.create_server((ports.HOST, ports.free_ports(1)[0])) as server:
        yield server.getsockname()[1]


def test_a_taken_port_is_named_with_the_option_that_chooses_another(taken: int) -> None:
    with pytest.raises(ConfigError, match=rf"port {taken} is taken.*--port"):
        ports.consecutive_ports(taken, 1)
    with pytest.raises(ConfigError, match=f"port {taken} is taken"):
        ports.consecutive_ports(taken - 2, 3)


@pytest.mark.parametrize("port", [-1, 0, 65_534])
def test_a_port_that_cannot_exist_is_refused(port: int) -> None:
    with pytest.raises(ConfigError, match=f"--port {port} cannot be used"):
        ports.consecutive_ports(port, 3)


def test_the_usual_port_is_used_only_if_all_that_follow_are_free(taken: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "DEFAULT_PORT", taken - 1)
    assert ports.default_ports(1) == [taken - 1]
    assert not {taken - 1, taken} & set(ports.default_ports(2))


def test_free_ports_differ_from_each_other_and_from_those_to_avoid(monkeypatch: pytest.MonkeyPatch) -> None:
    several = ports.free_ports(50)
    assert len(set(several)) == 50
    monkeypatch.setattr(ports, "FREE_PORTS", range(several[0], several[0] + 1))
    assert ports.free_ports(1) == several[:1]
    with pytest.raises(BrokerError, match=r"no free port .* --port"):
        ports.free_ports(1, avoid=several)
