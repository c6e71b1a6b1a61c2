"""govaluate's operators. Numbers are 64-bit floats; a value that does not fit is an error, not a conversion.

Only `==`, `!=` and `in` take values of any type: values of different types are not equal, `true` is not 1.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, TypeAlias

from eventbus.errors import EventBusError
from sensors.numerals import legible
from sensors.patterns import Finder, compile_patterns
from sensors.values import shown

MAX_TEXT = 65_536
"""Characters of a text that `+` may make."""

Evaluate: TypeAlias = Callable[[Mapping[str, Any]], Any]
_INT64 = 2**63


class EvaluationError(EventBusError):
    """An expression makes no sense with these values."""


# --- types ----------------------------------------------------------------------------------------------------------


def _number(value: Any, symbol: str) -> float:
    if isinstance(value, float):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return _float(value)
    raise EvaluationError(f"`{symbol}` needs numbers, not {shown(value)}")


def _float(value: int) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _integer(value: Any, symbol: str) -> int:
    number = _number(value, symbol)
    if not -_INT64 <= number < _INT64:  # which is false for NaN, too
        raise EvaluationError(f"`{symbol}` needs 64-bit integers, not {shown(number)}")
    return int(number)


def _bool(value: Any, symbol: str) -> bool:
    if isinstance(value, bool):
        return value
    raise EvaluationError(f"`{symbol}` needs true or false, not {shown(value)}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


# --- comparison -----------------------------------------------------------------------------------------------------


def equal(left: Any, right: Any) -> bool:
    """Equal in type and value, at any depth."""
    if isinstance(left, str):
        return bool(left == right)
    if _is_number(left) and _is_number(right):
        return _number(left, "==") == _number(right, "==")
    if type(left) is not type(right):
        return False
    if isinstance(left, list):
        return len(left) == len(right) and all(map(equal, left, right))
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(equal(value, right[key]) for key, value in left.items())
    return bool(left == right)


def _comparison(symbol: str, compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def operate(left: Any, right: Any) -> bool:
        if isinstance(left, str) and isinstance(right, str):
            return compare(left, right)
        if _is_number(left) and _is_number(right):
            return compare(_number(left, symbol), _number(right, symbol))
        raise EvaluationError(f"`{symbol}` compares two numbers or two texts, not {shown(left)} and {shown(right)}")

    return operate


def _contains(left: Any, right: Any) -> bool:
    if isinstance(right, str) or _is_number(right):
        right = [right]  # `a in ("b")`: parentheses around one value make no list
    if not isinstance(right, list):
        raise EvaluationError(f"`in` needs a list, not {shown(right)}")
    return any(equal(left, each) for each in right)


def search(text: Any, finder: Finder) -> bool:
    if not isinstance(text, str):
        raise EvaluationError(f"`=~` and `!~` look into texts, not into {shown(text)}")
    return finder(text)


def _matches(left: Any, right: Any) -> bool:
    if not isinstance(right, str):
        raise EvaluationError(f"`=~` and `!~` need a pattern, not {shown(right)}")
    return search(left, _finder(right))


@lru_cache(maxsize=256)
def _finder(pattern: str) -> Finder:
    try:
        return compile_patterns([pattern])
    except ValueError as error:
        raise EvaluationError(str(error)) from None


# --- arithmetic -----------------------------------------------------------------------------------------------------


def _add(left: Any, right: Any) -> Any:
    if not (isinstance(left, str) or isinstance(right, str)):
        return _number(left, "+") + _number(right, "+")
    text = _printed(left) + _printed(right)
    if len(text) > MAX_TEXT:
        raise EvaluationError(f"`+` makes a text of more than {MAX_TEXT:,} characters")
    return text


def _printed(value: Any) -> str:
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case int() | float():
            return legible(_number(value, "+"))
        case _:
            raise EvaluationError(f"`+` cannot add {shown(value)} to a text")


def _arithmetic(symbol: str, compute: Callable[[float, float], float]) -> Callable[[Any, Any], float]:
    return lambda left, right: compute(_number(left, symbol), _number(right, symbol))


def _divide(left: float, right: float) -> float:
    if right:
        return left / right
    if left == 0 or math.isnan(left):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1, right)


def _modulo(left: float, right: float) -> float:
    try:
        return math.fmod(left, right)
    except ValueError:
        return math.nan


def _power(left: float, right: float) -> float:
    try:
        return math.pow(left, right)
    except OverflowError:
        return -math.inf if left < 0 and math.fmod(right, 2) else math.inf
    except ValueError:
        return math.nan if left else math.inf


def _bitwise(symbol: str, compute: Callable[[int, int], int]) -> Callable[[Any, Any], float]:
    return lambda left, right: float(compute(_integer(left, symbol), _integer(right, symbol)))


def _shift_left(left: int, right: int) -> int:
    return 0 if _shift(right) >= 64 else (left << right) % 2**64


def _shift_right(left: int, right: int) -> int:
    return 0 if _shift(right) >= 64 else left % 2**64 >> right


def _shift(by: int) -> int:
    if by < 0:
        raise EvaluationError(f"`<<` and `>>` cannot shift by {by}")
    return by


BINARY: Mapping[str, Callable[[Any, Any], Any]] = {
    "==": equal,
    "!=": lambda left, right: not equal(left, right),
    ">": _comparison(">", operator.gt),
    ">=": _comparison(">=", operator.ge),
    "<": _comparison("<", operator.lt),
    "<=": _comparison("<=", operator.le),
    "=~": _matches,
    "!~": lambda left, right: not _matches(left, right),
    "in": _contains,
    "+": _add,
    "-": _arithmetic("-", operator.sub),
    "*": _arithmetic("*", operator.mul),
    "/": _arithmetic("/", _divide),
    "%": _arithmetic("%", _modulo),
    "**": _arithmetic("**", _power),
    "&": _bitwise("&", operator.and_),
    "|": _bitwise("|", operator.or_),
    "^": _bitwise("^", operator.xor),
    "<<": _bitwise("<<", _shift_left),
    ">>": _bitwise(">>", _shift_right),
}
PREFIX: Mapping[str, Callable[[Any], Any]] = {
    "-": lambda value: -_number(value, "-"),
    "!": lambda value: not _bool(value, "!"),
    "~": lambda value: float(~_integer(value, "~")),
}


# --- what does not evaluate both sides -------------------------------------------------------------------------------


def logical_and(left: Evaluate, right: Evaluate) -> Evaluate:
    return lambda values: _bool(left(values), "&&") and _bool(right(values), "&&")


def logical_or(left: Evaluate, right: Evaluate) -> Evaluate:
    return lambda values: _bool(left(values), "||") or _bool(right(values), "||")


def coalesce(left: Evaluate, right: Evaluate) -> Evaluate:
    def evaluate(values: Mapping[str, Any]) -> Any:
        value = left(values)
        return right(values) if value is None else value

    return evaluate


def ternary(condition: Evaluate, then: Evaluate, otherwise: Evaluate) -> Evaluate:
    return lambda values: then(values) if _bool(condition(values), "?") else otherwise(values)
