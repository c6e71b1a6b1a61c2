"""Trigger conditions: `a && (b || c-d)`, checked where they are written and normalised once.

A condition is a monotone boolean function (there is no "not"), so its minimal disjunctive normal form is unique:
two conditions that mean the same have the same `Condition.alternatives`, however they were written. Everything
behind the manifest (match, join, explain, digests) works on these alternatives and never sees the text again.

Inside this module an alternative is an integer with one bit per name, which makes the set algebra cheap.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cached_property, reduce
from operator import or_
from typing import TypeAlias

import msgspec
import pyparsing as pp

from eventbus.errors import ConfigError
from sensors.spec.suggestions import suggest

MAX_LENGTH = 4096
MAX_DEPTH = 50
MAX_ALTERNATIVES = 4096

_Masks: TypeAlias = frozenset[int]
_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_SPACE = " \t\r\n"


class ConditionError(ConfigError):
    """A condition cannot be used. `column` counts from 1."""

    def __init__(self, message: str, column: int) -> None:
        super().__init__(f"{message} (column {column})")
        self.message = message
        self.column = column


class Condition(msgspec.Struct, frozen=True, dict=True):
    """A condition in minimal disjunctive normal form."""

    text: str
    """As it was written; empty where all dependencies are needed."""
    alternatives: tuple[frozenset[str], ...]
    """The condition is true when all dependencies of any one of these are held. Fewest first, then by name."""

    @cached_property
    def names(self) -> frozenset[str]:
        """Every dependency that can make a difference."""
        return frozenset().union(*self.alternatives)

    @cached_property
    def single(self) -> bool:
        """Whether one event is always enough, so that nothing has to be held."""
        return all(len(alternative) == 1 for alternative in self.alternatives)

    def holds(self, held: Collection[str]) -> bool:
        """Whether the condition is true when exactly these dependencies are held."""
        for alternative in self.alternatives:  # fewest first
            if len(alternative) > len(held):
                return False
            if alternative.issubset(held):
                return True
        return False

    def missing(self, held: Collection[str]) -> tuple[frozenset[str], ...]:
        """What each alternative still waits for, fewest first; one empty set when the condition is true."""
        return tuple(sorted((alternative.difference(held) for alternative in self.alternatives), key=_rank))

    def __str__(self) -> str:
        """The canonical text: equal for conditions that mean the same."""
        if len(self.alternatives) == 1:
            return " && ".join(sorted(self.alternatives[0]))
        return " || ".join(_in_parentheses(alternative) for alternative in self.alternatives)


def parse(text: str, names: Collection[str]) -> Condition:
    """Read a condition over these dependency names. An empty text asks for all of them."""
    if not text.strip(_SPACE):
        return Condition(text="", alternatives=(frozenset(names),))
    _check_bounds(text)
    try:
        tree = _GRAMMAR.parse_string(text, parse_all=True)[0]
    except pp.ParseBaseException as error:
        raise _explain(text, error.loc) from None
    ordered = sorted(names)
    masks = tree.normalise({name: 1 << bit for bit, name in enumerate(ordered)})
    alternatives = [frozenset(ordered[bit] for bit in _bits(mask)) for mask in masks]
    return Condition(text=text, alternatives=tuple(sorted(alternatives, key=_rank)))


def _bits(mask: int) -> Iterator[int]:
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def _rank(alternative: frozenset[str]) -> tuple[int, list[str]]:
    return len(alternative), sorted(alternative)


def _in_parentheses(alternative: frozenset[str]) -> str:
    text = " && ".join(sorted(alternative))
    return f"({text})" if len(alternative) > 1 else text


# --- grammar --------------------------------------------------------------------------------------------------------


class _Name(msgspec.Struct, frozen=True):
    name: str
    column: int

    def normalise(self, bits: dict[str, int]) -> _Masks:
        bit = bits.get(self.name)
        if bit is None:
            raise ConditionError(f"there is no dependency `{self.name}`; {suggest(self.name, bits)}", self.column)
        return frozenset((bit,))


class _Chain(msgspec.Struct, frozen=True):
    """Operands between operators of one kind."""

    operands: Sequence[_Name | _Chain]
    combine: Callable[[Sequence[_Masks]], _Masks]
    column: int

    def normalise(self, bits: dict[str, int]) -> _Masks:
        operands = [operand.normalise(bits) for operand in self.operands]
        try:
            return self.combine(operands)
        except OverflowError:
            raise ConditionError(
                f"the condition expands to more than {MAX_ALTERNATIVES:,} alternatives; split it over several triggers",
                self.column,
            ) from None


def _grammar() -> pp.ParserElement:
    """`-` instead of `+` means: no way back from here. The error is then found where it is, not at the beginning."""
    expression = pp.Forward()
    name = pp.Regex(_NAME.pattern).set_parse_action(lambda _, loc, tokens: _Name(tokens[0], loc + 1))
    atom = name | pp.Suppress("(") - expression - pp.Suppress(")")
    conjunction = atom + pp.ZeroOrMore(pp.Suppress("&&") - atom)
    disjunction = conjunction + pp.ZeroOrMore(pp.Suppress("||") - conjunction)
    conjunction.set_parse_action(_chain_of(_product))
    disjunction.set_parse_action(_chain_of(_sum))
    expression <<= disjunction
    # Otherwise tabs are expanded first, and columns count something that nobody wrote.
    return expression.parse_with_tabs()


def _chain_of(combine: Callable[[Sequence[_Masks]], _Masks]) -> Callable[[pp.ParseResults], _Name | _Chain]:
    def action(tokens: pp.ParseResults) -> _Name | _Chain:
        operands: list[_Name | _Chain] = list(tokens)
        return operands[0] if len(operands) == 1 else _Chain(operands, combine, operands[0].column)

    return action


# --- normal form ----------------------------------------------------------------------------------------------------


def _sum(operands: Sequence[_Masks]) -> _Masks:
    return _without_absorbed(frozenset().union(*operands))


def _product(operands: Sequence[_Masks]) -> _Masks:
    """Small operands first: single names then cost next to nothing, however large their neighbours are."""
    return reduce(_times, sorted(operands, key=len))


def _times(left: _Masks, right: _Masks) -> _Masks:
    """All unions of one alternative of each side."""
    if len(left) * len(right) <= MAX_ALTERNATIVES and not reduce(or_, left) & reduce(or_, right):
        return frozenset(one | other for one in left for other in right)  # no name in common: nothing to absorb
    common = left & right  # an alternative of both sides is its own union, and absorbs all others it is part of
    unions = set(common)
    for one in left - common:
        unions.update(one | other for other in right - common)
        if len(unions) > MAX_ALTERNATIVES:
            raise OverflowError
    return _without_absorbed(unions)


def _without_absorbed(masks: Iterable[int]) -> _Masks:
    """`a || (a && b)` is `a`: drop every alternative that contains a smaller one."""
    by_size: dict[int, list[int]] = {}
    for mask in masks:
        by_size.setdefault(mask.bit_count(), []).append(mask)
    kept: list[int] = []
    for size in sorted(by_size):
        kept += [mask for mask in by_size[size] if not _contains_any(mask, kept)]
    if len(kept) > MAX_ALTERNATIVES:
        raise OverflowError
    return frozenset(kept)


def _contains_any(mask: int, others: Iterable[int]) -> bool:
    return any(other & mask == other for other in others)


# --- errors ---------------------------------------------------------------------------------------------------------

_WORD = re.compile(rf"{_NAME.pattern}|&+|\|+|.", re.DOTALL)
_OPERATORS = "write `&&` or `||`"
_MEANT = {"and": "write `&&`", "or": "write `||`", "&": "write `&&`", "|": "write `||`"}


def _check_bounds(text: str) -> None:
    if len(text) > MAX_LENGTH:
        raise ConditionError(f"the condition is longer than {MAX_LENGTH:,} characters", MAX_LENGTH + 1)
    depth = 0
    for index, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth > MAX_DEPTH:
            raise ConditionError(f"parentheses are nested more than {MAX_DEPTH} deep", index + 1)


def _explain(text: str, loc: int) -> ConditionError:
    """What is wrong at the place where the grammar could not go on."""
    rest = text[loc:].lstrip(_SPACE)
    column = len(text) - len(rest) + 1
    before = text[: column - 1].rstrip(_SPACE)
    if before and before[-1] not in "(&|":
        return _no_operator(before, rest, column)
    return _no_operand(before, rest, column)


def _no_operator(before: str, rest: str, column: int) -> ConditionError:
    """An operand is complete; an operator, `)` or the end could have followed."""
    if not rest:
        return ConditionError("this `(` is never closed", _last_open(before) + 1)
    if rest[0] == ")":
        return ConditionError("this `)` was never opened", column)
    word = _first_word(rest)
    if word.lower() not in _MEANT and (word == "(" or _NAME.fullmatch(word)):
        return ConditionError(f"an operator is missing before `{word}`; {_OPERATORS}", column)
    return ConditionError(f"`{word}` is not an operator; {_MEANT.get(word.lower(), _OPERATORS)}", column)


def _no_operand(before: str, rest: str, column: int) -> ConditionError:
    """A name or `(` had to follow."""
    if rest.startswith("!"):
        return ConditionError("`!` is not supported: a condition cannot be negated", column)
    if rest.startswith(")") and before.endswith("("):
        return ConditionError("empty parentheses", len(before))
    if rest and rest[0] not in "&|)":
        return ConditionError(f"`{rest[0]}` is not allowed in a condition", column)
    if not before:
        return ConditionError(f"a dependency name or `(` is missing before `{_first_word(rest)}`", column)
    last = "(" if before.endswith("(") else before[-2:]
    return ConditionError(f"a dependency name or `(` is missing after `{last}`", column)


def _first_word(text: str) -> str:
    found = _WORD.match(text)
    return found.group() if found else ""


def _last_open(text: str) -> int:
    open_at = []
    for index, character in enumerate(text):
        if character == "(":
            open_at.append(index)
        elif character == ")":
            open_at.pop()
    return open_at[-1]


_GRAMMAR = _grammar()
