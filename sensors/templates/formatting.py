"""Go's printf. A verb that does not fit its argument is printed as Go prints it, `%!d(string=x)`, and is no error."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from sensors.numerals import general, printed
from sensors.templates.budget import MAX_TEXT, Budget
from sensors.templates.errors import TemplateError
from sensors.templates.printing import (
    joined,
    quoted,
    quoted_character,
    scalar_text,
    text_of,
)
from sensors.templates.values import type_of

_DIRECTIVE = re.compile(r"%(?P<flags>[-+# 0]*)(?P<width>\*|\d+)?(?:\.(?P<precision>\*|\d*))?(?P<verb>.)?", re.DOTALL)
_MAX_WIDTH = 1_000_000  # Go's own limit
_MAX_DIGITS = 400  # more than any float64 has
_BASES = {"d": "d", "b": "b", "o": "o", "x": "x", "X": "X"}
_PREFIXES = {"b": "0b", "o": "0", "x": "0x", "X": "0X"}


class _Directive(msgspec.Struct, frozen=True):
    """One `%…` with its numbers filled in."""

    verb: str
    flags: str
    width: int | None
    precision: int | None


def format_values(template: str, values: Sequence[Any], budget: Budget) -> str:
    return joined(_formatted(template, values, budget), budget)


def _formatted(template: str, values: Sequence[Any], budget: Budget) -> Iterator[str]:
    left = list(values)
    at = 0
    for found in _DIRECTIVE.finditer(template):
        yield template[at : found.start()]
        at = found.end()
        if found["verb"] == "[":
            raise TemplateError("printf: `%[…]` is not supported; give the values in their order")
        yield _one(found, left, budget)
    yield template[at:]
    if left:
        yield f"%!(EXTRA {', '.join(f'{type_of(each)}={text_of(each, budget)}' for each in left)})"


def _one(found: re.Match[str], left: list[Any], budget: Budget) -> str:
    numbers = [_number(found[part], left) for part in ("width", "precision")]
    verb = found["verb"]
    if verb is None:
        return "%!(NOVERB)"
    if verb == "%":
        return "%"
    if not left:
        return f"%!{verb}(MISSING)"
    flags = found["flags"].replace("+", "") if verb == "v" else found["flags"]  # `%+v` is about names of struct fields
    directive = _Directive(verb, flags, *numbers)
    budget.spend_text(min((directive.width or 0) + (directive.precision or 0), MAX_TEXT + 1))
    return _apply(directive, left.pop(0), budget, 0)


def _number(text: str | None, left: list[Any]) -> int | None:
    if text != "*":
        number = None if text is None else int(text[:12] or "0")
    else:
        number = left.pop(0) if left and type_of(left[0]) in ("int", "int64") else 0
    if number is not None and abs(number) > _MAX_WIDTH:
        raise TemplateError(f"printf: a width or precision must not be more than {_MAX_WIDTH:,}")
    return number


def _apply(directive: _Directive, value: Any, budget: Budget, depth: int) -> str:
    budget.spend()
    budget.check_nesting(depth)
    verb = directive.verb
    if verb == "T":
        return _padded(type_of(value), directive)
    if verb == "v" and "#" in directive.flags:
        raise TemplateError("printf: `%#v` is not supported; use `toJson`")
    if isinstance(value, list):
        items = (_apply(directive, each, budget, depth + 1) for each in value)
        return f"[{joined(_separated(items), budget)}]"
    if isinstance(value, dict):
        pairs = ((_apply(directive, key, budget, depth + 1), value[key]) for key in sorted(value))
        entries = (f"{key}:{_apply(directive, each, budget, depth + 1)}" for key, each in pairs)
        return f"map[{joined(_separated(entries), budget)}]"
    text = "<nil>" if value is None and (depth or verb == "v") else _scalar(directive, value)
    if text is None:
        return "%!" + verb + ("(<nil>)" if value is None else f"({type_of(value)}={scalar_text(value)})")
    return text


def _separated(texts: Iterator[str]) -> Iterator[str]:
    for number, text in enumerate(texts):
        yield f" {text}" if number else text


def _scalar(directive: _Directive, value: Any) -> str | None:
    """None where the verb is not for such a value."""
    match value:
        case None:
            return None
        case bool():
            return _padded(scalar_text(value), directive) if directive.verb in "tv" else None
        case int():
            return _integer(directive, value)
        case float():
            return _float(directive, value)
        case str():
            return _string(directive, value)
    return _string(directive, scalar_text(value)) if directive.verb in "svq" else None


def _string(directive: _Directive, value: str) -> str | None:
    verb = directive.verb
    if directive.precision is not None and verb in "svq":
        value = value[: directive.precision]
    if verb in "sv":
        return _padded(value, directive)
    if verb == "q":
        if "#" in directive.flags and "`" not in value and value.isprintable():
            return _padded(f"`{value}`", directive)
        return _padded(quoted(value, ascii_only="+" in directive.flags), directive)
    if verb in "xX":
        digits = value.encode(errors="replace")[: directive.precision].hex()
        return _padded(digits if verb == "x" else digits.upper(), directive)
    return None


def _integer(directive: _Directive, value: int) -> str | None:
    verb, flags = directive.verb, directive.flags
    if verb in "cqU":
        return _character(directive, value)
    base = _BASES.get("d" if verb == "v" else verb)
    if base is None:
        return None
    digits = format(abs(int(value)), base)
    if directive.precision is not None:
        digits = digits.rjust(directive.precision, "0")
    prefix = _PREFIXES.get(verb, "") if "#" in flags else ""
    return _signed(value < 0, prefix + digits, directive, zeros=directive.precision is None)


def _character(directive: _Directive, value: int) -> str:
    character = chr(value) if 0 <= value < 0x110000 and not 0xD800 <= value < 0xE000 else "\ufffd"
    match directive.verb:
        case "c":
            return _padded(character, directive)
        case "U":
            return _padded(f"U+{value & (1 << 64) - 1:04X}", directive)
    return _padded(quoted_character(character, ascii_only="+" in directive.flags), directive)


def _float(directive: _Directive, value: float) -> str | None:
    verb = directive.verb
    precision = None if directive.precision is None else min(directive.precision, _MAX_DIGITS)
    if verb in "vgG":
        text = general(value, precision, upper=verb == "G")
    elif verb in "eEfF":
        text = printed(value)
        if text not in ("NaN", "+Inf", "-Inf"):
            text = format(value, f".{6 if precision is None else precision}{verb}")
    else:
        return None
    return _signed(text.startswith("-"), text.lstrip("+-"), directive, zeros=text[-1].isdigit())


def _signed(negative: bool, digits: str, directive: _Directive, *, zeros: bool) -> str:
    sign = "-" if negative else "+" if "+" in directive.flags else " " if " " in directive.flags else ""
    if digits == "Inf":
        sign = sign or "+"
    if zeros and "0" in directive.flags and "-" not in directive.flags and directive.width is not None:
        digits = digits.rjust(directive.width - len(sign), "0")
    return _padded(sign + digits, directive, fill=" ")


def _padded(text: str, directive: _Directive, fill: str | None = None) -> str:
    width = directive.width or 0
    if "-" in directive.flags or width < 0:
        return text.ljust(abs(width))
    return text.rjust(width, fill or ("0" if "0" in directive.flags else " "))
