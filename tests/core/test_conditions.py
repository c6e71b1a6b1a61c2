"""Conditions mean what a plain truth table says, have one normal form, and fail at the right column."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sensors.conditions import MAX_ALTERNATIVES, MAX_DEPTH, MAX_LENGTH, Condition, ConditionError, parse

NAMES = ("a", "b", "c-d", "e_f", "g.h")
Truth = Callable[[frozenset[str]], bool]
UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # the machine may be busy


def _all_subsets(names: tuple[str, ...] = NAMES) -> list[frozenset[str]]:
    return [frozenset(some) for size in range(len(names) + 1) for some in combinations(names, size)]


@st.composite
def _expressions(draw: st.DrawFn, depth: int = 4) -> tuple[str, Truth]:
    """A condition's text and, independently of the parser, what it means."""
    space = draw(st.sampled_from(["", " ", "  ", "\n", "\t"]))
    if depth == 0 or draw(st.booleans()):
        name = draw(st.sampled_from(NAMES))
        return f"{space}{name}{space}", lambda held: name in held
    parts = draw(st.lists(_expressions(depth - 1), min_size=1, max_size=3))
    meanings = [meaning for _, meaning in parts]
    operator = draw(st.sampled_from(["&&", "||"]))
    text = f"{space}({operator.join(text for text, _ in parts)})"
    if operator == "&&":
        return text, lambda held: all(meaning(held) for meaning in meanings)
    return text, lambda held: any(meaning(held) for meaning in meanings)


@UNHURRIED
@given(_expressions())
def test_a_condition_holds_exactly_when_its_text_is_true(expression: tuple[str, Truth]) -> None:
    text, meaning = expression
    condition = parse(text, NAMES)
    assert [condition.holds(held) for held in _all_subsets()] == [meaning(held) for held in _all_subsets()]


@UNHURRIED
@given(_expressions())
def test_the_alternatives_are_the_minimal_sets_for_which_the_text_is_true(expression: tuple[str, Truth]) -> None:
    text, meaning = expression
    true_sets = [held for held in _all_subsets() if meaning(held)]
    minimal = [held for held in true_sets if not any(other < held for other in true_sets)]
    condition = parse(text, NAMES)
    assert sorted(map(sorted, condition.alternatives)) == sorted(map(sorted, minimal))
    assert condition.names == frozenset().union(*minimal)
    assert condition.single == all(len(alternative) == 1 for alternative in minimal)


@UNHURRIED
@given(_expressions(), _expressions())
def test_conditions_that_mean_the_same_have_the_same_canonical_text(
    one: tuple[str, Truth], other: tuple[str, Truth]
) -> None:
    first, second = parse(one[0], NAMES), parse(other[0], NAMES)
    same = [one[1](held) for held in _all_subsets()] == [other[1](held) for held in _all_subsets()]
    assert (str(first) == str(second)) == same
    assert (first.alternatives == second.alternatives) == same


@UNHURRIED
@given(_expressions())
def test_the_canonical_text_reads_back_as_itself(expression: tuple[str, Truth]) -> None:
    condition = parse(expression[0], NAMES)
    again = parse(str(condition), NAMES)
    assert again.alternatives == condition.alternatives
    assert str(again) == str(condition)


@UNHURRIED
@given(_expressions(), st.sets(st.sampled_from(NAMES)))
def test_what_is_missing_is_just_what_makes_an_alternative_complete(
    expression: tuple[str, Truth], held: set[str]
) -> None:
    condition = parse(expression[0], NAMES)
    missing = condition.missing(held)
    assert len(missing) == len(condition.alternatives)
    assert [len(each) for each in missing] == sorted(len(each) for each in missing)
    assert all(condition.holds(held | each) for each in missing)
    assert all(not each & held for each in missing)
    assert condition.holds(held) == (not missing[0])


@settings(UNHURRIED, max_examples=500)
@given(st.text(alphabet="ab-(&|)! \t\n\r\x0b\xa0\u2028é$,", max_size=12))
def test_whatever_is_written_the_answer_is_a_condition_or_an_error_with_its_place(text: str) -> None:
    column = 1
    try:
        parse(text, NAMES)
    except ConditionError as error:
        column = error.column
    assert 1 <= column <= len(text) + 1


@pytest.mark.parametrize(
    ("text", "canonical", "single"),
    [
        ("a", "a", True),
        ("b || a", "a || b", True),
        ("a||b&&c-d", "a || (b && c-d)", False),
        ("(a || b) && (a || c-d)", "a || (b && c-d)", False),
        ("a || (a && b)", "a", True),
        ("((((a))))", "a", True),
        ("g.h && e_f && a && a", "a && e_f && g.h", False),
    ],
)
def test_normal_form_examples(text: str, canonical: str, single: bool) -> None:
    condition = parse(text, NAMES)
    assert str(condition) == canonical
    assert condition.single is single
    assert condition.text == text


