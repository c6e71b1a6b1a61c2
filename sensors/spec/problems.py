"""What is wrong with a manifest, told the way a compiler would: file, line, column, the line itself and a pointer."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from eventbus.errors import ConfigError

MAX_SHOWN = 50
_EXCERPT_WIDTH = 100
LINE_BREAK = re.compile("\r\n|[\r\n\x85\u2028\u2029]")  # what YAML counts as one


class Position(msgspec.Struct, frozen=True, order=True):
    """A place in a text. Lines and columns count from 1; `width` is how many characters to underline."""

    line: int
    column: int
    width: int = 1


class Problem(msgspec.Struct, frozen=True):
    """One thing that is wrong, and where: in a file, or (for a manifest made in Python) at a path of fields."""

    message: str
    file: str
    line: int | None = None
    column: int | None = None
    excerpt: str = ""

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}:{self.column}"
        head = f"{place}: {self.message}"
        return f"{head}\n{self.excerpt}" if self.excerpt else head


class ManifestError(ConfigError):
    """A manifest cannot be used. All its problems are listed, in the order of the text."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = list(problems)
        shown = [str(problem) for problem in self.problems[:MAX_SHOWN]]
        if len(self.problems) > MAX_SHOWN:
            shown.append(f"… and {len(self.problems) - MAX_SHOWN} more")
        super().__init__("\n".join(shown))


class Source(msgspec.Struct, frozen=True):
    """A text that problems can point into."""

    file: str
    lines: Sequence[str]

    @classmethod
    def of(cls, text: str, file: str) -> Source:
        return cls(file, LINE_BREAK.split(text))

    def problem(self, message: str, position: Position) -> Problem:
        return Problem(message, self.file, position.line, position.column, self._excerpt(position))

    def _excerpt(self, position: Position) -> str:
        """The line and, below it, a row of `^`. Of a very long line only the part around the place is shown."""
        line = self.lines[position.line - 1] if position.line <= len(self.lines) else ""
        first = max(0, position.column - 1 - _EXCERPT_WIDTH // 2) if len(line) > _EXCERPT_WIDTH else 0
        shown = "".join(character if character.isprintable() else " " for character in line[first:][:_EXCERPT_WIDTH])
        indent = position.column - 1 - first
        width = max(1, min(position.width, len(shown) - indent))
        return f"{position.line:>5} | {shown}\n{'':>5} | {' ' * indent}{'^' * width}"
