"""Go's times and layouts: `2006-01-02` is a format, written as the date it stands for.

The local zone is UTC, wherever the sensor runs: a template's result must not depend on that.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

import msgspec

from sensors.spec.fields import NANOSECONDS_PER_UNIT
from sensors.templates.errors import TemplateError

_MONTHS = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]
_DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
_ZONE = re.compile(r"[A-Za-z0-9_+-]+(?:/[A-Za-z0-9_+-]+)*")
_PIECE = re.compile(
    r"January|Jan(?![a-z])|Monday|Mon(?![a-z])|MST|2006|__2|_2(?!006)|002|0[1-6]|15|PM|pm"
    r"|[-Z]07(?::00:00|:00|0000|00)?|[.,](?:0+|9+)(?!\d)|[1-5]"
)
_DURATION_PART = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)")
_DURATION = re.compile(rf"([-+]?)((?:{_DURATION_PART.pattern})+|0)")
_MAX_DURATION_TEXT = 64


class Time(msgspec.Struct, frozen=True):
    """Go's time.Time, to the microsecond."""

    when: datetime
    zone: str = ""
    """The abbreviation it was written with, if that is not one we know."""

    def __str__(self) -> str:
        return self.format("2006-01-02 15:04:05.999999999 -0700 MST")

    def format(self, layout: str) -> str:
        return _PIECE.sub(lambda piece: _written(self, piece.group()), layout)

    def __add__(self, nanoseconds: int) -> Time:
        try:
            return Time(self.when + timedelta(microseconds=nanoseconds // 1000), self.zone)
        except OverflowError:
            raise TemplateError("the time is out of range") from None

    def in_zone(self, name: str) -> Time:
        try:
            return Time(self.when.astimezone(zone(name)))
        except OverflowError:
            raise TemplateError("the time is out of range") from None


ZERO = Time(datetime(1, 1, 1, tzinfo=UTC))


def from_seconds(seconds: float) -> Time:
    try:
        return Time(datetime.fromtimestamp(seconds, UTC))
    except (OverflowError, ValueError, OSError):
        raise TemplateError("the time is out of range") from None


def zone(name: str) -> tzinfo:
    """UTC where there is no such zone, as in sprig."""
    if name in ("", "UTC", "Local") or len(name) > 64 or not _ZONE.fullmatch(name):
        return UTC
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, KeyError):
        return UTC


# --- formatting -----------------------------------------------------------------------------------------------------


def _written(time: Time, piece: str) -> str:
    when = time.when
    if piece in _FORMATS:
        return _FORMATS[piece](when)
    if piece == "MST":
        return time.zone or _abbreviation(when)
    if piece[0] in ".,":
        return _fraction(when.microsecond, piece)
    return _offset(when, piece)


_FORMATS: dict[str, Callable[[datetime], str]] = {
    "2006": lambda when: f"{when.year:04}",
    "06": lambda when: f"{when.year % 100:02}",
    "January": lambda when: _MONTHS[when.month - 1],
    "Jan": lambda when: _MONTHS[when.month - 1][:3],
    "01": lambda when: f"{when.month:02}",
    "1": lambda when: str(when.month),
    "Monday": lambda when: _DAYS[when.weekday()],
    "Mon": lambda when: _DAYS[when.weekday()][:3],
    "02": lambda when: f"{when.day:02}",
    "_2": lambda when: f"{when.day:2}",
    "2": lambda when: str(when.day),
    "002": lambda when: f"{when.timetuple().tm_yday:03}",
    "__2": lambda when: f"{when.timetuple().tm_yday:3}",
    "15": lambda when: f"{when.hour:02}",
    "03": lambda when: f"{when.hour % 12 or 12:02}",
    "3": lambda when: str(when.hour % 12 or 12),
    "04": lambda when: f"{when.minute:02}",
    "4": lambda when: str(when.minute),
    "05": lambda when: f"{when.second:02}",
    "5": lambda when: str(when.second),
    "PM": lambda when: "PM" if when.hour >= 12 else "AM",
    "pm": lambda when: "pm" if when.hour >= 12 else "am",
}


def _abbreviation(when: datetime) -> str:
    """A zone that is only an offset has none."""
    named = when.tzinfo is UTC or isinstance(when.tzinfo, ZoneInfo)
    return (when.tzname() if named else None) or _offset(when, "-0700")


def _fraction(microsecond: int, piece: str) -> str:
    digits = f"{microsecond * 1000:09}"[: len(piece) - 1].ljust(len(piece) - 1, "0")
    if piece[1] == "9":
        digits = digits.rstrip("0")
    return piece[0] + digits if digits else ""


def _offset(when: datetime, piece: str) -> str:
    seconds = int((when.utcoffset() or timedelta()).total_seconds())
    if piece[0] == "Z" and not seconds:
        return "Z"
    hours, minutes = divmod(abs(seconds) // 60, 60)
    text = f"{'-' if seconds < 0 else '+'}{hours:02}"
    colon = ":" if ":" in piece else ""
    parts = len(re.sub(r"\D", "", piece)) // 2
    text += f"{colon}{minutes:02}" if parts > 1 else ""
    return text + (f"{colon}{abs(seconds) % 60:02}" if parts > 2 else "")


# --- parsing --------------------------------------------------------------------------------------------------------

_PATTERNS = {
    "2006": r"(?P<year>\d{4})",
    "06": r"(?P<short_year>\d{2})",
    "January": f"(?P<month_name>{'|'.join(_MONTHS)})",
    "Jan": f"(?P<month_name>{'|'.join(name[:3] for name in _MONTHS)})",
    "01": r"(?P<month>\d{2})",
    "1": r"(?P<month>\d{1,2})",
    "Monday": f"(?:{'|'.join(_DAYS)})",
    "Mon": f"(?:{'|'.join(name[:3] for name in _DAYS)})",
    "02": r"(?P<day>\d{2})",
    "_2": r" ?(?P<day>\d{1,2})",
    "2": r"(?P<day>\d{1,2})",
    "15": r"(?P<hour>\d{1,2})",
    "03": r"(?P<hour>\d{2})",
    "3": r"(?P<hour>\d{1,2})",
    "04": r"(?P<minute>\d{2})",
    "4": r"(?P<minute>\d{1,2})",
    "05": r"(?P<second>\d{2})(?:[.,](?P<fraction>\d+))?",
    "5": r"(?P<second>\d{1,2})(?:[.,](?P<fraction>\d+))?",
    "PM": "(?P<half>AM|PM)",
    "pm": "(?P<half>am|pm)",
    "MST": r"(?P<zone>[A-Z]{3,5})",
}


def parse_time(layout: str, text: str) -> Time:
    """Raises `ValueError` where the text is not written like the layout."""
    found = re.fullmatch(_pattern(layout), text, re.IGNORECASE | re.ASCII)
    if found is None:
        raise ValueError(f"`{text[:40]}` is not a time like `{layout}`")
    parts = found.groupdict()
    name = parts.get("zone") or ""
    when = datetime(
        _year(parts), _month(parts), int(parts.get("day") or 1), _hour(parts),
        int(parts.get("minute") or 0), int(parts.get("second") or 0),
        int((parts.get("fraction") or "0")[:6].ljust(6, "0")), tzinfo=_parsed_offset(parts.get("offset")),
    )  # fmt: skip
    return Time(when, "" if name == "UTC" else name)


def _pattern(layout: str) -> str:
    pattern, at, seen = "", 0, set[str]()
    for piece in _PIECE.finditer(layout):
        pattern += re.escape(layout[at : piece.start()])
        at = piece.end()
        part = _PATTERNS.get(piece.group(), "" if piece.group()[0] in ".," else _offset_pattern(piece.group()))
        for name in re.findall(r"\?P<(\w+)>", part):
            part = part if name not in seen else re.sub(rf"\?P<{name}>", "?:", part)
            seen.add(name)
        pattern += part
    return pattern + re.escape(layout[at:])


def _offset_pattern(piece: str) -> str:
    colon = ":" if ":" in piece else ""
    parts = len(re.sub(r"\D", "", piece)) // 2
    digits = colon.join([r"\d{2}"] * parts) if parts else r"\d{2}"
    return rf"(?P<offset>{'Z|' if piece[0] == 'Z' else ''}[-+]{digits})"


def _year(parts: dict[str, str | None]) -> int:
    short = parts.get("short_year")
    if short:
        return int(short) + (1900 if int(short) >= 69 else 2000)
    return int(parts.get("year") or 1)


def _month(parts: dict[str, str | None]) -> int:
    name = parts.get("month_name")
    if name:
        return next(number for number, month in enumerate(_MONTHS, 1) if month[:3].lower() == name[:3].lower())
    return int(parts.get("month") or 1)


def _hour(parts: dict[str, str | None]) -> int:
    hour, half = int(parts.get("hour") or 0), (parts.get("half") or "").upper()
    if half == "PM" and hour < 12:
        return hour + 12
    return 0 if half == "AM" and hour == 12 else hour


def _parsed_offset(text: str | None) -> tzinfo:
    if text is None or text in ("Z", "z"):
        return UTC
    numbers = [int(pair) for pair in re.findall(r"\d{2}", text)]
    hours, minutes, seconds = (*numbers, 0, 0)[:3]
    offset = timedelta(hours=hours, minutes=minutes, seconds=seconds)
    return timezone(-offset if text[0] == "-" else offset) if offset else UTC


# --- durations ------------------------------------------------------------------------------------------------------


def parse_duration(text: str) -> int:
    """Nanoseconds. Raises `ValueError`."""
    found = _DURATION.fullmatch(text) if len(text) <= _MAX_DURATION_TEXT else None
    if found is None:
        raise ValueError(f"`{text[:40]}` is not a duration such as `1m30s`")
    total = sum(float(number) * NANOSECONDS_PER_UNIT[unit] for number, unit in _DURATION_PART.findall(found[2]))
    return round(-total if found[1] == "-" else total)


def duration_text(nanoseconds: int) -> str:
    """Go's Duration.String: `1h0m5s`, `1.5s`, `20ms`."""
    size = abs(nanoseconds)
    sign = "-" if nanoseconds < 0 else ""
    if size < 1_000_000_000:
        for unit, name in ((1_000_000, "ms"), (1000, "µs"), (1, "ns")):
            if size >= unit:
                return f"{sign}{_decimal(size, unit)}{name}"
        return "0s"
    minutes, rest = divmod(size, 60 * 1_000_000_000)
    hours, minutes = divmod(minutes, 60)
    text = f"{hours}h{minutes}m" if hours else f"{minutes}m" if minutes else ""
    return f"{sign}{text}{_decimal(rest, 1_000_000_000)}s"


def _decimal(amount: int, unit: int) -> str:
    whole, fraction = divmod(amount, unit)
    digits = f"{fraction:0{len(str(unit)) - 1}}".rstrip("0") if unit > 1 else ""
    return f"{whole}.{digits}" if digits else str(whole)