@pytest.mark.parametrize("text", ["", " ", "\n\t"])
def test_an_empty_condition_asks_for_all_dependencies(text: str) -> None:
    assert parse(text, NAMES) == Condition(text="", alternatives=(frozenset(NAMES),))


@pytest.mark.parametrize(
    ("text", "message", "column"),
    [
        ("(a", "this `(` is never closed", 1),
        ("a && (b || (a)", "this `(` is never closed", 6),
        ("(a || (b", "this `(` is never closed", 7),
        ("(", "a dependency name or `(` is missing after `(`", 2),
        ("a)", "this `)` was never opened", 2),
        ("(a)) && b", "this `)` was never opened", 4),
        ("()", "empty parentheses", 1),
        ("a && ( )", "empty parentheses", 6),
        ("a b", "an operator is missing before `b`; write `&&` or `||`", 3),
        ("a (b)", "an operator is missing before `(`; write `&&` or `||`", 3),
        ("(a)b", "an operator is missing before `b`; write `&&` or `||`", 4),
        ("a &&", "a dependency name or `(` is missing after `&&`", 5),
        ("a && && b", "a dependency name or `(` is missing after `&&`", 6),
        ("(a ||) && b", "a dependency name or `(` is missing after `||`", 6),
        ("|| a", "a dependency name or `(` is missing before `||`", 1),
        ("a and b", "`and` is not an operator; write `&&`", 3),
        ("a OR b", "`OR` is not an operator; write `||`", 3),
        ("a & b", "`&` is not an operator; write `&&`", 3),
        ("a | b", "`|` is not an operator; write `||`", 3),
        ("a, b", "`,` is not an operator; write `&&` or `||`", 2),
        ("!a", "`!` is not supported: a condition cannot be negated", 1),
        ("a && !b", "`!` is not supported: a condition cannot be negated", 6),
        ("a && $b", "`$` is not allowed in a condition", 6),
        ("a\t&&\tp\tq", "an operator is missing before `q`; write `&&` or `||`", 8),
        ("a\xa0&& b", "`\xa0` is not an operator; write `&&` or `||`", 2),
        ("a &&\u2028b", "`\u2028` is not allowed in a condition", 5),
        ("a &&\n  c-e", "there is no dependency `c-e`; did you mean `c-d`?", 8),
        ("zzz", "there is no dependency `zzz`; known are `a`, `b`, `c-d`, `e_f`, `g.h`", 1),
    ],
)
def test_a_bad_condition_says_what_is_wrong_and_where(text: str, message: str, column: int) -> None:
    with pytest.raises(ConditionError) as caught:
        parse(text, NAMES)
    assert (caught.value.message, caught.value.column) == (message, column)
    assert str(caught.value) == f"{message} (column {column})"


def test_a_long_condition_is_refused() -> None:
    fits = "a" + " " * (MAX_LENGTH - 1)
    assert str(parse(fits, NAMES)) == "a"
    with pytest.raises(ConditionError, match="longer than 4,096 characters"):
        parse(fits + " ", NAMES)


def test_deep_nesting_is_refused() -> None:
    assert str(parse("(" * MAX_DEPTH + "a" + ")" * MAX_DEPTH, NAMES)) == "a"
    with pytest.raises(ConditionError, match="nested more than 50 deep") as caught:
        parse("(" * (MAX_DEPTH + 1) + "a" + ")" * (MAX_DEPTH + 1), NAMES)
    assert caught.value.column == MAX_DEPTH + 1


def _pairs(count: int) -> tuple[str, list[str]]:
    names = [f"{side}{number}" for number in range(count) for side in "lr"]
    return " && ".join(f"(l{number} || r{number})" for number in range(count)), names


def test_a_condition_may_have_4096_alternatives_and_no_more() -> None:
    text, names = _pairs(12)
    assert len(parse(text, names).alternatives) == MAX_ALTERNATIVES
    text, names = _pairs(13)
    with pytest.raises(ConditionError, match="expands to more than 4,096 alternatives; split it over several triggers"):
        parse(text, names)


def test_alternatives_are_counted_over_the_whole_condition() -> None:
    text, names = _pairs(12)
    with pytest.raises(ConditionError, match="expands to more than 4,096 alternatives"):
        parse(f"({text}) || one-more", [*names, "one-more"])


def test_a_condition_that_would_explode_is_refused_before_it_does() -> None:
    text, names = _pairs(12)
    crossed = " && ".join(f"(l{number} || r{(number + 1) % 12})" for number in range(12))
    with pytest.raises(ConditionError, match="expands to more than 4,096 alternatives"):
        parse(f"({text}) && ({crossed})", names)


def test_a_repeated_factor_does_not_count_against_the_limit() -> None:
    names = [f"n{number}" for number in range(200)]
    factor = f"({' || '.join(names)})"
    assert len(parse(f"{factor} && {factor}", names).alternatives) == len(names)
