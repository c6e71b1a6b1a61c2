"""Reads an EventBus manifest. Whatever is wrong with it is reported at once, each problem with its line and column."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sensors.spec.eventbus import KIND, EventBusManifest
from sensors.spec.loader import read_text
from sensors.spec.positions import Document
from sensors.spec.problems import ManifestError, Problem
from sensors.spec.validation import Flawed, validated
from sensors.spec.yamltree import plain, read_tree


def load_event_bus(path: str | Path) -> EventBusManifest:
    """The one EventBus in a YAML file, beside which there may be documents of other kinds. Raises `ManifestError`."""
    file = str(path)
    tree = read_tree(read_text(path), file)
    if tree.problems:
        raise ManifestError(tree.problems)
    found = [node for node in tree.documents if _is_bus(plain(node))]
    if not found and len(tree.documents) == 1:
        found = list(tree.documents)  # what it lacks to be one is the better message
    if len(found) != 1:
        count = "no EventBus" if not found else f"{len(found)} EventBuses"
        raise ManifestError([Problem(f"this file has {count}, and one is expected", file)])
    document = Document(found[0], tree.source)
    try:
        return validated(EventBusManifest, KIND, plain(found[0]), document.written)
    except Flawed as error:
        problems = sorted(map(document.problem, error.flaws), key=lambda each: (each.line or 0, each.column or 0))
        raise ManifestError(problems) from None


def _is_bus(data: Any) -> bool:
    return isinstance(data, Mapping) and data.get("kind") == KIND
