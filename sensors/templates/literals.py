"""Go's literals: numbers, characters and quoted text."""

from __future__ import annotations

import math
import re

from sensors.templates.errors import TemplateSyntaxError
from sensors.templates.lexer import Token

_ESCAPE = re.compile(
    r"\\(?:(?P<simple>[abfnrtv\\'\"])|x(?P<hex>[0-9a-fA-F]{2})|u(?P<short>[0-9a-fA-F]{4})"
    r"|U(?P<long>[0-9a-fA-F]{8})|(?P<octal>[0-3][0-7]{2})|(?P<wrong>.))",
    re.DOTALL,
)
_SIMPLE = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_INT_LIMIT = 1 << 63


def number(token: Token) -> int | float:
    """An int, or a float64 where it is written as one."""
    text = token.text
    octal = re.fullmatch(r"[+-]?0[0-7_]+", text)
    is_float = re.search(r"[.eE]", text) and not re.match(r"[+-]?0[xX]", text)
    try:
        value = float(text) if is_float else int(text, 8 if octal else 0)
    except ValueError:
        raise TemplateSyntaxError("this is not a number", token.index) from None
    if (isinstance(value, float) and math.isinf(value)) or (not -_INT_LIMIT <= value < _INT_LIMIT and not is_float):
        raise TemplateSyntaxError("this number is too large", token.index)
    return value


def character(token: Token) -> int:
    text = _decoded(token)
    if len(text) != 1:
        raise TemplateSyntaxError("this is not one character", token.index)
    return ord(text)


def raw(token: Token) -> str:
    return token.text[1:-1].replace("\r", "")


def unquoted(token: Token) -> str:
    return _decoded(token)


def _decoded(token: Token) -> str:
    def replace(found: re.Match[str]) -> str:
        if found["simple"]:
            return _SIMPLE.get(found["simple"], found["simple"])
        if found["octal"]:
            return chr(int(found["octal"], 8))
        code = int(found["hex"] or found["short"] or found["long"] or "110000", 16)
        if code > 0x10FFFF or 0xD800 <= code < 0xE000:
            raise TemplateSyntaxError(f"`{found.group()}` is not an escape", token.index + 1 + found.start())
        return chr(code)

    return _ESCAPE.sub(replace, token.text[1:-1])
