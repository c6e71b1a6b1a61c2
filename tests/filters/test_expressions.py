"""Expressions: govaluate's language, compared with a second evaluator; and what nobody may do with it."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sensors.expressions import ExpressionError, parse
from sensors.operators import EvaluationError

UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
THOROUGH = settings(UNHURRIED, max_examples=500)
VALUES: dict[str, Any] = {
    "a": "b", "n": 10, "f": 2.5, "yes": True, "no": False, "null": None, "list": [1, "x", True], "o": {"k": [1]},
    "x y": 3, "ü1_": "umlaut", "big": 2**70, "pattern": "^b$",
}  # fmt: skip


def _value(text: str) -> Any:
    return parse(text).evaluate(VALUES)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        # literals and names
        ("1", 1.0), (".5", 0.5), ("1e3", 1000.0), ("0x1F", 31.0), ("true", True), ("'x'", "x"), (r"'it\'s'", "it's"),
        ('"a\\\\b"', "a\\b"), ("[x y]", 3), ("ü1_", "umlaut"), ("a", "b"),
        # arithmetic: floats, as in Go
        ("n + 1", 11.0), ("n - f", 7.5), ("n * 2", 20.0), ("n / 4", 2.5), ("-7 % 3", -1.0), ("2 ** 10", 1024.0),
        ("1 / 0", math.inf), ("-1 / 0", -math.inf), ("9 ** 9 ** 9 ** 9", math.inf), ("(-3) ** 1001", -math.inf),
        ("big == 2 ** 70", True), ("0 ** -1", math.inf),
        # bits
        ("6 & 3", 2.0), ("6 | 3", 7.0), ("6 ^ 3", 5.0), ("~0", -1.0), ("1 << 4", 16.0), ("256 >> 4", 16.0),
        ("1 << 64", 0.0), ("1 >> 99", 0.0), ("2.9 & 3", 2.0),
        # texts
        ("a + 'c'", "bc"), ("a + 1", "b1"), ("1.5 + a", "1.5b"), ("a + true", "btrue"), ("'' + 1000000", "1000000"),
        ("'' + 10 ** 21", "1e+21"),
        # comparison
        ("n == 10", True), ("n == '10'", False), ("yes == 1", False), ("1 == yes", False), ("null == null", True),
        ("null == false", False), ("list == (1, 'x', true)", True), ("list == (1, 'x', 1)", False), ("n != '10'", True),
        ("o == o", True), ("'a' < 'b'", True), ("n >= 10", True), ("n <= 9.5", False),
        ("'2024-01-01' < '2024-02-01'", True),
        # patterns
        ("a =~ '^b$'", True), ("a !~ '^b$'", False), ("'abc' =~ 'b'", True), ("a =~ pattern", True),
        ("a =~ '^' + a", True), ("a !~ 'x' + 'y'", True),
        # lists
        ("n in (1, 10)", True), ("n IN (1, 2)", False), ("a in ('b')", True), ("'x' in list", True),
        ("1 in list", True), ("yes in (1, 2)", False),
        # logic
        ("yes && no", False), ("yes || no", True), ("!no", True), ("no && (1 > 'x')", False),
        ("yes || (1 > 'x')", True), ("yes ? 1 : 2", 1.0), ("no ? 1 : 2", 2.0), ("no ? 1", None),
        ("no ? 1 : yes ? 2 : 3", 2.0),
        ("null ?? 'd'", "d"), ("a ?? 'd'", "b"), ("null ?? null ?? 3", 3.0), ("no ? 1 : null ?? 4", 4.0),
        # precedence
        ("1 + 2 * 3", 7.0), ("(1 + 2) * 3", 9.0), ("2 ** 3 ** 2", 64.0), ("-2 ** 2", 4.0), ("8 / 4 / 2", 1.0),
        ("1 << 2 + 1", 8.0), ("1 | 2 == 3", True), ("1 + 1 == 2 && 2 > 1", True), ("no && no || yes", True),
        ("yes || no && no", True), ("!no && yes", True), ("10 - 2 - 3", 5.0),
    ],
)  # fmt: skip
def test_an_expression_means_what_govaluate_says(text: str, value: object) -> None:
    found = _value(text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("n > 'x'", '`>` compares two numbers or two texts, not 10 and "x"'),
        ("yes < 1", "compares"),
        ("a - 1", '`-` needs numbers, not "b"'),
        ("yes + 1", "`+` needs numbers, not true"),
        ("null + 'x'", "cannot add null"),
        ("!n", "`!` needs true or false, not 10"),
        ("n && yes", "`&&` needs true or false"),
        ("no || n", "`||` needs true or false"),
        ("n ? 1 : 2", "`?` needs true or false"),
        ("n in yes", "`in` needs a list, not true"),
        ("n =~ 'x'", "look into texts"),
        ("a =~ n", "need a pattern"),
        ("a =~ '(' + ''", "not a regular expression"),
        ("1 << -1", "cannot shift by -1"),
        ("10 ** 20 & 1", "64-bit"),
        ("~(1/0)", "64-bit"),
    ],
)
def test_values_that_do_not_fit_are_an_error_with_the_reason(text: str, message: str) -> None:
    with pytest.raises(EvaluationError) as caught:
        _value(text)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("", 1, "empty"),
        ("a ==", 5, "a value is missing before the end"),
        ("a = 1", 3, "write `==`"),
        ("a b", 3, "an operator is missing before `b`"),
        ("a and b", 3, "write `&&`"),
        ("(a", 1, "never closed"),
        ("a)", 2, "never opened"),
        ("()", 2, "a value is missing"),
        ("a, b", 2, "parentheses"),
        ("a : b", 3, "`:` without `?`"),
        ("'abc", 1, "never closed"),
        ("a == [b", 6, "never closed"),
        ("len(a)", 1, "no functions"),
        ("a.__class__", 1, "reaches into a value"),
        ("a =~ '('", 6, "missing )"),
        ("a\t$ b", 3, "`$` is not allowed"),
        ("lambda: 1", 7, "`:` without `?`"),
        ("__import__('os')", 1, "no functions"),
    ],
)
def test_a_mistake_is_told_with_its_column(text: str, column: int, message: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        parse(text)
    assert caught.value.column == column
    assert message in caught.value.message


# --- bounds ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(" * 500 + "a" + ")" * 500, "nested more than"),
        ("!" * 500 + "a", "nested more than"),
        ("a ? " * 500 + "a", "nested more than"),
        ("+".join("a" * 252), "more than 250 operators"),
        ("(" + ",".join("a" * 252) + ")", "more than 250 operators"),
        ("x" * 4097, "longer than 4,096"),
        ("a =~ '" + "(x{1000}){1000}" + "'", "repetition"),
        ("a =~ '" + "x" * 1001 + "'", "longer than 1,000"),
    ],
)
def test_an_expression_that_is_too_much_is_refused(text: str, message: str) -> None:
    with pytest.raises(ExpressionError, match=message):
        parse(text)


def test_the_largest_expressions_still_evaluate() -> None:
    assert parse("+".join("a" * 251)).evaluate({"a": 1}) == 251
    assert parse("(" * 59 + "a" + ")" * 59).evaluate({"a": 1}) == 1


def test_a_text_does_not_grow_without_end() -> None:
    with pytest.raises(EvaluationError, match="more than 65,536 characters"):
        parse("+".join("a" * 70)).evaluate({"a": "x" * 1000})


def test_a_catastrophic_pattern_takes_linear_time() -> None:
    assert parse("a =~ '(x+x+)+y'").evaluate({"a": "x" * 200_000}) is False
    assert parse("a =~ p").evaluate({"a": "x" * 200_000, "p": "(x+x+)+y"}) is False


def test_values_nested_deeply_are_an_error_and_not_a_crash() -> None:
    one: list[Any] = []
    other: list[Any] = []
    for _ in range(50_000):
        one, other = [one], [other]
    with pytest.raises(EvaluationError, match="nested too deeply"):
        parse("a == b").evaluate({"a": one, "b": other})


# --- properties -----------------------------------------------------------------------------------------------------


class Failed(Exception):
    """The second evaluator's only error."""


