"""Times and lengths of time in words. All times are milliseconds since 1970."""

from __future__ import annotations

from datetime import UTC, datetime

_MINUTE, _HOUR, _DAY = 60, 3600, 86_400


def when(timestamp: int) -> str:
    """As local time, for people."""
    if timestamp < 0:
        return "-"
    moment = datetime.fromtimestamp(timestamp / 1000, UTC).astimezone()
    return moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{timestamp % 1000:03d}"


def exactly(timestamp: int) -> str:
    """For people who are elsewhere, and for options such as `--since`."""
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
