"""Finds the line and column that a flaw is about, down to a single character inside a value."""

from __future__ import annotations

import re

import msgspec

from sensors.spec.base import Flaw, Path
from sensors.spec.problems import LINE_BREAK, Position, Problem, Source
from sensors.spec.yamltree import Map, Node, Scalar, find, key_position


class Document(msgspec.Struct, frozen=True):
    """One document of a YAML text."""

    root: Node
    source: Source

    def written(self, path: Path) -> str | None:
        """How a single value is written."""
        node = find(self.root, path)
        return node.written if isinstance(node, Scalar) else None

    def problem(self, flaw: Flaw) -> Problem:
        return self.source.problem(flaw.message, self._position(flaw))

    def _position(self, flaw: Flaw) -> Position:
        path = flaw.path
        while (node := find(self.root, path)) is None:
            path = path[:-1]  # a field that is missing: point at what it is missing from
        key = key_position(self.root, path)
        if isinstance(node, Scalar) and node.written and not flaw.about_key:
            return node.position if flaw.index is None else _inside(node, flaw.index)
        return key or _first_key(node) or node.position


def _first_key(node: Node) -> Position | None:
    if isinstance(node, Map):
        return next((entry.key for entry in node.entries.values()), None)
    return None


def _inside(node: Scalar, index: int) -> Position:
    """Where a character of a scalar's value is written.

    Quoting and folding change only white space, so the n-th other character of the value is the n-th of the source.
    Where that does not hold (escapes, tags) the whole scalar has to do.
    """
    value = str(node.value)
    start, end = _content(node.written)
    source = [match.start() for match in re.finditer(r"\S", node.written) if start <= match.start() < end]
    if [node.written[at] for at in source] != list("".join(value.split())):
        return node.position
    number = len("".join(value[:index].split()))
    offset = source[number] if number < len(source) else source[-1] + 1
    breaks = list(LINE_BREAK.finditer(node.written, 0, offset))
    if not breaks:
        return Position(node.position.line, node.position.column + offset)
    return Position(node.position.line + len(breaks), offset - breaks[-1].end() + 1)


def _content(written: str) -> tuple[int, int]:
    """The part of a scalar's source without quotes or the `|` line."""
    if written[0] in "\"'":
        return 1, len(written) - 1
    if written[0] in "|>":
        header = LINE_BREAK.search(written)
        return (header.end() if header else len(written)), len(written)
    return 0, len(written)
