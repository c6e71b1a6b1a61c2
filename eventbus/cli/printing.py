"""How commands speak: results on stdout, the rest on stderr; colour and tables only where a person looks at them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

Styled = tuple[str, str]
"""A text and its style on a terminal."""


def console(*, stderr: bool = False) -> Console:
    return Console(stderr=stderr, highlight=False, markup=False, emoji=False, soft_wrap=True)


def say(*parts: str | Styled, to: Console | None = None) -> None:
    """One line of a result, or several."""
    (to or console()).print(Text.assemble(*map(_harmless, parts)))


def say_json(value: object) -> None:
    """One JSON document on one line. Structs of msgspec are objects."""
    typer.echo(msgspec.json.encode(value).decode())


def warn(message: str) -> None:
    say(("warning: ", "yellow"), message, to=console(stderr=True))


def complain(message: str) -> None:
    say(("error: ", "bold red"), message, to=console(stderr=True))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, right: Collection[str] = ()) -> None:
    """A table for people; on anything but a terminal, columns that a program can cut. Numbers belong to the right."""
    cells = [[one_line(cell) for cell in row] for row in rows]
    out = console()
    if out.is_terminal:
        table = Table()
        for column in columns:
            table.add_column(column, justify="right" if column in right else "left")
        for row in cells:
            table.add_row(*(Text(cell, overflow="fold") for cell in row))
        out.print(table, soft_wrap=False)
        return
    lines = [[column.upper() for column in columns], *cells]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        padded = (
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, cell, width in zip(columns, line, widths, strict=True)
        )
        say("  ".join(padded).rstrip(), to=out)


def one_line(text: str) -> str:
    """Text from elsewhere without line breaks, and without anything else that is not a character to be seen."""
    return "".join(character if character.isprintable() else " " for character in text)


def _harmless(part: str | Styled) -> str | Styled:
    """Whatever an event or a record holds, it cannot take over the terminal."""
    text, style = part if isinstance(part, tuple) else (part, "")
    return "\n".join(map(one_line, text.split("\n"))), style


def counted(number: int, noun: str, plural: str | None = None) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {plural or noun + 's'}"
