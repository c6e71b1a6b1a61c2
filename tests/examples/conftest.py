"""A bus of either kind, whose names no other test uses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from eventbus import Bus


@pytest.fixture(params=["memory", pytest.param("kafka", marks=pytest.mark.kafka)])
def bus(
    request: pytest.FixtureRequest, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Bus]:
    monkeypatch.setenv("EVENTBUS_SLOT_DIR", str(tmp_path))
    if request.param == "memory":
        opened = Bus.memory(namespace=namespace)
    else:
        opened = Bus.connect(request.getfixturevalue("kafka_bootstrap_servers"), namespace=namespace)
    with opened:
        yield opened
