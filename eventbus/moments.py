"""Times and lengths of time in words. All times are milliseconds since 1970."""

from __future__ import annotations

import math
from datetime import UTC, datetime

_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
LAST = 253_402_214_400_000
"""The last day of the year 9999. A producer may claim any time, and Python knows none that is later."""


def when(timestamp: int) -> str:
    """As local time, for people."""
    if timestamp < 0:
        return "-"
    if timestamp > LAST:
        return f"{timestamp} ms"
    moment = datetime.fromtimestamp(timestamp / 1000, UTC).astimezone()
    return moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{timestamp % 1000:03d}"


def exactly(timestamp: int) -> str:
    """For people who are elsewhere, and for options such as `--since`."""
    if not 0 <= timestamp <= LAST:
        return f"{timestamp} ms"
    moment = datetime.fromtimestamp(timestamp / 1000, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{timestamp % 1000:03d}Z"


def duration(milliseconds: int) -> str:
    """A rough length of time, for people."""
    seconds = max(0, milliseconds) // 1000
    if seconds < _MINUTE:
        return f"{seconds} s"
    if seconds < _HOUR:
        return f"{seconds // _MINUTE} min"
    if seconds < _DAY:
        return f"{seconds // _HOUR} h {seconds % _HOUR // _MINUTE} min"
    return f"{seconds // _DAY} d {seconds % _DAY // _HOUR} h"


def span(milliseconds: int) -> str:
    """A length of time of which the milliseconds may matter, for people."""
    if milliseconds < 1000:
        return f"{milliseconds} ms"
    if milliseconds < _MINUTE * 1000:
        return f"{_three_digits(milliseconds / 1000)} s"
    if milliseconds < _HOUR * 1000:
        return f"{_three_digits(milliseconds / 60_000)} min"
    return duration(milliseconds)


def _three_digits(number: float) -> str:
    """Rounded down, so that it never reaches the next unit."""
    return f"{math.floor(number * 100) / 100:g}" if number < 10 else f"{math.floor(number * 10) / 10:g}"
