"""No test here touches the user's own broker; the jars come from the user's cache, so that they are fetched once."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

Eventually = Callable[[Callable[[], bool]], None]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory for the state and the data of this test's broker."""
    monkeypatch.setenv("EVENTBUS_DATA_DIR", str(tmp_path / "home"))
    return tmp_path / "home" / "broker"


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory in which ephemeral brokers put theirs, also those in processes that the test starts."""
    directory = tmp_path / "temporary"
    directory.mkdir()
    monkeypatch.setenv("TMPDIR", str(directory))
    monkeypatch.setattr("tempfile.tempdir", str(directory))
    return directory


@pytest.fixture
def eventually() -> Eventually:
    """Waits for something that another process does, for at most 30 seconds."""

    def wait(condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 30
        while not condition():
            assert time.monotonic() < deadline, "this did not come true within 30 s"
            time.sleep(0.02)

    return wait
