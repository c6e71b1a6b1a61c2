"""Actions that other packages bring along, by the entry point group `eventbus.actions`.

The entry point's name is what manifests call the action, its value an `ActionKind`, or anything with a `spec` and a
`make` like one. A plugin that cannot be used stops nobody who does not use it: its name is refused, with the reason.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from sensors.spec.base import SpecModel

GROUP = "eventbus.actions"
_logger = logging.getLogger("eventbus.action")
_NAME = re.compile(r"[a-z][A-Za-z0-9]*")
_TAKEN = frozenset(("name", "conditions", "conditionsReset", "action", *dir(SpecModel)))
"""What a trigger's template calls something else."""


def load_plugins(built_in: Collection[str]) -> tuple[dict[str, Any], dict[str, str]]:
    """The kinds of actions that plugins add, and why others cannot be had; both by name."""
    kinds: dict[str, Any] = {}
    refused: dict[str, str] = {}
    for point in sorted(entry_points(group=GROUP)):
        if point.name in built_in:
            # A manifest means the same everywhere.
            _logger.warning("the action `%s` of %s is not used: it is built in", point.name, _origin(point))
            continue
        reason = "another plugin has the same name" if point.name in kinds else _fault_in_name(point.name)
        kind = None
        if reason is None:
            kind, reason = _load(point)
        if reason is None:
            kinds[point.name] = kind
        else:
            kinds.pop(point.name, None)
            refused[point.name] = f"the action `{point.name}` of {_origin(point)} cannot be used: {reason}"
    return kinds, refused


def _fault_in_name(name: str) -> str | None:
    if not _NAME.fullmatch(name) or name in _TAKEN:
        return "a trigger cannot have a field of that name"
    return None


def _load(point: EntryPoint) -> tuple[Any, str | None]:
    try:
        kind = point.load()
    except (Exception, SystemExit) as error:  # whatever somebody else's code does
        return None, f"{type(error).__name__}: {error}"
    spec, make = getattr(kind, "spec", None), getattr(kind, "make", None)
    if not (isinstance(spec, type) and issubclass(spec, SpecModel) and callable(make)):
        return None, f"`{point.value}` has no `spec`, which is a SpecModel, and `make`; see `ActionKind`"
    return kind, None


def _origin(point: EntryPoint) -> str:
    return "an unknown package" if point.dist is None else f"the package `{point.dist.name}` {point.dist.version}"
