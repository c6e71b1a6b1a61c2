"""A template that is ready to be rendered."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec

from sensors.templates.budget import Budget
from sensors.templates.errors import TemplateError
from sensors.templates.nodes import Frame, Located, Node, write_all
from sensors.templates.parser import parse
from sensors.templates.values import from_json


class Template(msgspec.Struct, frozen=True):
    """Rendering changes nothing, so that one template serves all threads."""

    source: str
    nodes: tuple[Node, ...]
    variables: int

    def render(self, context: Mapping[str, Any]) -> str:
        """The text for JSON data, all of whose numbers are float64 to a template. Raises `TemplateError`."""
        budget = Budget()
        try:
            frame = Frame(from_json(dict(context), budget), self.variables, budget)
            write_all(self.nodes, frame, frame.dot)
        except Located as error:
            raise TemplateError(f"{_place(self.source, error.index)}: {error}") from None
        return frame.text()


@lru_cache(maxsize=1024)
def compile_template(text: str) -> Template:
    """Read a template. Raises `TemplateSyntaxError`, which says which character it is about."""
    nodes, variables = parse(text)
    return Template(text, nodes, variables)


def _place(source: str, index: int) -> str:
    line = source.count("\n", 0, index) + 1
    column = index - source.rfind("\n", 0, index)
    return f"line {line}, column {column}"
