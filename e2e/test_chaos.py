"""A short storm: whatever happens to replicas, brokers and the target, every promise is kept."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from rich.console import Console

from e2e.chaos.report import show, write
from e2e.chaos.run import run
from e2e.chaos.storm import CALM_SECONDS, Options

MINUTES = float(os.environ.get("EVENTBUS_CHAOS_MINUTES", "3"))
SEED = int(os.environ.get("EVENTBUS_CHAOS_SEED") or random.randrange(10**6))
_START_AND_VERDICT = 600.0


@pytest.mark.timeout(MINUTES * 60 + CALM_SECONDS + _START_AND_VERDICT)
def test_no_promise_is_broken_in_a_storm(tmp_path: Path) -> None:
    console = Console()
    report, verdict = run(Options(minutes=MINUTES, seed=SEED), tmp_path, console, failovers=0)
    write(report, tmp_path / "report.json")
    show(console, report, verdict)
    assert verdict.clean, verdict.violations
