"""How much the replicas read again, by their logs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from sensors.replicalogs import log_lines


class _Line(msgspec.Struct):
    replay: int = 0


def longest_replay(logs: Iterable[Path]) -> int:
    return max((line.replay for log in logs for line in log_lines(log, _Line)), default=0)
