"""From tokens to nodes. What Go finds out only when a template runs (functions, their arguments) is found here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sensors.templates.errors import TemplateSyntaxError
from sensors.templates.functions import find_function
from sensors.templates.lexer import Kind, Token, tokens
from sensors.templates.literals import character, number, raw, unquoted
from sensors.templates.nodes import (
    Action,
    Call,
    Constant,
    Dot,
    Either,
    Expression,
    Fields,
    If,
    Jump,
    Node,
    Pipeline,
    Range,
    Text,
    Variable,
)

MAX_LENGTH = 64 * 1024
MAX_DEPTH = 50
_ROOT_SLOT = 0
_WORDS = {"true": True, "false": False, "nil": None}
_REFUSED = {"define", "template", "block"}
_LITERALS: dict[Kind, Callable[[Token], Any]] = {
    Kind.NUMBER: number,
    Kind.CHAR: character,
    Kind.STRING: unquoted,
    Kind.RAW: raw,
}
_IS_VALUE = frozenset((Kind.NUMBER, Kind.STRING, Kind.RAW, Kind.CHAR, Kind.VARIABLE, Kind.FIELD, Kind.DOT, Kind.WORD))


def parse(text: str) -> tuple[tuple[Node, ...], int]:
    """The nodes of a template, and how many variables they need."""
    if len(text) > MAX_LENGTH:
        raise TemplateSyntaxError(f"must not be longer than {MAX_LENGTH:,} characters", MAX_LENGTH)
    parser = _Parser(text)
    return parser.template(), parser.variables


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = list(tokens(text))
        self._at = 0
        self._scopes: list[dict[str, int]] = [{"$": _ROOT_SLOT}]
        self.variables = 0
        self._loops = 0
        self._depth = 0

    # --- tokens -----------------------------------------------------------------------------------------------------

    @property
    def _now(self) -> Token:
        return self._tokens[self._at]

    def _next(self) -> Token:
        token = self._now
        self._at += 1
        return token

    def _skip_space(self) -> Token:
        """The token after any white space; it is not taken."""
        while self._now.kind is Kind.SPACE:
            self._at += 1
        return self._now

    def _take(self, kind: Kind, text: str | None = None) -> Token | None:
        token = self._skip_space()
        return self._next() if token.kind is kind and text in (None, token.text) else None

    def _close(self, after: str) -> None:
        if self._take(Kind.CLOSE) is None:
            raise TemplateSyntaxError(f"`{self._now.text}` is too much after {after}", self._now.index)

    @contextmanager
    def _deeper(self) -> Iterator[None]:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise TemplateSyntaxError(f"must not be nested more than {MAX_DEPTH} deep", self._now.index)
        yield
        self._depth -= 1

    @contextmanager
    def _scope(self) -> Iterator[None]:
        self._scopes.append({})
        yield
        self._scopes.pop()

    # --- blocks -----------------------------------------------------------------------------------------------------

    def template(self) -> tuple[Node, ...]:
        nodes, end = self._block()
        if end.kind is not Kind.END:
            raise TemplateSyntaxError(f"there is nothing open that this `{end.text}` could belong to", end.index)
        return nodes

    def _block(self) -> tuple[tuple[Node, ...], Token]:
        """Nodes up to `{{end}}`, `{{else` or the end of the text, and which of these it was."""
        nodes: list[Node] = []
        while True:
            token = self._next()
            if token.kind is Kind.END:
                return tuple(nodes), token
            if token.kind is Kind.TEXT:
                nodes.append(Text(token.text))
                continue
            word = self._skip_space()
            if word.kind is Kind.WORD and word.text in ("end", "else"):
                return tuple(nodes), self._next()
            nodes.append(self._statement(word))

    def _statement(self, word: Token) -> Node:
        if word.kind is Kind.WORD and word.text in _REFUSED:
            raise TemplateSyntaxError(f"`{word.text}` is not supported: a template stands for itself", word.index)
        statement = _STATEMENTS.get(word.text) if word.kind is Kind.WORD else None
        if statement is None:
            action = Action(self._pipeline())
            self._close("the value")
            return action
        with self._deeper():
            return statement(self, self._next())

    def _conditional(self, word: Token) -> Node:
        with self._scope():
            pipeline = self._needed_pipeline(word)
            self._close(f"`{word.text}`")
            with self._scope():
                body, end = self._block()
            with self._scope():
                otherwise = self._otherwise(word, end)
        return If(pipeline, body, otherwise, moves=word.text == "with")

    def _range(self, word: Token) -> Node:
        with self._scope():
            names = self._declared_names(limit=2)
            expression = self._needed_pipeline(word, declares=False).expression
            slots = tuple(self._declare(name) for name in names)
            self._close("`range`")
            self._loops += 1
            with self._scope():
                body, end = self._block()
            self._loops -= 1
            with self._scope():
                otherwise = self._otherwise(word, end)
        return Range(expression, slots, body, otherwise)

    def _otherwise(self, opener: Token, end: Token) -> tuple[Node, ...]:
        """What follows the body: nothing, `{{else}}`, or `{{else if}}`, which is an `if` in an `else`."""
        if end.kind is Kind.END:
            raise TemplateSyntaxError(f"this `{opener.text}` has no `{{{{end}}}}`", opener.index)
        if end.text == "end":
            self._close("`end`")
            return ()
        again = self._skip_space()
        if again.kind is Kind.WORD and again.text == opener.text and opener.text in ("if", "with"):
            with self._deeper():
                return (self._conditional(self._next()),)
        self._close("`else`")
        nodes, end = self._block()
        if end.kind is Kind.END:
            raise TemplateSyntaxError(f"this `{opener.text}` has no `{{{{end}}}}`", opener.index)
        if end.text == "else":
            raise TemplateSyntaxError("there is an `else` before this one already", end.index)
        self._close("`end`")
        return nodes

    def _jump(self, word: Token) -> Node:
        if not self._loops:
            raise TemplateSyntaxError(f"`{word.text}` is only possible inside `range`", word.index)
        self._close(f"`{word.text}`")
        return Jump(loop=word.text == "continue")

    # --- pipelines --------------------------------------------------------------------------------------------------

    def _needed_pipeline(self, word: Token, *, declares: bool = True) -> Pipeline:
        if self._skip_space().kind is Kind.CLOSE:
            raise TemplateSyntaxError(f"`{word.text}` needs a value", word.index)
        return self._pipeline(declares=declares)

    def _pipeline(self, *, declares: bool = True) -> Pipeline:
        assigned = self._assigned_slot() if declares else None
        names = self._declared_names(limit=1) if declares and assigned is None else []
        expression = self._command(None)
        while self._take(Kind.MARK, "|"):
            expression = self._command(expression)
        slots = tuple(self._declare(name) for name in names) if assigned is None else (assigned,)
        return Pipeline(expression, slots)

    def _declared_names(self, limit: int) -> list[str]:
        """The `$k, $v :=` before a value, if it is there."""
        start = self._at
        names: list[str] = []
        while len(names) < limit and (variable := self._take(Kind.VARIABLE)):
            names.append(variable.text)
            if not self._take(Kind.MARK, ","):
                break
        if names and self._take(Kind.DECLARE):
            return names
        self._at = start
        return []

    def _assigned_slot(self) -> int | None:
        """The variable of a `$x =` before a value, if it is there."""
        start = self._at
        variable = self._take(Kind.VARIABLE)
        if variable and self._take(Kind.MARK, "="):
            return self._slot(variable)
        self._at = start
        return None

    def _declare(self, name: str) -> int:
        self.variables += 1
        self._scopes[-1][name] = self.variables
        return self.variables

    def _slot(self, variable: Token) -> int:
        for scope in reversed(self._scopes):
            if variable.text in scope:
                return scope[variable.text]
        raise TemplateSyntaxError(f"the variable `{variable.text}` is not declared", variable.index)

    def _command(self, piped: Expression | None) -> Expression:
        """A function with its arguments, or a single value."""
        first = self._skip_space()
        if first.kind is Kind.WORD and first.text not in _WORDS:
            return self._call(self._next(), piped)
        if piped is not None:
            raise TemplateSyntaxError("only a function can follow `|`", first.index)
        if first.text == "nil":
            raise TemplateSyntaxError("`nil` alone is not a value; give it to a function", first.index)
        operand = self._operand()
        extra = self._skip_space()
        if _begins_a_value(extra):
            raise TemplateSyntaxError("only a function can have arguments", extra.index)
        return operand

    def _call(self, name: Token, piped: Expression | None) -> Expression:
        arguments: list[Expression] = []
        while self._now.kind is Kind.SPACE and _begins_a_value(self._skip_space()):
            arguments.append(self._argument(self._skip_space()))
        if piped is not None:
            arguments.append(piped)
        return self._applied(name, arguments)

    def _argument(self, first: Token) -> Expression:
        """A function among the arguments of another has none of its own."""
        is_function = first.kind is Kind.WORD and first.text not in _WORDS
        return self._applied(self._next(), []) if is_function else self._operand()

    def _applied(self, name: Token, arguments: list[Expression]) -> Expression:
        if name.text in ("and", "or"):
            if not arguments:
                raise TemplateSyntaxError(f"`{name.text}` needs an argument", name.index)
            return Either(name.text == "or", tuple(arguments), name.index)
        function = find_function(name.text, name.index)
        bound = function.bind(arguments, name.index)
        return Call(name.text, function, tuple(bound), name.index)

    def _operand(self) -> Expression:
        token = self._next()
        if token.text == "(":
            with self._deeper():
                value: Expression = self._pipeline()
            if self._take(Kind.MARK, ")") is None:
                raise TemplateSyntaxError("this `(` is never closed", token.index)
        elif token.kind is Kind.FIELD:
            self._at -= 1
            value = Dot(token.index)
        else:
            value = self._simple(token)
        names = []
        while self._now.kind is Kind.FIELD:
            names.append(self._next().text[1:])
        if names and isinstance(value, Constant):
            raise TemplateSyntaxError(f"there is no `.{names[0]}` in a constant", token.index)
        return Fields(value, tuple(names), token.index) if names else value

    def _simple(self, token: Token) -> Expression:
        match token.kind:
            case Kind.DOT:
                return Dot(token.index)
            case Kind.VARIABLE:
                return Variable(self._slot(token), token.index)
            case Kind.WORD if token.text in _WORDS:
                return Constant(_WORDS[token.text], token.index)
            case Kind.NUMBER | Kind.CHAR | Kind.STRING | Kind.RAW:
                return Constant(_LITERALS[token.kind](token), token.index)
        what = "a value is missing" if token.kind is Kind.CLOSE else f"`{token.text}` is not allowed here"
        raise TemplateSyntaxError(what, token.index)


def _begins_a_value(token: Token) -> bool:
    return token.kind in _IS_VALUE or token.text == "("


_STATEMENTS: dict[str, Callable[[_Parser, Token], Node]] = {
    "if": _Parser._conditional,  # noqa: SLF001 - our own
    "with": _Parser._conditional,  # noqa: SLF001
    "range": _Parser._range,  # noqa: SLF001
    "break": _Parser._jump,  # noqa: SLF001
    "continue": _Parser._jump,  # noqa: SLF001
}
