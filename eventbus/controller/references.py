"""Which secrets and config maps a manifest names: they are mounted, and nobody needs the right to read them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from pydantic import BaseModel

from sensors.secrets import ConfigMapKeySelector, KeySelector


class Reference(NamedTuple):
    """A secret or config map as a whole."""

    name: str
    is_secret: bool
    optional: bool
    """Whether everybody who names it can do without it."""


def references(*models: BaseModel) -> list[Reference]:
    """Each of them once, in a fixed order."""
    needed: dict[tuple[bool, str], bool] = {}
    for model in models:
        for selector in _selectors(model):
            key = not isinstance(selector, ConfigMapKeySelector), selector.name
            needed[key] = needed.get(key, True) and selector.optional
    return [Reference(name, is_secret, optional) for (is_secret, name), optional in sorted(needed.items())]


def _selectors(value: Any) -> Iterator[KeySelector]:
    match value:
        case KeySelector():
            yield value
        case BaseModel():
            for name in type(value).model_fields:
                yield from _selectors(getattr(value, name))
        case Mapping():
            for each in value.values():
                yield from _selectors(each)
        case list() | tuple():
            for each in value:
                yield from _selectors(each)
