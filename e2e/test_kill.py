"""Kill −9 of any process at any moment loses and repeats no action, and invocations stay within their mode."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.torment import Torment
from eventbus import Bus
from eventbus.broker import EmbeddedBroker

REPLICAS = 3
KILLS = int(os.environ.get("EVENTBUS_E2E_KILLS", "4"))


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(ephemeral=True) as broker:
        yield broker


@pytest.fixture
def torment(broker: EmbeddedBroker, namespace: str, tmp_path: Path) -> Iterator[Torment]:
    seed = int(os.environ.get("EVENTBUS_E2E_SEED") or abs(hash(namespace)) % 10**6)
    print(f"replay this order of blows with EVENTBUS_E2E_SEED={seed}")
    with Bus.connect(broker.bootstrap_servers, namespace=namespace) as bus:
        torment = Torment(bus, tmp_path, seed)
        yield torment
        torment.close()


def check(torment: Torment) -> None:
    torment.settle()
    verdict = torment.lab.verdict()
    print(f"{verdict.events} events, {verdict.actions} actions, {verdict.invoked} invocations")
    print(f"{len(verdict.given_up)} at-most-once actions were given up when their replica was killed")
    assert verdict.clean, verdict.violations


@pytest.mark.timeout(600)
def test_replicas_are_killed(torment: Torment) -> None:
    torment.start(REPLICAS)
    torment.events(50)
    for _ in range(KILLS):
        torment.kill_and_restart(torment.random.randrange(REPLICAS))
        torment.events(torment.random.randrange(200))
    check(torment)


@pytest.mark.timeout(600)
def test_all_replicas_are_killed_at_once(torment: Torment) -> None:
    torment.start(REPLICAS)
    torment.events(100)
    for slot in range(REPLICAS):
        torment.lab.kill_replica(slot)
    torment.events(20)
    for slot in range(REPLICAS):
        torment.lab.start_replica(slot)
    torment.events(50)
    check(torment)


@pytest.mark.timeout(600)
def test_the_broker_is_killed_and_comes_back(torment: Torment, broker: EmbeddedBroker) -> None:
    torment.start(2)
    torment.events(100)
    with torment.lab.without_brokers():
        broker.kill(1)
        broker.restart(1)
    torment.events(100)
    check(torment)
