"""Pods are deleted while events flow: every promise is kept, and every tick is told once. `make e2e` has more of it."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from rich.console import Console

from e2e.chaos.report import show, write
from e2e.chaos.storm import CALM_SECONDS
from e2e.conftest import Kubernetes
from e2e.podchaos.deletions import Options
from e2e.podchaos.run import run

EVENTS = int(os.environ.get("EVENTBUS_PODCHAOS_EVENTS", "2000"))
DELETIONS = int(os.environ.get("EVENTBUS_PODCHAOS_DELETIONS", "6"))
SEED = int(os.environ.get("EVENTBUS_PODCHAOS_SEED") or random.randrange(10**6))
_SECONDS_PER_DELETION = 10.0
_PODS_AND_VERDICT = 600.0


@pytest.mark.timeout(_SECONDS_PER_DELETION * DELETIONS + CALM_SECONDS + _PODS_AND_VERDICT)
def test_no_promise_is_broken_when_pods_are_deleted(kubernetes: Kubernetes, tmp_path: Path) -> None:
    console = Console()
    options = Options(seed=SEED, events=EVENTS, deletions=DELETIONS)
    report, verdict = run(options, kubernetes.cluster(), tmp_path, console)
    write(report, tmp_path / "report.json")
    show(console, report, verdict)
    assert verdict.clean, verdict.violations
