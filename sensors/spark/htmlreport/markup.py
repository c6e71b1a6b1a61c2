"""HTML as a tree: whatever is put into it is text, and every element ends where it should."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import TypeAlias
from xml.etree.ElementTree import Element

import msgspec

Content: TypeAlias = "str | int | Element | None"

REPLACED = "\N{REPLACEMENT CHARACTER}"
_VOID = ("meta",)
_NEAR_THE_END = 0.9


def visible(text: str) -> str:
    """Text from elsewhere on one line, with a mark for what cannot be seen: it might turn around what follows."""
    return "".join(
        character if character.isprintable() else " " if character.isspace() else REPLACED for character in text
    )


def tag(name: str, /, *content: Content, kind: str = "", **attributes: str) -> Element:
    """An element. `kind` is its class; `aria_label` is written `aria-label`."""
    element = Element(name, {"class": kind} if kind else {})
    for attribute, value in attributes.items():
        element.set(attribute.replace("_", "-"), visible(value))
    return add(element, *content)


def add(element: Element, *content: Content) -> Element:
    """Append to an element; texts that are None are not there, and numbers are written with thousands."""
    for each in content:
        if isinstance(each, Element):
            element.append(each)
        elif each is not None:
            text = visible(each) if isinstance(each, str) else f"{each:,}"
            if len(element):
                element[-1].tail = (element[-1].tail or "") + text
            else:
                element.text = (element.text or "") + text
    return element


def tooltip(*lines: str) -> Element:
    """What a shape says under the mouse, or to a screen reader."""
    element = Element("title")
    element.text = "\n".join(map(visible, lines))
    return element


def document(root: Element) -> str:
    return f"<!doctype html>\n{''.join(_written(root))}\n"


def _written(element: Element) -> Iterator[str]:
    """ElementTree would leave `<` in attributes as it is: right, but not to be seen from a distance."""
    yield f"<{element.tag}"
    yield from (f' {name}="{escape(value)}"' for name, value in element.items())
    yield ">"
    if element.tag not in _VOID:
        text = element.text or ""
        yield text if element.tag == "style" else escape(text, quote=False)
        for child in element:
            yield from _written(child)
            yield escape(child.tail or "", quote=False)
        yield f"</{element.tag}>"


class Column(msgspec.Struct, frozen=True):
    """The head of a column."""

    title: str
    kind: str = ""
    """`number`, `bar`, or nothing for text."""


def table(columns: Sequence[Column], rows: Iterable[Sequence[Content]], *, stacked: bool = False) -> Element:
    """A table that is moved sideways, and not the page, where it is too wide; `stacked`, a phone shows it by row."""
    head = tag("tr", *(tag("th", column.title, kind=column.kind, scope="col") for column in columns))
    body = tag("tbody")
    for row in rows:
        cells = [_cell(column, content) for column, content in zip(columns, row, strict=True)]
        if stacked:
            for column, cell in zip(columns, cells, strict=True):
                cell.set("data-label", column.title)
        body.append(tag("tr", *cells))
    whole = tag("table", tag("thead", head), body, kind="stacked" if stacked else "")
    return tag("div", whole, kind="scroll", tabindex="0", role="region", aria_label=columns[0].title)


def _cell(column: Column, content: Content) -> Element:
    kind = f"{column.kind} zero" if content == 0 else column.kind
    return tag("td", content, kind=kind)


def folded_table(
    columns: Sequence[Column], rows: Sequence[Sequence[Content]], shown: int, *, stacked: bool = False
) -> list[Element]:
    """The first rows of a table, and the rest for those who ask for it."""
    first, rest = table(columns, rows[:shown], stacked=stacked), rows[shown:]
    if not rest:
        return [first]
    more = table(columns, rest, stacked=stacked)
    return [first, tag("details", tag("summary", f"{len(rest):,} more"), more)]


def bar(part: int, whole: int) -> Element:
    """How much of the whole it is."""
    share = 100 * part / whole if whole else 0
    return tag("span", kind="bar", style=f"width:{share:.1f}%")


def card(title: str, *content: Content, note: str = "", kind: str = "") -> Element:
    """A section of the page."""
    heading = tag("h2", title, tag("small", note) if note else None)
    return tag("section", heading, *content, kind=f"card {kind}".strip())


def axis(ticks: Iterable[tuple[float, str]], kind: str = "") -> Element:
    """What is where below a picture, as fractions of its width. A text at the very end stands before its mark."""
    marks = [
        tag("span", text, kind="end" if place > _NEAR_THE_END else "", style=f"left:{100 * place:.2f}%")
        for place, text in ticks
    ]
    return tag("div", tag("div", *marks), kind=f"axis {kind}".strip(), aria_hidden="true")
