r"""gjson's paths, compiled to functions.

    name.first          keys; a number is an index where it meets a list
    fav\.movie          `\` takes a character's special meaning away
    child*.?            the first key that fits
    friends.#           how many; `friends.#.first` collects from each
    friends.#(age>45)   the first that fits; `#(…)#` all of them; `.` goes on in each, `|` with the whole list
    friends.@reverse    modifiers without arguments

Multipaths (`{…}`, `[…]`), literals (`!…`) and modifiers with arguments build new documents; they are refused.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import msgspec

from sensors.patterns import Finder, compile_glob
from sensors.values import as_json, parse_number

MAX_PATH = 1024
MAX_STEPS = 50
MAX_QUERY_DEPTH = 8
MAX_TEXT = 4 << 20
"""What `@tostr` may make: one after the other, they would double it each time."""

MISSING: Any = object()
Lookup: TypeAlias = Callable[[Any], Any]


def compile_gjson(path: str) -> Lookup:
    """Raises `ValueError` with half a sentence."""
    reader = _Reader(path)
    stages = reader.stages(depth=0)
    keys = [step.key for step in stages[0] if isinstance(step, _Key)]
    if len(stages) == 1 and len(keys) == len(stages[0]):
        return _plain_lookup(keys)
    return _pipeline([_chain(stage) for stage in stages])


def _plain_lookup(keys: Sequence[str]) -> Lookup:
    """What nearly all paths are, without a call per step."""
    steps = [(key, _index(key)) for key in keys]

    def find(data: Any) -> Any:
        for key, index in steps:
            if isinstance(data, dict):
                if key not in data:
                    return MISSING
                data = data[key]
            elif isinstance(data, list) and index is not None and index < len(data):
                data = data[index]
            else:
                return MISSING
        return data

    return find


def _index(key: str) -> int | None:
    return int(key) if key.isascii() and key.isdigit() else None


def _pipeline(stages: Sequence[Lookup]) -> Lookup:
    if len(stages) == 1:
        return stages[0]

    def find(data: Any) -> Any:
        for stage in stages:
            data = stage(data)
            if data is MISSING:
                return MISSING
        return data

    return find


def _chain(steps: Sequence[_Step]) -> Lookup:
    rest: Lookup | None = None
    for step in reversed(steps):
        rest = step.then(rest)
    return rest or _this


def _this(data: Any) -> Any:
    return data


def _on(rest: Lookup | None, value: Any) -> Any:
    return value if rest is None or value is MISSING else rest(value)


# --- steps ----------------------------------------------------------------------------------------------------------


class _Key(msgspec.Struct, frozen=True):
    key: str

    def then(self, rest: Lookup | None) -> Lookup:
        own = _plain_lookup([self.key])
        return lambda data: _on(rest, own(data))


class _Glob(msgspec.Struct, frozen=True):
    fits: Finder

    def then(self, rest: Lookup | None) -> Lookup:
        def find(data: Any) -> Any:
            if not isinstance(data, dict):
                return MISSING
            return _on(rest, next((value for key, value in data.items() if self.fits(key)), MISSING))

        return find


class _Each(msgspec.Struct, frozen=True):
    """`#`: the length of a list, or what the rest of the path finds in its elements. In an object it is a key."""

    def then(self, rest: Lookup | None) -> Lookup:
        def find(data: Any) -> Any:
            if isinstance(data, dict):
                return _on(rest, data.get("#", MISSING))
            if not isinstance(data, list):
                return MISSING
            return len(data) if rest is None else _collect(data, rest)

        return find


class _Query(msgspec.Struct, frozen=True):
    """`#(…)`: the first element that fits, or with another `#` all of them."""

    fits: Callable[[Any], bool]
    all: bool

    def then(self, rest: Lookup | None) -> Lookup:
        def find(data: Any) -> Any:
            if not isinstance(data, list):
                return MISSING
            fitting = (element for element in data if self.fits(element))
            if not self.all:
                return _on(rest, next(fitting, MISSING))
            return list(fitting) if rest is None else _collect(fitting, rest)

        return find


class _Modifier(msgspec.Struct, frozen=True):
    change: Lookup

    def then(self, rest: Lookup | None) -> Lookup:
        return lambda data: _on(rest, self.change(data))


_Step: TypeAlias = _Key | _Glob | _Each | _Query | _Modifier


def _collect(elements: Any, rest: Lookup) -> list[Any]:
    return [value for element in elements if (value := rest(element)) is not MISSING]


# --- modifiers ------------------------------------------------------------------------------------------------------


def _reverse(data: Any) -> Any:
    if isinstance(data, dict):
        return dict(reversed(data.items()))
    return data[::-1] if isinstance(data, list) else data


def _flatten(data: Any) -> Any:
    if not isinstance(data, list):
        return data
    return [inner for element in data for inner in (element if isinstance(element, list) else (element,))]


def _keys(data: Any) -> Any:
    if isinstance(data, dict):
        return list(data)
    return [None] * len(data) if isinstance(data, list) else []


def _values(data: Any) -> Any:
    if isinstance(data, dict):
        return list(data.values())
    return data if isinstance(data, list) else [data]


def _to_text(data: Any) -> Any:
    text = as_json(data)
    return MISSING if text is None or len(text) > MAX_TEXT else text


def _from_text(data: Any) -> Any:
    if not isinstance(data, str):
        return MISSING
    try:
        return msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return MISSING


_MODIFIERS: dict[str, Lookup] = {
    "this": _this,
    "valid": _this,
    "ugly": _this,
    "reverse": _reverse,
    "flatten": _flatten,
    "keys": _keys,
    "values": _values,
    "tostr": _to_text,
    "fromstr": _from_text,
}
_REFUSED_MODIFIERS = frozenset(("pretty", "join", "group", "dig"))


# --- queries --------------------------------------------------------------------------------------------------------

_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def _compare(symbol: str, literal: str) -> Callable[[Any], bool]:
    """A comparison with a value of a document, whose type decides how the literal is read, as in gjson."""
    if "%" in symbol:
        fits, wanted = compile_glob(literal), symbol == "%"
        return lambda value: isinstance(value, str) and fits(value) is wanted
    number, truth, holds = parse_number(literal), {"true": True, "false": False}.get(literal), _COMPARISONS[symbol]

    def compare(value: Any) -> bool:
        match value:
            case str():
                return holds(value, literal)
            case bool():
                return symbol == "!=" if truth is None else holds(value, truth)
            case int() | float():
                return symbol == "!=" if number is None else holds(value, number)
            case _:
                return False

    return compare


# --- reading --------------------------------------------------------------------------------------------------------

_OPERATORS = ("==", "!=", "!%", "<=", ">=", "=", "<", ">", "%")


class _Reader:
    """Reads one path from left to right."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._steps = 0

    def stages(self, depth: int, start: int = 0, end: int | None = None) -> list[list[_Step]]:
        """What stands between pipes: each works on all that the one before has found."""
        if depth > MAX_QUERY_DEPTH:
            raise ValueError(f"must not have queries nested more than {MAX_QUERY_DEPTH} deep")
        stop = len(self._path) if end is None else end
        stages: list[list[_Step]] = [[]]
        at = start
        while True:
            if self._modifier(at, stop) and stages[-1]:
                stages.append([])  # `.@` means `|@`
            step, at = self._step(at, stop, depth)
            stages[-1].append(step)
            self._steps += 1
            if self._steps > MAX_STEPS:
                raise ValueError(f"must not have more than {MAX_STEPS} steps")
            if at == stop:
                return stages
            if self._path[at] == "|":
                stages.append([])
            at += 1

    def _step(self, at: int, stop: int, depth: int) -> tuple[_Step, int]:
        text = self._path[at:stop]
        if text[:1] in ("{", "[", "!"):
            raise ValueError(
                f"uses gjson's `{text[0]}`, which is not supported; where it is part of a key, write `\\` before it"
            )
        if text == "#" or text.startswith(("#.", "#|")):
            return _Each(), at + 1
        if text.startswith("#("):
            return self._query(at, stop, depth)
        modifier = self._modifier(at, stop)
        if modifier:
            return self._modified(modifier, at)
        return self._key(at, stop)

    def _modifier(self, at: int, stop: int) -> str:
        """The name of the modifier that stands here; `@type` is none, but a key."""
        if self._path[at : at + 1] != "@":
            return ""
        end = next((index for index in range(at, stop) if self._path[index] in ".|:"), stop)
        name = self._path[at + 1 : end]
        return name if name in _MODIFIERS or name in _REFUSED_MODIFIERS else ""

    def _modified(self, name: str, at: int) -> tuple[_Step, int]:
        end = at + 1 + len(name)
        if name in _REFUSED_MODIFIERS:
            known = ", ".join(f"`@{each}`" for each in _MODIFIERS)
            raise ValueError(f"uses gjson's `@{name}`, which is not supported; known are {known}")
        if self._path[end : end + 1] == ":":
            raise ValueError(f"gives gjson's `@{name}` an argument, which is not supported")
        return _Modifier(_MODIFIERS[name]), end

    def _key(self, at: int, stop: int) -> tuple[_Step, int]:
        end, wild = at, False
        while end < stop and self._path[end] not in ".|":
            wild = wild or self._path[end] in "*?"
            end += 2 if self._path[end] == "\\" else 1
        if end > stop:
            raise ValueError("must not end with a lone `\\`")
        raw = self._path[at:end]
        if not raw:
            raise ValueError(f"has an empty step in `{self._path}`; write a dot inside a key as `\\.`")
        return (_Glob(compile_glob(raw)) if wild else _Key(_without_escapes(raw))), end

    def _query(self, at: int, stop: int, depth: int) -> tuple[_Step, int]:
        close = self._closing(at + 1, stop)
        fits = self._condition(at + 2, close, depth)
        end = close + 1
        everything = self._path[end:stop].startswith("#")
        end += everything
        if end < stop and self._path[end] not in ".|":
            raise ValueError(f"must have `.` or `|` after the query `{self._path[at:end]}`")
        return _Query(fits, everything), end

    def _condition(self, start: int, end: int, depth: int) -> Callable[[Any], bool]:
        at = self._scan(start, end, lambda place: self._path.startswith(_OPERATORS, place))
        left = self._path[start:at].strip()
        symbol = next((each for each in _OPERATORS if self._path.startswith(each, at, end)), "")
        lookup: Lookup = _this
        if left:
            first = self._path.index(left, start)
            stages = self.stages(depth + 1, first, first + len(left))
            lookup = _pipeline([_chain(stage) for stage in stages])
        if not symbol:
            if not left:
                raise ValueError("must not have an empty query")
            return lambda element: lookup(element) is not MISSING
        literal = self._literal(self._path[at + len(symbol) : end].strip())
        holds = _compare(symbol, literal)
        return lambda element: holds(lookup(element))

    def _literal(self, text: str) -> str:
        if text.startswith("~"):
            raise ValueError("uses gjson's `~` in a query, which is not supported")
        if not text.startswith('"'):
            return text
        if len(text) < 2 or not text.endswith('"'):
            raise ValueError(f"has a text in a query that is not closed: `{text}`")
        return _without_escapes(text[1:-1])

    def _closing(self, opening: int, stop: int) -> int:
        close = self._scan(opening + 1, stop, lambda at: self._path[at] == ")")
        if close == stop:
            raise ValueError(f"has a `(` that is never closed: `{self._path[opening:stop]}`")
        return close

    def _scan(self, at: int, end: int, wanted: Callable[[int], bool]) -> int:
        """The first such place outside of quotes and inner parentheses, else the end."""
        depth, quoted = 0, False
        while at < end:
            character = self._path[at]
            if character == "\\":
                at += 1
            elif character == '"':
                quoted = not quoted
            elif not quoted:
                if depth == 0 and wanted(at):
                    return at
                depth += (character == "(") - (character == ")")
            at += 1
        return end


def _without_escapes(raw: str) -> str:
    parts, at = [], 0
    while at < len(raw):
        at += raw[at] == "\\"
        parts.append(raw[at : at + 1])
        at += 1
    return "".join(parts)