def _numeric(compute: Callable[[float, float], object]) -> Callable[[Any, Any], object]:
    def operate(left: Any, right: Any) -> object:
        if isinstance(left, float) and isinstance(right, float):
            return compute(left, right)
        raise Failed

    return operate


def _plus(left: Any, right: Any) -> object:
    if isinstance(left, str) or isinstance(right, str):
        return _shown(left) + _shown(right)
    return _numeric(operator.add)(left, right)


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value).removesuffix(".0")


def _less(left: Any, right: Any) -> bool:
    if type(left) is type(right) and isinstance(left, str | float):
        return bool(left < right)
    raise Failed


def _logic(decisive: bool) -> Callable[[Any, Any], object]:
    """Right sides are values here, evaluated already; govaluate would not look at them."""

    def operate(left: Any, right: Any) -> object:
        if not isinstance(left, bool):
            raise Failed
        if left is decisive:
            return left
        if not isinstance(right, bool):
            raise Failed
        return right

    return operate


_OPERATORS: dict[str, Callable[[Any, Any], object]] = {
    "+": _plus,
    "-": _numeric(operator.sub),
    "*": _numeric(operator.mul),
    "<": _less,
    "==": lambda left, right: type(left) is type(right) and left == right,
    "!=": lambda left, right: not (type(left) is type(right) and left == right),
    "&&": _logic(False),
    "||": _logic(True),
}
_TREES = st.recursive(
    st.sampled_from(["true", "false", "0", "1", "2.5", "'a'", "'b'"]),
    lambda inner: st.tuples(inner, st.sampled_from(list(_OPERATORS)), inner),
    max_leaves=12,
)


