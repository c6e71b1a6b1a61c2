"""Times on the command line."""

from __future__ import annotations

from datetime import datetime


def moment(option: str, text: str, now_ms: int) -> int:
    """`1h` (ago), or a point in time; without a zone it is local time. Returns milliseconds since 1970."""
    from eventbus.errors import ConfigError
    from sensors.spec.fields import parse_duration

    try:
        return max(0, now_ms - round(parse_duration(text).total_seconds() * 1000))
    except ValueError:
        pass
    try:
        return max(0, round(datetime.fromisoformat(text).timestamp() * 1000))
    except (ValueError, OverflowError, OSError):
        raise ConfigError(
            f"{option} {text}: write how long ago, such as 90m or 24h, or a time such as 2026-03-01T14:30:00Z"
        ) from None


def span(since: str | None, until: str | None) -> tuple[int | None, int | None]:
    """What `--since` and `--until` say, as of now."""
    from eventbus.clock import SystemClock
    from eventbus.errors import ConfigError

    now = SystemClock().now_ms()
    start = None if since is None else moment("--since", since, now)
    end = None if until is None else moment("--until", until, now)
    if start is not None and end is not None and end <= start:
        raise ConfigError("--until must be later than --since")
    return start, end
