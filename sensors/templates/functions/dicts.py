"""sprig's functions of objects. `set`, `unset` and `merge` change the object, which is always the rendering's own copy.

Where Go's order of keys is random, ours is sorted: a retry must give the same text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sensors.templates.budget import Budget
from sensors.templates.errors import TemplateError
from sensors.templates.functions.registry import Dict
from sensors.templates.printing import text_of
from sensors.templates.values import Typed, is_true, kind_of


def _dict(budget: Budget, *pairs: Any) -> Dict:
    padded = [*pairs, ""] if len(pairs) % 2 else list(pairs)
    return {text_of(key, budget): value for key, value in zip(padded[::2], padded[1::2], strict=True)}


def _get(items: Dict, key: str) -> Any:
    return items.get(key, "")


def _set(items: Dict, key: str, value: Any) -> Dict:
    items[key] = value
    return items


def _unset(items: Dict, key: str) -> Dict:
    items.pop(key, None)
    return items


def _has_key(items: Dict, key: str) -> bool:
    return key in items


def _pluck(key: str, *dicts: Dict) -> list[Any]:
    return [items[key] for items in dicts if key in items]


def _keys(budget: Budget, *dicts: Dict) -> Typed:
    budget.spend(sum(map(len, dicts)))
    return Typed(key for items in dicts for key in sorted(items))


def _values(budget: Budget, items: Dict) -> list[Any]:
    budget.spend(len(items))
    return [items[key] for key in sorted(items)]


def _pick(items: Dict, *keys: str) -> Dict:
    return {key: items[key] for key in keys if key in items}


def _omit(budget: Budget, items: Dict, *keys: str) -> Dict:
    budget.spend(len(items))
    return {key: value for key, value in items.items() if key not in keys}


def _merge(budget: Budget, target: Dict, *sources: Dict) -> Dict:
    for source in sources:
        _merge_one(budget, target, source, overwrite=False, depth=0)
    return target


def _merge_overwrite(budget: Budget, target: Dict, *sources: Dict) -> Dict:
    for source in sources:
        _merge_one(budget, target, source, overwrite=True, depth=0)
    return target


def _merge_one(budget: Budget, target: Dict, source: Dict, *, overwrite: bool, depth: int) -> None:
    budget.check_nesting(depth)
    for key, value in list(source.items()):
        budget.spend()
        there = target.get(key)
        if isinstance(there, dict) and isinstance(value, dict):
            _merge_one(budget, there, value, overwrite=overwrite, depth=depth + 1)
        elif not is_true(there) or (overwrite and is_true(value)):
            target[key] = value


def _dig(*path: Any) -> Any:
    if len(path) < 3:
        raise TemplateError("it takes keys, a default and a map")
    *keys, default, found = path
    for key in keys:
        if not isinstance(key, str) or not isinstance(found, dict):
            raise TemplateError(f"there is a {kind_of(found)} where `{key}` should be looked up")
        if key not in found:
            return default
        found = found[key]
    return found


def _deep_copy(budget: Budget, value: Any) -> Any:
    return _copied(budget, value, 0)


def _copied(budget: Budget, value: Any, depth: int) -> Any:
    budget.spend()
    budget.check_nesting(depth)
    if isinstance(value, dict):
        return {key: _copied(budget, each, depth + 1) for key, each in value.items()}
    if isinstance(value, list):
        return type(value)(_copied(budget, each, depth + 1) for each in value)
    return value


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "dict": _dict,
    "get": _get,
    "set": _set,
    "unset": _unset,
    "hasKey": _has_key,
    "pluck": _pluck,
    "keys": _keys,
    "values": _values,
    "pick": _pick,
    "omit": _omit,
    "merge": _merge,
    "mustMerge": _merge,
    "mergeOverwrite": _merge_overwrite,
    "mustMergeOverwrite": _merge_overwrite,
    "dig": _dig,
    "deepCopy": _deep_copy,
    "mustDeepCopy": _deep_copy,
}
