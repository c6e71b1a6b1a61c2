"""A short version of `e2e/test_kill.py`, for every run of the tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from e2e.torment import Torment
from eventbus import Bus

REPLICAS = 2


@pytest.mark.kafka
@pytest.mark.timeout(300)
def test_a_killed_replica_loses_and_repeats_no_action(
    kafka_bootstrap_servers: str, namespace: str, tmp_path: Path
) -> None:
    with Bus.connect(kafka_bootstrap_servers, namespace=namespace) as bus:
        torment = Torment(bus, tmp_path, seed=20261116)
        try:
            torment.start(REPLICAS)
            torment.events(60)
            torment.kill_and_restart(0)
            torment.events(60)
            torment.kill_and_restart(1)
            torment.events(30)
            torment.settle()
            verdict = torment.lab.verdict()
        finally:
            torment.close()
    assert verdict.clean, verdict.violations
