"""Go's values in Python: what kind they are, whether they are true, equal, or less than another.

nil, bool, string, float64, map and slice are Python's own. `int` is Go's int; `Int64` is what sprig calculates with.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from sensors.templates.budget import Budget
from sensors.templates.errors import TemplateError


class Int64(int):
    """Go's int64, which is not an int to `deepEqual`, `has` and `typeOf`."""


class Typed(list[Any]):
    """A slice whose elements have one type, such as the []string of `splitList`."""

    element = "string"


class Ints(Typed):
    """Go's []int."""

    element = "int"


class Record(msgspec.Struct, frozen=True):
    """A Go struct: its fields can be read, and it prints as `text`."""

    type: str
    fields: Mapping[str, Any]
    text: str


def from_json(value: Any, budget: Budget, depth: int = 0) -> Any:
    """A copy of JSON data in which every number is a float64, as in Go. Anything else is not data."""
    budget.spend()
    budget.check_nesting(depth)
    match value:
        case None | bool() | str() | float():
            return value
        case int():
            return _float(value)
        case dict():
            return {str(key): from_json(each, budget, depth + 1) for key, each in value.items()}
        case list() | tuple():
            return [from_json(each, budget, depth + 1) for each in value]
    raise TemplateError(f"{type(value).__name__} is not JSON data")


def _float(value: int) -> float:
    try:
        return float(value)
    except OverflowError:
        raise TemplateError("a number is too large") from None


def kind_of(value: Any) -> str:
    """The name of the value's reflect.Kind."""
    for kinds, name in _KINDS:
        if isinstance(value, kinds):
            return name
    return "invalid" if value is None else "struct"


_KINDS: tuple[tuple[type, str], ...] = (
    (bool, "bool"),
    (Int64, "int64"),
    (int, "int"),
    (float, "float64"),
    (str, "string"),
    (dict, "map"),
    (list, "slice"),
)


def type_of(value: Any) -> str:
    """What `%T` prints."""
    match value:
        case None:
            return "<nil>"
        case dict():
            return "map[string]interface {}"
        case Typed():
            return f"[]{value.element}"
        case list():
            return "[]interface {}"
        case Record():
            return value.type
    kind = kind_of(value)
    return "time.Time" if kind == "struct" else kind


def is_true(value: Any) -> bool:
    """Zero, "", nil and what is empty are false. Go and sprig's `empty` agree on that."""
    return bool(value) if isinstance(value, bool | int | float | str | dict | list) else value is not None


def deep_equal(one: Any, other: Any, budget: Budget, depth: int = 0) -> bool:
    """reflect.DeepEqual: 1 is not 1.0."""
    budget.spend()
    budget.check_nesting(depth)
    if type_of(one) != type_of(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(deep_equal(one[key], other[key], budget, depth + 1) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(lambda a, b: deep_equal(a, b, budget, depth + 1), one, other))
    return bool(one == other)


def equal(one: Any, other: Any) -> bool:
    """Go's `eq`: only what has the same kind can be compared; nil can be compared with everything."""
    if one is None or other is None:
        return one is None and other is None
    _check_comparable(one, other)
    if isinstance(one, dict | list):
        raise TemplateError(f"{_article(one)} cannot be compared; use `deepEqual`")
    return bool(one == other)


def less(one: Any, other: Any) -> bool:
    """Go's `lt`: numbers of the same kind, or texts by their bytes."""
    _check_comparable(one, other)
    if isinstance(one, str):
        return bool(one.encode(errors="replace") < other.encode(errors="replace"))
    if isinstance(one, bool) or not isinstance(one, int | float):
        raise TemplateError(f"{_article(one)} is neither less nor greater than anything")
    return bool(one < other)


def _check_comparable(one: Any, other: Any) -> None:
    kinds = {"int" if kind == "int64" else kind for kind in (kind_of(one), kind_of(other))}
    if len(kinds) > 1:
        hint = "; numbers of an event are float64: write 1.0, or convert with `int`" if "float64" in kinds else ""
        raise TemplateError(f"{_article(one)} cannot be compared with {_article(other)}{hint}")


def _article(value: Any) -> str:
    kind = kind_of(value)
    return "nil" if kind == "invalid" else f"{'an' if kind.startswith('i') else 'a'} {kind}"
