"""PyYAML's syntax errors in words for people who do not know how a YAML parser works.

The wording of the two parsers (libyaml and pure Python) differs; what is matched here is common to both.
"""

from __future__ import annotations

from typing import Any

import yaml

from sensors.spec.problems import Position


def explain_syntax_error(error: yaml.YAMLError, text: str) -> tuple[str, Position]:
    """A message and the place it is about."""
    if not isinstance(error, yaml.MarkedYAMLError):
        return f"malformed YAML: {error}", Position(1, 1)
    mark: Any = error.problem_mark or error.context_mark
    message, at_context = _wording(error, text[mark.index : mark.index + 1])
    if at_context and error.context_mark is not None:
        mark = error.context_mark
    return f"malformed YAML: {message}", Position(mark.line + 1, mark.column + 1)


def _wording(error: yaml.MarkedYAMLError, character: str) -> tuple[str, bool]:
    """What to say, and whether it is about the place where the unfinished thing began."""
    problem, context = error.problem or "", error.context or ""
    if "tab character" in problem or ("cannot start any token" in problem and character == "\t"):
        return "a tab cannot be used for indentation; use spaces", False
    if "cannot start any token" in problem:
        return f"a value cannot begin with `{character}`; put it in quotes", False
    for text, needle, message, at_context in (
        (problem, "unknown escape", "this is not an escape sequence; write `\\\\` for a backslash", False),
        (problem, "mapping values", "a `:` is not expected here; check the indentation, or quote the value", False),
        (problem, "sequence entries", "a list must begin on a line of its own", False),
        (context, "quoted scalar", "this quote is never closed", True),
        (context, "flow", "this bracket is never closed, or a `,` is missing behind it", True),
        (context, "block", "the indentation does not fit the lines before", False),
    ):
        if needle in text:
            return message, at_context
    return problem, False
