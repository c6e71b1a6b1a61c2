"""Paths into an event's data: gjson's, as argo-events' users write them, and JSONPath where one begins with `$`.

A path is compiled once, when the manifest is loaded, into a function that returns the value or `MISSING` and never
raises, whatever the data is. It sees dictionaries and lists and never an attribute of a Python object. Its work is
bounded by the size of the data: nothing in a path can visit a part of the data more than once per step.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

from jsonpath_ng import jsonpath
from jsonpath_ng.exceptions import JSONPathError
from jsonpath_ng.parser import parse as parse_jsonpath

from sensors.gjson import MAX_PATH, MAX_STEPS, MISSING, Lookup, compile_gjson

__all__ = ["MAX_PATH", "MAX_STEPS", "MISSING", "Lookup", "compile_path", "split_keys", "unescaped"]

MAX_VISITS = 100_000
"""Values that a JSONPath may come across in one event; beyond that it finds nothing."""
_KEY = re.compile(r"(?:[^.\\]|\\.)*", re.DOTALL)

_Step: TypeAlias = Callable[[Any], Iterable[Any]]


@lru_cache(maxsize=4096)
def compile_path(path: str) -> Lookup:
    """How to find a path in data. Raises `ValueError` with half a sentence."""
    if len(path) > MAX_PATH:
        raise ValueError(f"must not be longer than {MAX_PATH:,} characters")
    if path == "$" or path.startswith(("$.", "$[")):
        return _compile_jsonpath(path)
    return compile_gjson(path)


# --- keys between dots, of which there are no other kinds where values are put ---------------------------------------


def split_keys(path: str) -> list[str]:
    """The parts between unescaped dots, still with their escapes."""
    if len(path) > MAX_PATH:
        raise ValueError(f"must not be longer than {MAX_PATH:,} characters")
    if re.search(r"(?<!\\)(\\\\)*\\\Z", path):
        raise ValueError("must not end with a lone `\\`")
    parts, start = [], 0
    while start <= len(path):
        found = _KEY.match(path, start)
        parts.append(path[start : found.end()] if found else "")
        start += len(parts[-1]) + 1
    if not all(parts):
        raise ValueError(f"has an empty step in `{path}`; write a dot inside a key as `\\.`")
    if len(parts) > MAX_STEPS:
        raise ValueError(f"must not have more than {MAX_STEPS} steps")
    return parts


def unescaped(key: str) -> str:
    return re.sub(r"\\(.)", r"\1", key, flags=re.DOTALL)


# --- JSONPath -------------------------------------------------------------------------------------------------------


def _compile_jsonpath(path: str) -> Lookup:
    """jsonpath-ng reads it; we walk it, because its own walk knows no bounds."""
    steps = _jsonpath_steps(path)

    def find(data: Any) -> Any:
        found, visits = [data], 0
        for step in steps:
            reached: list[Any] = []
            for value in found:
                for inner in step(value):
                    reached.append(inner)
                    visits += 1
                    if visits > MAX_VISITS:
                        return MISSING
            found = reached
        if len(found) != 1:
            return found or MISSING
        return found[0]

    return find


def _jsonpath_steps(path: str) -> Sequence[_Step]:
    if path.count("..") > 1:
        raise ValueError("may contain `..` only once")  # each one multiplies the work that an event can cause
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about operators that are refused below
            node = parse_jsonpath(path)
    except (JSONPathError, ValueError) as error:
        raise ValueError(f"is not a JSONPath: {error}") from None
    steps: list[_Step] = []
    while isinstance(node, jsonpath.Child | jsonpath.Descendants):
        steps.append(_jsonpath_step(node.right))
        if isinstance(node, jsonpath.Descendants):
            steps.append(_descendants)
        node = node.left
    if type(node).__name__ != "Root":
        raise ValueError("is a JSONPath of a kind that is not supported: join steps with `.`, `..` and `[…]` only")
    if len(steps) > MAX_STEPS:
        raise ValueError(f"must not have more than {MAX_STEPS} steps")
    steps.reverse()
    return steps


def _jsonpath_step(node: Any) -> _Step:
    match type(node).__name__:
        case "Wildcard":
            return _children
        case "Fields" if node.fields == ("*",):
            return _children
        case "Fields":
            fields: tuple[str, ...] = node.fields
            return lambda value: [value[name] for name in fields if name in value] if isinstance(value, dict) else ()
        case "Index":
            indices: tuple[int, ...] = node.indices
            return lambda value: [value[at] for at in indices if _has(value, at)]
        case "Slice":
            part = slice(node.start, node.end, node.step or None)
            return lambda value: value[part] if isinstance(value, list) else ()
        case kind:
            raise ValueError(f"uses JSONPath's `{kind.lower()}`, which is not supported")


def _has(value: Any, index: int) -> bool:
    return isinstance(value, list) and -len(value) <= index < len(value)


def _children(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _descendants(value: Any) -> Iterator[Any]:
    """The value itself and everything in it, in the order of the text."""
    waiting = [value]
    while waiting:
        value = waiting.pop()
        yield value
        waiting += reversed(list(_children(value)))
