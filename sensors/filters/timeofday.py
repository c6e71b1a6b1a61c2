"""Time filters: the time of day at which the event was appended to the log, so that replicas and replays agree."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

from sensors.filters.candidate import Candidate, Check, Rejection
from sensors.filters.spec import TimeFilter

REASON = "time"


def compile_time(spec: TimeFilter) -> Check:
    zone = ZoneInfo(spec.timezone or "UTC")
    start, stop = _seconds(spec.start), _seconds(spec.stop)
    over_midnight = start >= stop

    def check(candidate: Candidate) -> Rejection | None:
        try:
            local = datetime.fromtimestamp(candidate.timestamp / 1000, zone)
        except (ValueError, OverflowError, OSError):
            return Rejection(REASON, f"the event was appended at {candidate.timestamp}, which is no time")
        now = local.hour * 3600 + local.minute * 60 + local.second
        after, before = start <= now, now < stop
        if (after or before) if over_midnight else (after and before):
            return None
        return Rejection(REASON, f"appended at {local:%H:%M:%S} {zone}, not from {spec.start} to {spec.stop}")

    return check


def _seconds(text: str) -> int:
    hours, minutes, seconds = map(int, text.split(":"))
    return hours * 3600 + minutes * 60 + seconds
