"""sprig's functions of times, as far as they need no clock. What is not a time is an error: sprig would take now."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from sensors.templates.dates import ZERO, Time, duration_text, from_seconds, parse_duration, parse_time
from sensors.templates.errors import TemplateError
from sensors.templates.functions.numbers import to_int
from sensors.templates.values import kind_of

_SECOND = 1_000_000_000
_ROUND = ((365 * 86400, "y"), (30 * 86400, "mo"), (86400, "d"), (3600, "h"), (60, "m"), (1, "s"))


def _time(value: Any) -> Time:
    """A time, or seconds since 1970; the numbers of an event are float64."""
    if isinstance(value, Time):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        found = "nil" if value is None else f"a {kind_of(value)}"
        raise TemplateError(f"a time or seconds since 1970 are needed, not {found}; `toDate` makes a time of text")
    return from_seconds(value)


def _date(layout: str, value: Any) -> str:
    return _date_in_zone(layout, value, "UTC")


def _date_in_zone(layout: str, value: Any, zone: str) -> str:
    return _time(value).in_zone(zone).format(layout)


def _html_date(value: Any) -> str:
    return _date("2006-01-02", value)


def _html_date_in_zone(value: Any, zone: str) -> str:
    return _date_in_zone("2006-01-02", value, zone)


def _to_date(layout: str, text: str) -> Time:
    """The year 1 where the text is not written like the layout."""
    try:
        return parse_time(layout, text)
    except (ValueError, OverflowError):
        return ZERO


def _must_to_date(layout: str, text: str) -> Time:
    try:
        return parse_time(layout, text)
    except (ValueError, OverflowError) as error:
        raise TemplateError(str(error)) from None


def _unix_epoch(time: Time) -> str:
    return str(math.floor(time.when.timestamp()))


def _date_modify(duration: str, time: Time) -> Time:
    """The time as it was where the text is not a duration."""
    try:
        return time + parse_duration(duration)
    except ValueError:
        return time


def _must_date_modify(duration: str, time: Time) -> Time:
    try:
        return time + parse_duration(duration)
    except ValueError as error:
        raise TemplateError(str(error)) from None


def _duration(seconds: Any) -> str:
    return duration_text(to_int(seconds) * _SECOND if isinstance(seconds, int | str) else 0)


def _duration_round(value: Any) -> str:
    size = abs(_nanoseconds(value))
    for seconds, unit in _ROUND:
        if size > seconds * _SECOND:
            return f"{size // (seconds * _SECOND)}{unit}"
    return "0s"


def _nanoseconds(value: Any) -> int:
    if isinstance(value, Time):
        raise TemplateError("how long ago a time is depends on the clock, so that a retry would differ")
    if isinstance(value, str):
        try:
            return parse_duration(value)
        except ValueError:
            return 0
    return value if isinstance(value, int) else 0


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "date": _date,
    "dateInZone": _date_in_zone,
    "date_in_zone": _date_in_zone,
    "htmlDate": _html_date,
    "htmlDateInZone": _html_date_in_zone,
    "toDate": _to_date,
    "mustToDate": _must_to_date,
    "unixEpoch": _unix_epoch,
    "dateModify": _date_modify,
    "date_modify": _date_modify,
    "mustDateModify": _must_date_modify,
    "must_date_modify": _must_date_modify,
    "duration": _duration,
    "durationRound": _duration_round,
}
