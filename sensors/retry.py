"""How often and when an action is tried again. Pure: the jitter comes from the action's id, not from a die."""

from __future__ import annotations

from hashlib import blake2b

import msgspec

TOTAL_SECONDS = 300.0
"""However many steps a trigger allows, an action is given up this long after its first attempt."""


class RetryPolicy(msgspec.Struct, frozen=True):
    """argo-events' backoff: attempt n+1 comes `duration * factor**(n-1)` later, plus up to `jitter` times that."""

    steps: int = 1
    duration: float = 1.0
    factor: float = 1.0
    jitter: float = 1.0
    total: float = TOTAL_SECONDS

    def delay(self, action: str, attempt: int, elapsed: float, at_least: float | None = None) -> float | None:
        """Seconds to wait after this failed attempt (counted from 1); None when it was the last.

        `elapsed` is the time since the first attempt began, `at_least` what the target asked for (Retry-After).
        """
        if attempt >= self.steps:
            return None
        exponent = min(attempt - 1, 64)  # beyond it the total has long cut in
        delay = self.duration * self.factor**exponent * (1 + self.jitter * _fraction(action, attempt))
        delay = max(delay, at_least or 0.0)
        return delay if elapsed + delay <= self.total else None


def _fraction(action: str, attempt: int) -> float:
    digest = blake2b(f"{action}:{attempt}".encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big") / 2**32
