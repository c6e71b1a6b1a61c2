"""A broker that cannot start says why and leaves nothing running."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from eventbus.broker import BrokerError, EmbeddedBroker
from eventbus.errors import ConfigError
from tests.conftest import FakeJava


def test_a_taken_port_is_refused_before_anything_is_started(temporary: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(ConfigError, match=f"port {port} is taken"):
            EmbeddedBroker(ephemeral=True, port=port).start()
    assert not list(temporary.iterdir())


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ('echo "no such format" >&2; exit 1', r"could not prepare its data\..*\n    no such format"),
        (
            'case "$*" in *StorageTool*) exit 0;; esac; echo "out of memory" >&2; exit 1',
            r"node 1 ended while it started\..*\n    out of memory",
        ),
    ],
    ids=["while it is formatted", "while it starts"],
)
def test_a_node_that_ends_too_early_is_reported_with_its_last_words(
    tmp_path: Path, fake_java: FakeJava, monkeypatch: pytest.MonkeyPatch, script: str, message: str
) -> None:
    monkeypatch.setenv("EVENTBUS_JAVA", str(fake_java(tmp_path / "java", "21", script)))
    data = tmp_path / "data"
    with pytest.raises(BrokerError, match=message) as caught:
        EmbeddedBroker(data=data).start()
    assert str(data / "node-1" / "console.log") in str(caught.value)


def test_a_failed_start_of_an_ephemeral_broker_leaves_nothing(
    tmp_path: Path, temporary: Path, fake_java: FakeJava, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVENTBUS_JAVA", str(fake_java(tmp_path / "java", "21")))
    with pytest.raises(BrokerError):
        EmbeddedBroker(ephemeral=True).start()
    assert not list(temporary.iterdir())


def test_impossible_wishes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="1 or 3 nodes, not 2"):
        EmbeddedBroker(nodes=2)
    with pytest.raises(ConfigError, match="exclude each other"):
        EmbeddedBroker(ephemeral=True, data=tmp_path)


def test_a_broker_that_does_not_run_can_be_stopped_but_not_killed() -> None:
    broker = EmbeddedBroker()
    broker.stop()
    with pytest.raises(BrokerError, match="does not run"):
        broker.kill()
