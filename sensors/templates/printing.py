"""How Go prints: `%v`, `print`, quoted text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from sensors.numerals import printed
from sensors.templates.budget import Budget
from sensors.templates.values import Record

_ESCAPES = {"\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v"}
_UNUSUAL = re.compile(r'["\\]|[^ -~]')


class Writer:
    """A text whose size is checked while it grows."""

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self._parts: list[str] = []
        self._length = 0

    def write(self, part: str) -> None:
        self._parts.append(part)
        self._length += len(part)
        self.budget.spend()
        self.budget.check_text(self._length)

    def text(self) -> str:
        self.budget.spend_text(self._length)
        return "".join(self._parts)


def text_of(value: Any, budget: Budget) -> str:
    """`%v`, and what sprig makes of a value where it needs text."""
    if isinstance(value, str):
        return value
    writer = Writer(budget)
    _write(value, writer, 0)
    return writer.text()


def joined(parts: Iterable[str], budget: Budget) -> str:
    writer = Writer(budget)
    for part in parts:
        writer.write(part)
    return writer.text()


def _write(value: Any, writer: Writer, depth: int) -> None:
    writer.budget.check_nesting(depth)
    match value:
        case dict():
            writer.write("map[")
            for number, key in enumerate(sorted(value)):
                writer.write(f"{' ' if number else ''}{key}:")
                _write(value[key], writer, depth + 1)
            writer.write("]")
        case list():
            writer.write("[")
            for number, each in enumerate(value):
                if number:
                    writer.write(" ")
                _write(each, writer, depth + 1)
            writer.write("]")
        case _:
            writer.write(scalar_text(value))


def scalar_text(value: Any) -> str:
    match value:
        case None:
            return "<nil>"
        case bool():
            return "true" if value else "false"
        case int():
            return int.__repr__(value)
        case float():
            return printed(value)
        case Record():
            return value.text
    return str(value)


def quoted(text: str, *, ascii_only: bool = False) -> str:
    """Go's `%q`."""
    return '"' + _UNUSUAL.sub(lambda found: _quoted(found.group(), '"', ascii_only=ascii_only), text) + '"'


def escapes_in(text: str) -> int:
    """How many characters at most `quoted` makes longer."""
    return len(_UNUSUAL.findall(text))


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
