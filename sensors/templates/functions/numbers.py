"""sprig's arithmetic: everything becomes an int64 first, and what is not a number is 0."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from decimal import Decimal, DivisionByZero, InvalidOperation, Overflow, localcontext
from functools import reduce
from typing import Any

from sensors.templates.budget import Budget
from sensors.templates.errors import TemplateError
from sensors.templates.printing import text_of
from sensors.templates.values import Int64, Ints

_MAX_NUMERAL = 400
_WORD = 1 << 64
_SIGN = 1 << 63


def wrapped(number: int) -> Int64:
    """An int64 overflows silently, as in Go."""
    return Int64((number + _SIGN) % _WORD - _SIGN)


def to_int(value: Any) -> Int64:
    match value:
        case bool() | int():
            return wrapped(int(value))
        case float():
            return wrapped(int(value)) if math.isfinite(value) and abs(value) < _SIGN else Int64(-_SIGN)
        case str():
            return _parsed_int(value)
    return Int64(0)


def _parsed_int(text: str) -> Int64:
    """As Go's strconv with base 0: `0x10` is 16, and so is `020`."""
    octal = re.fullmatch(r"[+-]?0[0-7]+", text)
    try:
        number = int(text, 8 if octal else 0) if len(text) <= _MAX_NUMERAL and text == text.strip() else 0
    except ValueError:
        return Int64(0)
    return Int64(number if -_SIGN <= number < _SIGN else 0)


def to_float(value: Any) -> float:
    match value:
        case bool() | int() | float():
            return float(value)
        case str() if len(value) <= _MAX_NUMERAL and re.fullmatch(
            r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", value, re.ASCII
        ):
            return float(value)
    return 0.0


def _int(value: Any) -> int:
    return int(to_int(value))


def _atoi(text: str) -> int:
    return int(text) if re.fullmatch(r"[+-]?\d{1,18}", text, re.ASCII) else 0


def _add(*values: Any) -> Int64:
    return wrapped(sum(map(to_int, values)))


def _add1(value: Any) -> Int64:
    return wrapped(to_int(value) + 1)


def _sub(one: Any, other: Any) -> Int64:
    return wrapped(to_int(one) - to_int(other))


def _mul(one: Any, *others: Any) -> Int64:
    return reduce(lambda product, each: wrapped(product * to_int(each)), others, to_int(one))


def _div(one: Any, other: Any) -> Int64:
    """Towards zero, as in Go."""
    dividend, divisor = to_int(one), _divisor(other)
    return wrapped(abs(dividend) // abs(divisor) * (1 if (dividend < 0) == (divisor < 0) else -1))


def _mod(one: Any, other: Any) -> Int64:
    dividend, divisor = to_int(one), _divisor(other)
    return wrapped(abs(dividend) % abs(divisor) * (-1 if dividend < 0 else 1))


def _divisor(value: Any) -> int:
    divisor = to_int(value)
    if divisor == 0:
        raise TemplateError("division by zero")
    return divisor


def _max(value: Any, *values: Any) -> Int64:
    return max(map(to_int, (value, *values)))


def _min(value: Any, *values: Any) -> Int64:
    return min(map(to_int, (value, *values)))


def _maxf(value: Any, *values: Any) -> float:
    return max(map(to_float, (value, *values)))


def _minf(value: Any, *values: Any) -> float:
    return min(map(to_float, (value, *values)))


def _floor(value: Any) -> float:
    number = to_float(value)
    return float(math.floor(number)) if math.isfinite(number) else number


def _ceil(value: Any) -> float:
    number = to_float(value)
    return float(math.ceil(number)) if math.isfinite(number) else number


def _round(value: Any, places: int, up_from: float = 0.5) -> float:
    try:
        power = math.pow(10, places)
        scaled = power * to_float(value)
        rounded = math.ceil(scaled) if math.modf(scaled)[0] >= up_from else math.floor(scaled)
        return rounded / power
    except (OverflowError, ValueError, ZeroDivisionError):
        raise TemplateError("the number is out of range") from None


def _decimals(operate: Callable[[Decimal, Decimal], Decimal], values: Sequence[Any]) -> float:
    """sprig's `…f`: with decimal fractions, so that 0.1 + 0.2 is 0.3."""
    numbers = [Decimal(repr(to_float(value))) for value in values]
    try:
        with localcontext() as context:
            context.prec = 50
            return float(reduce(operate, numbers))
    except (DivisionByZero, InvalidOperation, Overflow, OverflowError):
        raise TemplateError("the result is not a number") from None


def _addf(*values: Any) -> float:
    return _decimals(Decimal.__add__, (0, *values))


def _add1f(value: Any) -> float:
    return _addf(value, 1)


def _subf(value: Any, *values: Any) -> float:
    return _decimals(Decimal.__sub__, (value, *values))


def _mulf(value: Any, *values: Any) -> float:
    return _decimals(Decimal.__mul__, (value, *values))


def _divf(value: Any, *values: Any) -> float:
    return _decimals(Decimal.__truediv__, (value, *values))


def _until(budget: Budget, count: int) -> Ints:
    return _until_step(budget, 0, count, -1 if count < 0 else 1)


def _until_step(budget: Budget, start: int, stop: int, step: int) -> Ints:
    numbers = range(start, stop, step) if step else range(0)
    budget.spend(max(0, (stop - start) // step) if step else 0)  # len() fails on what does not fit into memory
    return Ints(numbers)


def _seq(budget: Budget, *bounds: int) -> str:
    match bounds:
        case (end,):
            start, step = 1, 1 if end >= 1 else -1
        case (start, end):
            step = 1 if end >= start else -1
        case (start, step, end):
            pass
        case _:
            return ""
    beyond = end + (1 if end >= start else -1)
    return " ".join(map(str, _until_step(budget, start, beyond, step)))


def _to_decimal(budget: Budget, value: Any) -> Int64:
    """From a Unix octal."""
    text = text_of(value, budget)
    return Int64(int(text, 8)) if re.fullmatch(r"[+-]?[0-7]{1,20}", text) else Int64(0)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": _add,
    "add1": _add1,
    "sub": _sub,
    "mul": _mul,
    "div": _div,
    "mod": _mod,
    "max": _max,
    "biggest": _max,
    "min": _min,
    "maxf": _maxf,
    "minf": _minf,
    "addf": _addf,
    "add1f": _add1f,
    "subf": _subf,
    "mulf": _mulf,
    "divf": _divf,
    "floor": _floor,
    "ceil": _ceil,
    "round": _round,
    "int": _int,
    "int64": to_int,
    "float64": to_float,
    "atoi": _atoi,
    "toDecimal": _to_decimal,
    "until": _until,
    "untilStep": _until_step,
    "seq": _seq,
}
