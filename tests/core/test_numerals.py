"""Floats are printed as Go prints them. What is expected of `%v`, `%G` and JSON was printed by Go."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sensors import numerals

NUMBERS: list[tuple[float, str, str, str]] = [
    (0.0, "0", "0", "0"),
    (-0.0, "-0", "-0", "-0"),
    (1.0, "1", "1", "1"),
    (-2.5, "-2.5", "-2.5", "-2.5"),
    (100000.0, "100000", "100000", "100000"),
    (1000000.0, "1e+06", "1000000", "1000000"),
    (1234567.5, "1.2345675e+06", "1234567.5", "1234567.5"),
    (0.0001, "0.0001", "0.0001", "0.0001"),
    (0.00001, "1e-05", "1e-05", "0.00001"),
    (0.0000015, "1.5e-06", "1.5e-06", "0.0000015"),
    (0.0000001, "1e-07", "1e-07", "1e-7"),
    (1e-10, "1e-10", "1e-10", "1e-10"),
    (1e20, "1e+20", "100000000000000000000", "100000000000000000000"),
    (1.2345678901234568e20, "1.2345678901234568e+20", "123456789012345680000", "123456789012345680000"),
    (1e21, "1e+21", "1e+21", "1e+21"),
    (1.7976931348623157e308, *(("1.7976931348623157e+308",) * 3)),
    (5e-324, *(("5e-324",) * 3)),
]


@pytest.mark.parametrize(("value", "printed", "legible", "in_json"), NUMBERS)
def test_a_float_is_written_with_or_without_an_exponent(value: float, printed: str, legible: str, in_json: str) -> None:
    assert (numerals.printed(value), numerals.legible(value), numerals.in_json(value)) == (printed, legible, in_json)


@pytest.mark.parametrize(("value", "text"), [(math.inf, "+Inf"), (-math.inf, "-Inf"), (math.nan, "NaN")])
def test_what_is_no_number_has_a_name(value: float, text: str) -> None:
    assert numerals.printed(value) == numerals.legible(value) == numerals.general(value, 3, upper=False) == text


@pytest.mark.parametrize(
    ("value", "precision", "text"),
    [
        (1234567.0, None, "1.234567E+06"),
        (1234.5, 3, "1.23E+03"),
        (1234.5, 0, "1E+03"),
        (0.5, 9, "0.5"),
        (99.96, 3, "100"),
    ],
)
def test_a_precision_rounds(value: float, precision: int | None, text: str) -> None:
    assert numerals.general(value, precision, upper=True) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_what_is_written_is_read_as_the_same_number(value: float) -> None:
    for write in (numerals.printed, numerals.legible, numerals.in_json):
        assert float(write(value)) == value
