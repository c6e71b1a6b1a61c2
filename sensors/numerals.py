"""Floats as Go prints them: the fewest digits that tell a number from its neighbours, with or without an exponent."""

from __future__ import annotations

import math

_PRINTED = range(-4, 6)
_LEGIBLE = range(-4, 21)
_JSON = range(-6, 21)
"""Exponents of the first digit with which a number is written without one."""


def printed(value: float) -> str:
    """`%v`: with an exponent below 1e-04 and from 1e+06 on."""
    return _shortest(value, _PRINTED)


def legible(value: float) -> str:
    """For people and their patterns, which Go has no name for: with an exponent below 1e-04 and from 1e+21 on."""
    return _shortest(value, _LEGIBLE)


def in_json(value: float) -> str:
    """As encoding/json writes it: with an exponent below 1e-6 and from 1e+21 on. Not for what JSON cannot write."""
    return _shortest(value, _JSON).replace("e-0", "e-")


def general(value: float, precision: int | None, *, upper: bool) -> str:
    """`%g`; without a precision, `%v`."""
    if precision is None:
        return _shortest(value, _PRINTED, upper=upper)
    if not math.isfinite(value):
        return _not_finite(value)
    wanted = max(precision, 1)
    return _written(value, f"{value:.{wanted - 1}e}", range(-4, wanted), upper=upper)


def _shortest(value: float, plain: range, *, upper: bool = False) -> str:
    return _written(value, repr(value), plain, upper=upper) if math.isfinite(value) else _not_finite(value)


def _not_finite(value: float) -> str:
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"


def _written(value: float, text: str, plain: range, *, upper: bool) -> str:
    digits, exponent = _digits(text)
    sign = "-" if math.copysign(1, value) < 0 else ""
    if exponent not in plain:
        mantissa = digits[0] + (f".{digits[1:]}" if len(digits) > 1 else "")
        return f"{sign}{mantissa}{'E' if upper else 'e'}{'-' if exponent < 0 else '+'}{abs(exponent):02}"
    if exponent < 0:
        return f"{sign}0.{'0' * (-exponent - 1)}{digits}"
    whole, fraction = digits[: exponent + 1].ljust(exponent + 1, "0"), digits[exponent + 1 :]
    return f"{sign}{whole}{f'.{fraction}' if fraction else ''}"


def _digits(text: str) -> tuple[str, int]:
    """The significant digits of what Python wrote, and the exponent of the first one."""
    mantissa, _, exponent = text.lstrip("-").partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = f"{whole}{fraction}"
    significant = digits.lstrip("0")
    if not significant:
        return "0", 0
    zeros = len(digits) - len(significant)
    return significant.rstrip("0"), len(whole) - 1 - zeros + int(exponent or 0)
