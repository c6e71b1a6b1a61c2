"""The field types that manifests are made of: names, durations, amounts.

Validators raise `ValueError` with half a sentence ("must be …"); whoever reports it puts the field's name before it.
Nothing is converted silently: YAML's `yes` is not text, and text is not a number, except where argo-events says so.
"""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainSerializer,
    StrictBool,
    StrictInt,
    StrictStr,
    WithJsonSchema,
)

__all__ = [
    "NANOSECONDS_PER_UNIT",
    "Amount",
    "Bool",
    "CountFromOne",
    "Duration",
    "EventReference",
    "KubernetesName",
    "PartName",
    "StringMap",
    "Text",
    "duration_text",
    "is_kubernetes_name",
    "parse_duration",
    "part_name",
]

MAX_NAME = 253
MAX_AMOUNT = 1000
_MAX_NUMERAL = 64  # characters; far more than any number needs, far less than overflows a float

_KUBERNETES_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
_PART_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_DURATION = re.compile(r"(?P<sign>[-+]?)(?P<parts>(?:(?:\d+\.?\d*|\.\d+)(?:ns|us|µs|μs|ms|s|m|h))+)")
_DURATION_PART = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)")
NANOSECONDS_PER_UNIT = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "μs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
_MAX_NANOSECONDS = 2**63 - 1  # Go's time.Duration
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")


def is_kubernetes_name(text: str) -> bool:
    """Whether Kubernetes would accept this as the name of a resource."""
    return len(text) <= MAX_NAME and _KUBERNETES_NAME.fullmatch(text) is not None


def _kubernetes_name(text: str) -> str:
    if not is_kubernetes_name(text):
        raise ValueError(
            "must be a Kubernetes name: lower-case letters, digits, `-` and `.`, beginning and ending with a letter "
            f"or digit, at most {MAX_NAME} characters"
        )
    return text


def part_name(text: str) -> str:
    if not _PART_NAME.fullmatch(text) or len(text) > MAX_NAME:
        raise ValueError(f"must consist of letters, digits, `-`, `_` and `.`, at most {MAX_NAME} characters")
    return text


def _event_reference(text: str) -> str:
    if not text or len(text) > 1024 or not text.isprintable() or text != text.strip():
        raise ValueError("must be 1 to 1,024 printable characters without white space at the ends")
    return text


def parse_duration(value: Any) -> timedelta:
    """Go's duration text (`500ms`, `1m30s`); a whole number counts nanoseconds, as in argo-events."""
    if isinstance(value, timedelta):
        return value
    nanoseconds = value if isinstance(value, int) and not isinstance(value, bool) else _nanoseconds(value)
    if not 0 <= nanoseconds <= _MAX_NANOSECONDS:
        raise ValueError("must be between 0 and 292 years")
    return timedelta(microseconds=nanoseconds // 1000)


def _nanoseconds(value: object) -> int:
    found = _DURATION.fullmatch(value) if isinstance(value, str) and len(value) <= _MAX_NUMERAL else None
    if found is None:
        if value == "0":
            return 0
        raise ValueError("must be a duration such as `500ms`, `3s` or `1m30s`")
    total = sum(Decimal(number) * NANOSECONDS_PER_UNIT[unit] for number, unit in _DURATION_PART.findall(found["parts"]))
    return int(-total if found["sign"] == "-" else total)


def duration_text(value: timedelta) -> str:
    """As a person would write it: `1h30m`."""
    seconds, rest = divmod(value, timedelta(seconds=1))
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    parts = {"h": hours, "m": minutes, "s": seconds, "ms": rest // timedelta(milliseconds=1)}
    return "".join(f"{number}{unit}" for unit, number in parts.items() if number) or "0s"


def _format_duration(value: timedelta) -> str:
    seconds, microseconds = divmod(value // timedelta(microseconds=1), 10**6)
    return f"{seconds}.{microseconds:06}".rstrip("0").rstrip(".") + "s"


def _amount(value: object) -> float:
    """argo-events' Amount: a number, or a number written as text."""
    match value:
        case bool():
            number = None
        case int() | float():
            number = value
        case str() if len(value) <= _MAX_NUMERAL and _NUMBER.fullmatch(value):
            number = float(value)
        case _:
            number = None
    if number is None:
        raise ValueError("must be a number")
    if not 0 <= number <= MAX_AMOUNT:
        raise ValueError(f"must be between 0 and {MAX_AMOUNT:,}")
    return float(number)


def _in_schema(pattern: re.Pattern[str], length: int) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "pattern": f"^{pattern.pattern}$", "maxLength": length})


Bool = StrictBool
Text = StrictStr
StringMap = dict[StrictStr, StrictStr]
CountFromOne = Annotated[StrictInt, Field(ge=1)]
KubernetesName = Annotated[StrictStr, AfterValidator(_kubernetes_name), _in_schema(_KUBERNETES_NAME, MAX_NAME)]
PartName = Annotated[StrictStr, AfterValidator(part_name), _in_schema(_PART_NAME, MAX_NAME)]
"""The name of a dependency or a trigger: what a condition can say."""
EventReference = Annotated[StrictStr, AfterValidator(_event_reference)]
"""A CloudEvents `source`, `subject` or `type`: any reasonable text."""
Duration = Annotated[
    timedelta,
    BeforeValidator(parse_duration),
    PlainSerializer(_format_duration, when_used="json"),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "pattern": rf"^[-+]?({_DURATION_PART.pattern})+$|^0$", "maxLength": _MAX_NUMERAL},
                {"type": "integer", "minimum": 0},
            ]
        }
    ),
]
Amount = Annotated[
    float,
    BeforeValidator(_amount),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "minimum": 0, "maximum": MAX_AMOUNT},
                {"type": "string", "pattern": f"^{_NUMBER.pattern}$", "maxLength": _MAX_NUMERAL},
            ]
        }
    ),
]
