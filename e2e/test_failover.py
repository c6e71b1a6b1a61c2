"""What a replica leaves behind that is killed in the middle of a transaction goes on in time.

This measures seconds, and is run while the machine does nothing else.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from e2e.chaos.failover import FailoverMeasurement
from e2e.chaos.report import write
from e2e.chaos.run import FAILOVERS
from eventbus.broker import EmbeddedBroker

pytestmark = pytest.mark.timeout(600)


def test_work_goes_on_in_time_after_a_replica_was_killed(tmp_path: Path) -> None:
    with EmbeddedBroker(nodes=3, ephemeral=True) as broker:
        measured = asyncio.run(FailoverMeasurement(broker, tmp_path).run(FAILOVERS))
    write(measured.worst(), tmp_path / "report.json")
    assert measured.findings() == []
