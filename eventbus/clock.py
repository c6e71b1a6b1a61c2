"""The two clocks, and the budget that several calls share."""

from __future__ import annotations

import time

from eventbus.ports import Clock


class SystemClock:
    """The machine's own time."""

    def monotonic(self) -> float:
        return time.monotonic()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


class ManualClock:
    """Time that moves only when told to; for tests and simulations."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._start_ms = now_ms
        self._elapsed = 0.0

    def advance(self, seconds: float) -> None:
        self._elapsed += seconds

    def monotonic(self) -> float:
        return self._elapsed

    def now_ms(self) -> int:
        return self._start_ms + round(self._elapsed * 1000)


class Deadline:
    """One budget for all calls of an operation, so that their time-outs do not add up."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._end = clock.monotonic() + seconds

    def left(self) -> float:
        return max(0.0, self._end - self._clock.monotonic())

    def over(self) -> bool:
        return self.left() <= 0.0
