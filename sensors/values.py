"""Values of JSON documents as text and numbers, the way gjson and Go see them."""

from __future__ import annotations

import json
import re
from typing import Any

from sensors.numerals import legible

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
            return legible(value)
        case _:
            return as_json(value)


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
            return legible(value)
        case None | bool():
            return {None: "null", True: "true", False: "false"}[value]
        case _:
            return str(value)[:_SHOWN]
