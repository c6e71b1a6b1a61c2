"""sprig's functions of lists. None of them changes the list it is given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sensors.templates.budget import Budget
from sensors.templates.errors import TemplateError
from sensors.templates.functions.registry import List
from sensors.templates.values import deep_equal, is_true


def _list(*values: Any) -> List:
    return list(values)


def _first(items: List) -> Any:
    return items[0] if items else None


def _rest(budget: Budget, items: List) -> List:
    return _copied(budget, items[1:])


def _last(items: List) -> Any:
    return items[-1] if items else None


def _initial(budget: Budget, items: List) -> List:
    return _copied(budget, items[:-1])


def _append(budget: Budget, items: List, value: Any) -> List:
    return _copied(budget, [*items, value])


def _prepend(budget: Budget, items: List, value: Any) -> List:
    return _copied(budget, [value, *items])


def _concat(budget: Budget, *lists: List) -> List:
    return _copied(budget, [each for items in lists for each in items])


def _reverse(budget: Budget, items: List) -> List:
    return _copied(budget, items[::-1])


def _copied(budget: Budget, items: List) -> List:
    """Of several types, even if the original was of one; and it is not for free."""
    budget.spend(len(items))
    return list(items)


def _uniq(budget: Budget, items: List) -> List:
    kept: List = []
    for each in items:
        if not _has(budget, each, kept):
            kept.append(each)
    return kept


def _without(budget: Budget, items: List, *omitted: Any) -> List:
    return [each for each in items if not _has(budget, each, list(omitted))]


def _has(budget: Budget, needle: Any, items: List) -> bool:
    return any(deep_equal(needle, each, budget) for each in items)


def _compact(budget: Budget, items: List) -> List:
    return _copied(budget, [each for each in items if is_true(each)])


def _chunk(budget: Budget, size: int, items: List) -> List:
    if size < 1:
        raise TemplateError("the size must be at least 1")
    budget.spend(len(items))
    return [list(items[at : at + size]) for at in range(0, len(items), size)]


_WITH_MUST: dict[str, Callable[..., Any]] = {
    "first": _first,
    "rest": _rest,
    "last": _last,
    "initial": _initial,
    "append": _append,
    "push": _append,
    "prepend": _prepend,
    "reverse": _reverse,
    "uniq": _uniq,
    "without": _without,
    "has": _has,
    "compact": _compact,
    "chunk": _chunk,
}
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "list": _list,
    "tuple": _list,
    "concat": _concat,
    **_WITH_MUST,
    **{f"must{name[0].upper()}{name[1:]}": call for name, call in _WITH_MUST.items()},
}
