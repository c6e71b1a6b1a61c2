"""Waiting for what others do."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event as Flag
from typing import TypeVar

from eventbus.clock import SystemClock

Found = TypeVar("Found")
_LOOK_SECONDS = 0.3


def wait_for(condition: Callable[[], Found], what: str, seconds: float = 120.0) -> Found:
    """What it finds in the end."""
    clock = SystemClock()
    end = clock.monotonic() + seconds
    while not (found := condition()):
        assert clock.monotonic() < end, f"waited {seconds:.0f} s for {what}"
        Flag().wait(_LOOK_SECONDS)
    return found
