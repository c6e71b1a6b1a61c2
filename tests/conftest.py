"""What tests in several folders use."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

FakeJava = Callable[..., Path]


def pytest_configure() -> None:
    """A shell lets what it runs in the background ignore Ctrl-C, and every process of the tests would inherit that."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def fake_java() -> FakeJava:
    """Makes a `java` that answers with a version, and otherwise does what the given shell lines say."""

    def make(path: Path, version: str, otherwise: str = "exit 1") -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            f"""#!/bin/sh
if [ "$1" = -version ]; then echo 'openjdk version "{version}" 2024-01-01' >&2; exit 0; fi
{otherwise}
"""
        )
        path.chmod(0o755)
        return path

    return make
