"""A broker that runs is found; one that only left its files behind is not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from eventbus.broker import BrokerError, default_bootstrap_servers, state
from eventbus.broker.state import Instance, NodeState

INSTANCE = Instance(
    pid=os.getpid(),  # some process that runs and is no broker
    started="2026-01-01T00:00:00+00:00",
    bootstrap_servers="127.0.0.1:9092",
    data="data",
    ephemeral=False,
    nodes=(NodeState(1, 9092, 4711, "server.log"),),
)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eventbus.broker.state.CLAIM_SECONDS", 0.0)


def test_nothing_is_found_where_nothing_runs(home: Path) -> None:
    assert default_bootstrap_servers() is None
    assert not state.is_claimed()


def test_a_broker_is_found_from_when_it_is_published_until_it_ends(home: Path) -> None:
    with state.claimed():
        assert default_bootstrap_servers() is None
        state.publish(INSTANCE)
        assert default_bootstrap_servers() == "127.0.0.1:9092"
        assert not state.wait_until_free(0.0)
    assert not (home / "broker.json").exists()
    assert default_bootstrap_servers() is None
    assert state.wait_until_free(0.0)


def test_a_stale_file_is_removed_even_if_another_process_has_the_id_by_now(home: Path) -> None:
    with state.claimed():
        state.publish(INSTANCE)
        left_behind = (home / "broker.json").read_bytes()
    (home / "broker.json").write_bytes(left_behind)

    warnings: list[str] = []
    assert state.running_instance(warnings.append) is None
    [warning] = warnings
    assert f"stale state file {home / 'broker.json'}" in warning
    assert f"its broker, process {os.getpid()}, ended without cleaning up" in warning
    assert not (home / "broker.json").exists()


def test_a_new_broker_does_not_inherit_a_stale_file(home: Path) -> None:
    home.mkdir(parents=True)
    state.publish(INSTANCE)
    with state.claimed():
        assert default_bootstrap_servers() is None


def test_an_unreadable_file_is_removed(home: Path) -> None:
    home.mkdir(parents=True)
    (home / "broker.json").write_text("{}")
    warnings: list[str] = []
    assert state.running_instance(warnings.append) is None
    assert "it cannot be read" in warnings[0]
    assert not (home / "broker.json").exists()


def test_a_second_broker_is_refused_and_told_about_the_first() -> None:
    with state.claimed():
        with pytest.raises(BrokerError, match="just being started"), state.claimed():
            pass
        state.publish(INSTANCE)
        with pytest.raises(BrokerError, match=r"already runs at 127\.0\.0\.1:9092"), state.claimed():
            pass
        assert default_bootstrap_servers() == "127.0.0.1:9092"
