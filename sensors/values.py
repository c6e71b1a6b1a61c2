"""Values of JSON documents as text and numbers, the way gjson and Go see them."""

from __future__ import annotations

import json
import math
import re
from typing import Any

_SHOWN = 40
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?", re.ASCII)
_MAX_NUMERAL = 64


def as_json(value: Any) -> str | None:
    """Compact JSON; None for what is nested too deeply to be written."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except (RecursionError, ValueError, TypeError):
        return None


def as_text(value: Any) -> str | None:
    """A value as the text that patterns are matched with: text itself, else JSON; null is empty."""
    match value:
        case str():
            return value
        case None:
            return ""
        case float():
            return number_text(value)
        case _:
            return as_json(value)


def number_text(value: float) -> str:
    """A number as Go prints it: without `.0`, with an exponent only where it is very large or small."""
    if not math.isfinite(value):
        return {math.inf: "+Inf", -math.inf: "-Inf"}.get(value, "NaN")
    if value == 0 or 1e-4 <= abs(value) < 1e21:
        text = format(value, "f") if value.is_integer() else repr(value)
        return text.partition(".")[0] if value.is_integer() else text
    digits, _, exponent = repr(value).partition("e")
    return f"{digits.removesuffix('.0')}e{exponent[0]}{exponent[1:].lstrip('0'):0>2}"


def parse_number(text: str) -> float | None:
    """The number that a text is, if it is one."""
    if len(text) > _MAX_NUMERAL or not _NUMBER.fullmatch(text):
        return None
    return float(text)


def shown(value: Any) -> str:
    """A value in a message: short, whatever it is."""
    match value:
        case dict():
            return "an object"
        case list():
            return f"a list of {len(value)}"
        case str():
            return json.dumps(value[:_SHOWN] + "…" if len(value) > _SHOWN else value, ensure_ascii=False)
        case float():
            return number_text(value)
        case None | bool():
            return {None: "null", True: "true", False: "false"}[value]
        case _:
            return str(value)[:_SHOWN]
