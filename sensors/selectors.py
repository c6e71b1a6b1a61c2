"""Values of events that decide which of them belong together: `data.order.id`, `$.order.id`, `context.subject`."""

from __future__ import annotations

import re
from collections.abc import Callable
from hashlib import blake2b
from typing import Any, TypeAlias

from sensors.filters.candidate import Candidate
from sensors.numerals import legible
from sensors.paths import MISSING, compile_path

Select: TypeAlias = Callable[[Candidate], str | None]
"""A compiled selector: the value as text, or None where the event has none. Never raises."""

_ATTRIBUTE = re.compile(r"context\.([a-z0-9]+)")
_MAX_CHARACTERS = 200
_BEGINNING = 64
_MAX_INTEGER = 10**64


def compile_selector(text: str) -> Select:
    """Raises `ValueError` with half a sentence."""
    attribute = _ATTRIBUTE.fullmatch(text)
    if attribute is not None:
        name = attribute[1]
        return lambda candidate: as_key(candidate.event.attributes.get(name))
    if not text.startswith(("data.", "$.", "$[")):
        raise ValueError(
            "must be a path into the data such as `data.order.id` or `$.order.id`, or an attribute such as "
            f"`context.subject`, not `{text}`"
        )
    lookup = compile_path(text.removeprefix("data."))

    def select(candidate: Candidate) -> str | None:
        document = candidate.document
        return None if document is MISSING else as_key(lookup(document))

    return select


def as_key(value: Any) -> str | None:
    """Text for a value that can tell things apart: 42, 42.0 and "42" are the same. None for all that has no such text.

    What is very long is replaced by its beginning and a digest: it becomes part of record keys.
    """
    match value:
        case str():
            return bounded(value) or None
        case bool():
            return "true" if value else "false"
        case int():
            return str(value) if abs(value) < _MAX_INTEGER else None
        case float():
            return legible(value + 0.0)  # there is no -0
        case _:
            return None


def bounded(text: str) -> str:
    if len(text) <= _MAX_CHARACTERS:
        return text
    return f"{text[:_BEGINNING]}…{blake2b(text.encode('utf-8', 'surrogatepass'), digest_size=16).hexdigest()}"
