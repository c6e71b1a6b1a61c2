"""A difference to argo-events, and how to see in a manifest that it applies.

Every rule looks at a manifest as it was written, which need not be valid, and yields the places that it concerns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import msgspec

from sensors.spec.base import Path

Rule: TypeAlias = Callable[[Any], Iterator[Path]]


class Difference(msgspec.Struct, frozen=True):
    """One thing that is different, in words, and a rule that finds it."""

    name: str
    meaning: str
    fields: tuple[str, ...]
    """What it is about, as places in any manifest."""
    places: Rule


def recorder(differences: list[Difference]) -> Callable[..., Callable[[Rule], Rule]]:
    """Makes a decorator: `@difference(meaning, *fields)`."""

    def difference(meaning: str, *fields: str) -> Callable[[Rule], Rule]:
        """The decorated function finds where it applies; the difference is called as the function is."""

        def register(rule: Rule) -> Rule:
            name = rule.__name__.replace("_", "-")
            differences.append(Difference(name, " ".join(meaning.split()), fields, rule))
            return rule

        return register

    return difference