def _rendered(tree: Any) -> str:
    if isinstance(tree, str):
        return tree
    left, symbol, right = tree
    return f"({_rendered(left)} {symbol} {_rendered(right)})"


def _second_opinion(tree: Any) -> Any:
    if isinstance(tree, str):
        return tree == "true" if tree in ("true", "false") else tree[1:-1] if tree[0] == "'" else float(tree)
    left, symbol, right = tree
    value = _second_opinion(left)
    if symbol in ("&&", "||") and value is (symbol == "||"):
        return value
    return _OPERATORS[symbol](value, _second_opinion(right))


@THOROUGH
@given(_TREES)
def test_a_second_evaluator_agrees(tree: object) -> None:
    try:
        wanted = _second_opinion(tree)
    except Failed:
        with pytest.raises(EvaluationError):
            parse(_rendered(tree)).evaluate({})
        return
    found = parse(_rendered(tree)).evaluate({})
    assert (type(found), found) == (type(wanted), wanted)


@UNHURRIED
@given(st.lists(st.integers(0, 9), min_size=2, max_size=8), st.lists(st.sampled_from("+-*"), min_size=7, max_size=7))
def test_without_parentheses_precedence_is_pythons(numbers: list[int], symbols: list[str]) -> None:
    text = str(numbers[0]) + "".join(f" {symbol} {n}" for symbol, n in zip(symbols, numbers[1:], strict=False))
    assert parse(text).evaluate({}) == eval(text)  # noqa: S307 - digits and operators


_PIECES = ("a", "1", "'x'", "(", ")", ",", "+", "-", "**", "==", "&&", "||", "!", "~", "?", ":", "??", "in", "=~",
           "[b]", "<<", "true", " ", "'", "[", ".", "0x", "\\", "é")  # fmt: skip


@THOROUGH
@given(
    st.text(max_size=20) | st.lists(st.sampled_from(_PIECES), max_size=12).map("".join),
    st.sampled_from([None, True, 0, 1.5, 2**80, "x", [1], {"a": 1}]),
)
def test_any_text_is_refused_or_evaluated(text: str, value: object) -> None:
    try:
        expression = parse(text)
    except ExpressionError as error:
        column = error.column
    else:
        column = 1
        with suppress(EvaluationError):
            expression.evaluate(dict.fromkeys(expression.names, value))
    assert 1 <= column <= len(text) + 1
