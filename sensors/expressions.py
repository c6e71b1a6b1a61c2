"""Expressions of filters: `amount > 100 && currency in ("EUR", "USD")`, in govaluate's language.

Text is cut into tokens by a pyparsing grammar and put together by precedence. (Eleven levels of precedence as rules of
that grammar would go through a thousand Python frames for twenty parentheses.) The result is a tree of plain functions:
nothing is ever handed to Python's `eval`, and no name means anything but a field of the filter.

Bounded: the length of the text, its depth and number of operators, the texts it makes; numbers are floats and become
infinite where others would grow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec
import pyparsing as pp

from eventbus.errors import ConfigError
from sensors.operators import (
    BINARY,
    PREFIX,
    EvaluationError,
    coalesce,
    logical_and,
    logical_or,
    search,
    ternary,
)
from sensors.patterns import compile_patterns

MAX_LENGTH = 4096
MAX_DEPTH = 60
MAX_OPERATORS = 250
"""Also bounds how deep the functions call each other."""

Values: TypeAlias = Mapping[str, Any]
_Node: TypeAlias = Callable[[Values], Any]


class ExpressionError(ConfigError):
    """An expression cannot be used. `column` counts from 1."""

    def __init__(self, message: str, column: int) -> None:
        super().__init__(f"{message} (column {column})")
        self.message = message
        self.column = column


class Expression(msgspec.Struct, frozen=True):
    """A compiled expression."""

    text: str
    names: Mapping[str, int]
    """The variables in it, with the column where each stands first."""
    _evaluate: _Node

    def evaluate(self, values: Values) -> Any:
        """Raises `EvaluationError` where a value does not fit its operator."""
        try:
            return self._evaluate(values)
        except RecursionError:
            raise EvaluationError("a value is nested too deeply") from None


def parse(text: str, *, reaching: bool = False) -> Expression:
    """`reaching`: a name may be a path, such as `body.id`. Raises `ExpressionError`."""
    if len(text) > MAX_LENGTH:
        raise ExpressionError(f"the expression is longer than {MAX_LENGTH:,} characters", MAX_LENGTH + 1)
    parser = _Parser(_tokens(text), len(text.rstrip()) + 1, reaching=reaching)
    return Expression(text, parser.names, parser.whole())


# --- tokens ---------------------------------------------------------------------------------------------------------


class _Token(msgspec.Struct, frozen=True):
    kind: str
    text: str
    column: int


_SYMBOLS = "|| && == != >= <= =~ !~ ** << >> ?? ? : , ( ) + - * / % & | ^ ~ ! > <"


def _token(kind: str, element: pp.ParserElement) -> pp.ParserElement:
    return element.set_parse_action(lambda _, at, found: _Token(kind, found[0], at + 1))


_GRAMMAR = pp.OneOrMore(
    _token("number", pp.Regex(r"0[xX][0-9a-fA-F]+|(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?"))
    | _token("text", pp.Regex(r"'(?:[^'\\]|\\.)*'|" + r'"(?:[^"\\]|\\.)*"'))
    | _token("bracketed", pp.Regex(r"\[(?:[^\]\\]|\\.)*\]"))
    | _token("name", pp.Regex(r"[^\W\d]\w*(?:\.\w+)*"))
    | _token("symbol", pp.one_of(_SYMBOLS))
).parse_with_tabs()


def _tokens(text: str) -> Sequence[_Token]:
    if not text.strip():
        raise ExpressionError("the expression is empty", 1)
    try:
        return list(_GRAMMAR.parse_string(text, parse_all=True))
    except pp.ParseBaseException as error:
        rest = text[error.loc :].lstrip()
        column = len(text) - len(rest) + 1
        if rest[:1] in ("'", '"', "["):
            raise ExpressionError(f"this `{rest[0]}` is never closed", column) from None
        if rest[:1] == "=":
            raise ExpressionError("`=` is not an operator; write `==`", column) from None
        raise ExpressionError(f"`{rest[:1]}` is not allowed in an expression", column) from None


# --- grammar --------------------------------------------------------------------------------------------------------

_LOWEST, _PREFIXED = 1, 10
_PRECEDENCE = {
    **dict.fromkeys(("?", "??"), _LOWEST),
    "||": 2,
    "&&": 3,
    **dict.fromkeys(("==", "!=", ">", ">=", "<", "<=", "=~", "!~", "in"), 4),
    **dict.fromkeys(("&", "|", "^"), 5),
    **dict.fromkeys(("<<", ">>"), 6),
    **dict.fromkeys(("+", "-"), 7),
    **dict.fromkeys(("*", "/", "%"), 8),
    "**": 9,
}
_MEANT = {"and": "&&", "or": "||", "not": "!"}
_END = "the end"


class _Parser:
    """Puts tokens together: an operator takes all to its right that binds tighter."""

    def __init__(self, tokens: Sequence[_Token], end: int, *, reaching: bool) -> None:
        self._reaching = reaching
        self._tokens: Iterator[_Token] = iter(tokens)
        self._end = _Token("end", _END, end)
        self._next = self._end
        self._taken = 0
        self._operators = 0
        self._depth = 0
        self.names: dict[str, int] = {}
        self._advance()

    def whole(self) -> _Node:
        node = self._expression(_LOWEST)
        if self._next.kind != "end":
            raise self._no_operator(self._next)
        return node

    def _advance(self) -> _Token:
        token, self._next = self._next, next(self._tokens, self._end)
        self._taken += 1
        return token

    def _expression(self, least: int) -> _Node:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise ExpressionError(f"nested more than {MAX_DEPTH} deep", self._next.column)
        left = self._operand()
        while (precedence := _PRECEDENCE.get(self._operator(), 0)) >= least:
            left = self._combined(left, self._advance(), precedence)
        self._depth -= 1
        return left

    def _operator(self) -> str:
        token = self._next
        if token.kind == "name" and token.text.lower() == "in":
            return "in"
        return token.text if token.kind == "symbol" else ""

    def _combined(self, left: _Node, token: _Token, precedence: int) -> _Node:
        self._count(token)
        symbol = token.text.lower()
        if symbol == "?":
            return self._ternary(left)
        first, taken = self._next, self._taken
        right = self._expression(precedence + 1)
        literal = first.kind == "text" and self._taken == taken + 1
        match symbol:
            case "&&":
                return logical_and(left, right)
            case "||":
                return logical_or(left, right)
            case "??":
                return coalesce(left, right)
            case "=~" | "!~" if literal:
                return self._search(left, first, found=symbol == "=~")
        operate = BINARY[symbol]
        return lambda values: operate(left(values), right(values))

    def _ternary(self, condition: _Node) -> _Node:
        then = self._expression(_LOWEST)
        otherwise: _Node = lambda _: None  # noqa: E731 - govaluate's `a ? b` is null where `a` is false
        if self._next.text == ":" and self._next.kind == "symbol":
            self._advance()
            otherwise = self._expression(_LOWEST)
        return ternary(condition, then, otherwise)

    def _search(self, left: _Node, pattern: _Token, *, found: bool) -> _Node:
        """A pattern that stands in the expression is compiled with it, and a mistake in it found now."""
        try:
            finder = compile_patterns([_unquoted(pattern.text)])
        except ValueError as error:
            raise ExpressionError(str(error), pattern.column) from None
        return lambda values: search(left(values), finder) is found

    # --- operands ---------------------------------------------------------------------------------------------------

    def _operand(self) -> _Node:
        token = self._advance()
        match token.kind:
            case "number":
                return _constant(float(int(token.text, 16)) if token.text[:2] in ("0x", "0X") else float(token.text))
            case "text":
                return _constant(_unquoted(token.text))
            case "bracketed":
                return self._variable(_unquoted(token.text), token.column)
            case "name":
                return self._named(token)
            case "symbol" if token.text == "(":
                return self._parentheses(token)
            case "symbol" if token.text in PREFIX:
                self._count(token)
                operate, operand = PREFIX[token.text], self._expression(_PREFIXED)
                return lambda values: operate(operand(values))
        raise ExpressionError(f"a value is missing before {_quoted(token)}", token.column)

    def _named(self, token: _Token) -> _Node:
        if token.text in ("true", "false"):
            return _constant(token.text == "true")
        if self._next.text == "(" and self._next.kind == "symbol":
            raise ExpressionError(f"`{token.text}(…)`: there are no functions", token.column)
        if "." in token.text and not self._reaching:
            message = f"`{token.text}` reaches into a value: let a field have that path, or write `[{token.text}]`"
            raise ExpressionError(message, token.column)
        return self._variable(token.text, token.column)

    def _variable(self, name: str, column: int) -> _Node:
        self.names.setdefault(name, column)
        return lambda values: values[name]

    def _parentheses(self, opening: _Token) -> _Node:
        """An expression, or with commas a list."""
        items = [self._expression(_LOWEST)]
        while self._next.text == "," and self._next.kind == "symbol":
            self._count(self._advance())
            items.append(self._expression(_LOWEST))
        if self._next.kind == "end":
            raise ExpressionError("this `(` is never closed", opening.column)
        if self._next.text != ")" or self._next.kind != "symbol":
            raise self._no_operator(self._next)
        self._advance()
        return items[0] if len(items) == 1 else lambda values: [item(values) for item in items]

    def _count(self, token: _Token) -> None:
        self._operators += 1
        if self._operators > MAX_OPERATORS:
            raise ExpressionError(f"there are more than {MAX_OPERATORS} operators", token.column)

    def _no_operator(self, token: _Token) -> ExpressionError:
        if token.kind == "symbol":
            known = {")": "this `)` was never opened", ",": "a list must be in parentheses", ":": "`:` without `?`"}
            return ExpressionError(known.get(token.text, f"`{token.text}` is not allowed here"), token.column)
        meant = _MEANT.get(token.text.lower())
        hint = f"; write `{meant}`" if meant else ""
        return ExpressionError(f"an operator is missing before {_quoted(token)}{hint}", token.column)


def _constant(value: Any) -> _Node:
    return lambda _: value


def _unquoted(text: str) -> str:
    """Without its quotes or brackets; a backslash stands for the character after it."""
    characters = iter(text[1:-1])
    return "".join(next(characters) if character == "\\" else character for character in characters)


def _quoted(token: _Token) -> str:
    return token.text if token.kind == "end" else f"`{token.text[:40]}`"
