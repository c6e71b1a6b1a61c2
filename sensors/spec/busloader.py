"""Reads an EventBus manifest. Whatever is wrong with it is reported at once, each problem with its line and column."""

from __future__ import annotations

from pathlib import Path

from sensors.spec.eventbus import EventBusManifest
from sensors.spec.loader import Reader, read_text
from sensors.spec.problems import ManifestError, Problem

_READER = Reader(EventBusManifest)


def load_event_bus(path: str | Path) -> EventBusManifest:
    """The one EventBus in a YAML file, beside which there may be documents of other kinds. Raises `ManifestError`."""
    text, file = read_text(path), str(path)
    found = _READER.inspect_text(text, file)
    if found.problems:
        raise ManifestError(found.problems)
    if not found.manifests and found.others == 1:
        _READER.load_text(text, file)  # what it lacks to be one is the better message
    if len(found.manifests) != 1:
        count = "no EventBus" if not found.manifests else f"{len(found.manifests)} EventBuses"
        raise ManifestError([Problem(f"this file has {count}, and one is expected", file)])
    return found.manifests[0]
