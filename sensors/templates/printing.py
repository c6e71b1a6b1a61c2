"""How Go prints: `%v`, `print`, floats, quoted text."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

from sensors.templates.budget import Budget
from sensors.templates.values import Record

_ESCAPES = {"\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v"}


def text_of(value: Any, budget: Budget) -> str:
    """`%v`, and what sprig makes of a value where it needs text."""
    if isinstance(value, str):
        return value
    return joined(_parts(value, budget, 0), budget)


def joined(parts: Iterator[str], budget: Budget) -> str:
    """The parts as one text, whose size is checked while it grows."""
    pieces, length = [], 0
    for part in parts:
        pieces.append(part)
        length += len(part)
        budget.spend_text(length if len(part) > 64 else 0)
    text = "".join(pieces)
    budget.spend_text(len(text))
    return text


def _parts(value: Any, budget: Budget, depth: int) -> Iterator[str]:
    budget.check_nesting(depth)
    match value:
        case dict():
            yield "map["
            for number, key in enumerate(sorted(value)):
                yield f"{' ' if number else ''}{key}:"
                yield from _parts(value[key], budget, depth + 1)
            yield "]"
        case list():
            yield "["
            for number, each in enumerate(value):
                yield " " if number else ""
                yield from _parts(each, budget, depth + 1)
            yield "]"
        case _:
            yield scalar_text(value)


def scalar_text(value: Any) -> str:
    match value:
        case None:
            return "<nil>"
        case bool():
            return "true" if value else "false"
        case int():
            return int.__repr__(value)
        case float():
            return float_text(value)
        case Record():
            return value.text
    return str(value)


def float_text(value: float) -> str:
    """`%v`: the shortest text that stands for this number, with an exponent below 1e-04 and from 1e+06 on."""
    return general_text(value, None, upper=False)


def general_text(value: float, precision: int | None, *, upper: bool) -> str:
    """`%g`; without a precision, with as many digits as it takes to tell the number from its neighbours."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    wanted = 6 if precision is None else max(precision, 1)
    digits, exponent = _digits(repr(value) if precision is None else f"{value:.{wanted - 1}e}")
    sign = "-" if math.copysign(1, value) < 0 else ""
    if exponent < -4 or exponent >= wanted:
        mantissa = digits[0] + (f".{digits[1:]}" if len(digits) > 1 else "")
        return f"{sign}{mantissa}{'E' if upper else 'e'}{'-' if exponent < 0 else '+'}{abs(exponent):02}"
    if exponent < 0:
        return f"{sign}0.{'0' * (-exponent - 1)}{digits}"
    whole, fraction = digits[: exponent + 1].ljust(exponent + 1, "0"), digits[exponent + 1 :]
    return f"{sign}{whole}{f'.{fraction}' if fraction else ''}"


def _digits(text: str) -> tuple[str, int]:
    """The significant digits, and the exponent of the first one."""
    _, digits, exponent = Decimal(text).as_tuple()
    written = "".join(map(str, digits)).lstrip("0") or "0"
    assert isinstance(exponent, int)  # noqa: S101
    first = len(written) - 1 + exponent
    return written.rstrip("0") or "0", 0 if written == "0" else first


def quoted(text: str, *, ascii_only: bool = False) -> str:
    """Go's `%q`."""
    return '"' + "".join(_quoted(character, '"', ascii_only=ascii_only) for character in text) + '"'


def quoted_character(character: str, *, ascii_only: bool = False) -> str:
    return "'" + _quoted(character, "'", ascii_only=ascii_only) + "'"


def _quoted(character: str, quote: str, *, ascii_only: bool) -> str:
    if character in (quote, "\\"):
        return f"\\{character}"
    if character in _ESCAPES:
        return _ESCAPES[character]
    code = ord(character)
    if character.isprintable() and (code < 0x7F or not ascii_only):
        return character
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def print_values(values: Sequence[Any], budget: Budget) -> str:
    """`print`: a space between two neighbours that are both not text."""

    def parts() -> Iterator[str]:
        for number, value in enumerate(values):
            if number and not isinstance(value, str) and not isinstance(values[number - 1], str):
                yield " "
            yield text_of(value, budget)

    return joined(parts(), budget)


def println_values(values: Sequence[Any], budget: Budget) -> str:
    return joined((f"{' ' if n else ''}{text_of(value, budget)}" for n, value in enumerate(values)), budget) + "\n"
