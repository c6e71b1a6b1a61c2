"""Go's own functions, and sprig's about defaults, types and failure."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import quote_plus

from sensors.templates.budget import Budget
from sensors.templates.errors import TemplateError
from sensors.templates.formatting import format_values
from sensors.templates.functions.texts import cut
from sensors.templates.printing import print_values, println_values
from sensors.templates.values import deep_equal, equal, is_true, kind_of, less, type_of

_HTML = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&#34;", "'": "&#39;", "\0": "\ufffd"})
_JS = {"\\": "\\\\", "'": "\\'", '"': '\\"'}
_JS_CODED = "<>&="


def _eq(one: Any, other: Any, *others: Any) -> bool:
    return any(equal(one, each) for each in (other, *others))


def _ne(one: Any, other: Any) -> bool:
    return not equal(one, other)


def _lt(one: Any, other: Any) -> bool:
    return less(one, other)


def _le(one: Any, other: Any) -> bool:
    return less(one, other) or equal(one, other)


def _gt(one: Any, other: Any) -> bool:
    return not _le(one, other)


def _ge(one: Any, other: Any) -> bool:
    return not less(one, other)


def _not(value: Any) -> bool:
    return not is_true(value)


def _len(value: Any) -> int:
    if isinstance(value, str):
        return len(value.encode(errors="replace"))
    if isinstance(value, dict | list):
        return len(value)
    raise TemplateError(f"{_named(value)} has no length")


def _index(value: Any, *keys: Any) -> Any:
    for key in keys:
        value = _element(value, key)
    return value


def _element(value: Any, key: Any) -> Any:
    match value:
        case dict():
            if not isinstance(key, str):
                raise TemplateError(f"the key of a map must be a string, not {_named(key)}")
            return value.get(key)
        case list() | str():
            if isinstance(key, bool) or not isinstance(key, int):
                raise TemplateError(f"the index must be an int, not {_named(key)}")
            items = list(value.encode(errors="replace")) if isinstance(value, str) else value
            if not 0 <= key < len(items):
                raise TemplateError(f"the index {key} is out of range: there are {len(items)}")
            return items[key]
    raise TemplateError(f"{_named(value)} has no elements")


def _slice(value: Any, start: Any = 0, end: Any = None) -> Any:
    """sprig's, which hides Go's, for lists; Go's for texts."""
    if not isinstance(value, list | str):
        raise TemplateError(f"{_named(value)} cannot be sliced")
    length = _len(value)
    first, last = _bound(start), length if end is None else _bound(end)
    if not 0 <= first <= last <= length:
        raise TemplateError(f"there is no part from {first} to {last}: the length is {length}")
    return cut(value, first, last) if isinstance(value, str) else value[first:last]


def _bound(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TemplateError(f"the bounds must be numbers, not {_named(value)}")
    return int(value)


def _named(value: Any) -> str:
    return "nil" if value is None else f"a {kind_of(value)}"


def _print(budget: Budget, *values: Any) -> str:
    return print_values(values, budget)


def _println(budget: Budget, *values: Any) -> str:
    return println_values(values, budget)


def _printf(budget: Budget, template: str, *values: Any) -> str:
    return format_values(template, values, budget)


def _html(budget: Budget, *values: Any) -> str:
    return print_values(values, budget).translate(_HTML)


def _js(budget: Budget, *values: Any) -> str:
    return re.sub(r"[^ -~]|[<>&='\"\\]", _js_character, print_values(values, budget))


def _js_character(found: re.Match[str]) -> str:
    character = found.group()
    if character in _JS:
        return _JS[character]
    if character in _JS_CODED or not character.isprintable():
        return f"\\u{ord(character):04X}"
    return character


def _urlquery(budget: Budget, *values: Any) -> str:
    return quote_plus(print_values(values, budget), safe="~", errors="replace")


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "eq": _eq,
    "ne": _ne,
    "lt": _lt,
    "le": _le,
    "gt": _gt,
    "ge": _ge,
    "not": _not,
    "len": _len,
    "index": _index,
    "slice": _slice,
    "mustSlice": _slice,
    "print": _print,
    "println": _println,
    "printf": _printf,
    "html": _html,
    "js": _js,
    "urlquery": _urlquery,
}


# --- sprig ----------------------------------------------------------------------------------------------------------


def _default(default: Any, value: Any = None) -> Any:
    return value if is_true(value) else default


def _empty(value: Any) -> bool:
    return not is_true(value)


def _coalesce(*values: Any) -> Any:
    return next((value for value in values if is_true(value)), None)


def _all(*values: Any) -> bool:
    return all(map(is_true, values))


def _any(*values: Any) -> bool:
    return any(map(is_true, values))


def _ternary(yes: Any, no: Any, condition: bool) -> Any:
    return yes if condition else no


def _fail(message: str) -> str:
    raise TemplateError(message)


def _type_of(value: Any) -> str:
    return type_of(value)


def _type_is(name: str, value: Any) -> bool:
    return type_of(value) == name


def _type_is_like(name: str, value: Any) -> bool:
    return type_of(value) in (name, f"*{name}")


def _kind_of(value: Any) -> str:
    return kind_of(value)


def _kind_is(name: str, value: Any) -> bool:
    return kind_of(value) == name


def _deep_equal(budget: Budget, one: Any, other: Any) -> bool:
    return deep_equal(one, other, budget)


SPRIG: dict[str, Callable[..., Any]] = {
    "default": _default,
    "empty": _empty,
    "coalesce": _coalesce,
    "all": _all,
    "any": _any,
    "ternary": _ternary,
    "fail": _fail,
    "typeOf": _type_of,
    "typeIs": _type_is,
    "typeIsLike": _type_is_like,
    "kindOf": _kind_of,
    "kindIs": _kind_is,
    "deepEqual": _deep_equal,
}
