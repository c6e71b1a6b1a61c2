"""Splits a template into text and the tokens of its actions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum

import msgspec

from sensors.templates.errors import TemplateSyntaxError

_SPACE = " \t\r\n"
_TOKEN = re.compile(
    r"""(?P<space>[ \t\r\n]+)
    |(?P<number>[+-]?(?:0[xX][0-9a-fA-F_]+|0[bB][01_]+|0[oO][0-7_]+
        |(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9][0-9_]*)(?:[eE][+-]?[0-9_]+)?)(?![\w]))
    |(?P<string>"(?:[^"\\\n]|\\.)*")
    |(?P<raw>`[^`]*`)
    |(?P<char>'(?:[^'\\\n]|\\.)+')
    |(?P<variable>\$\w*)
    |(?P<field>\.[^\W\d]\w*)
    |(?P<dot>\.)
    |(?P<word>[^\W\d]\w*)
    |(?P<declare>:=)
    |(?P<mark>[()|,=])
    """,
    re.VERBOSE,
)
_UNTERMINATED = {
    '"': "this quoted text is never closed",
    "`": "this raw text is never closed",
    "'": "is not one character",
}


class Kind(Enum):
    """What a token is."""

    TEXT = "text"
    OPEN = "{{"
    CLOSE = "}}"
    SPACE = "space"
    NUMBER = "number"
    STRING = "string"
    RAW = "raw"
    CHAR = "char"
    VARIABLE = "variable"
    FIELD = "field"
    DOT = "dot"
    WORD = "word"
    DECLARE = "declare"
    MARK = "mark"
    END = "end"


class Token(msgspec.Struct, frozen=True):
    """A piece of a template and where it stands."""

    kind: Kind
    text: str
    index: int


def tokens(text: str) -> Iterator[Token]:
    """Everything between `OPEN` and `CLOSE` belongs to one action; comments are gone, and so is trimmed space."""
    at, trim = 0, False
    while (start := text.find("{{", at)) >= 0:
        trims_before = text.startswith("{{-", start) and text[start + 3 : start + 4] in tuple(_SPACE)
        yield from _literal(text[at:start], at, left=trim, right=trims_before)
        inside = start + (4 if trims_before else 2)
        comment = re.compile(r"[ \t\r\n]*/\*").match(text, inside)
        if comment:
            at, trim = _after_comment(text, comment.end(), start)
        else:
            yield Token(Kind.OPEN, "{{", start)
            for token in _action(text, inside, start):
                yield token
            at = token.index + len(token.text)
            trim = token.text.startswith("-")
    yield from _literal(text[at:], at, left=trim, right=False)
    yield Token(Kind.END, "", len(text))


def _literal(text: str, index: int, *, left: bool, right: bool) -> Iterator[Token]:
    text = text.lstrip(_SPACE) if left else text
    text = text.rstrip(_SPACE) if right else text
    if text:
        yield Token(Kind.TEXT, text, index)


def _after_comment(text: str, inside: int, start: int) -> tuple[int, bool]:
    end = text.find("*/", inside)
    if end < 0:
        raise TemplateSyntaxError("this comment is never closed", start)
    closing = re.compile(r"[ \t\r\n]+-\}\}|\}\}").match(text, end + 2)
    if closing is None:
        raise TemplateSyntaxError("a comment must end with `*/}}`", end)
    return closing.end(), closing.group() != "}}"


def _action(text: str, at: int, start: int) -> Iterator[Token]:
    while True:
        trimmed = re.compile(r"[ \t\r\n]+(-\}\})").match(text, at)
        if trimmed:
            yield Token(Kind.CLOSE, trimmed[1], trimmed.start(1))
            return
        if text.startswith("}}", at):
            yield Token(Kind.CLOSE, "}}", at)
            return
        found = _TOKEN.match(text, at)
        if found is None:
            raise _unreadable(text, at, start)
        yield Token(Kind(found.lastgroup), found.group(), at)
        at = found.end()


def _unreadable(text: str, at: int, start: int) -> TemplateSyntaxError:
    character = text[at : at + 1]
    if not character or "}}" not in text[at:]:
        if character in _UNTERMINATED:
            return TemplateSyntaxError(_UNTERMINATED[character], at)
        return TemplateSyntaxError("this `{{` is never closed", start)
    if character in _UNTERMINATED:
        return TemplateSyntaxError(_UNTERMINATED[character], at)
    if character.isdigit() or (character in "+-" and text[at + 1 : at + 2].isdigit()):
        return TemplateSyntaxError("this is not a number", at)
    hint = '; write `index .Input "a-b"` for such a key' if character == "-" else ""
    return TemplateSyntaxError(f"`{character}` is not allowed here{hint}", at)
