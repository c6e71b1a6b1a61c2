"""What other packages bring along by entry points: actions and event sources.

The entry point's name is what manifests call it, its value a kind such as `ActionKind`, or anything that has what such
a kind must have. A plugin that cannot be used stops nobody who does not use it: its name is refused, with the reason.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection
from importlib.metadata import EntryPoint, entry_points
from typing import Generic, NamedTuple, TypeVar

import msgspec

from sensors.spec.base import SpecModel

_logger = logging.getLogger("eventbus.plugins")
_NAME = re.compile(r"[a-z][A-Za-z0-9]*")


K = TypeVar("K", bound=NamedTuple)


class Plugins(msgspec.Struct, Generic[K], frozen=True):
    """What may be brought along by the entry points of one group."""

    group: str
    called: str
    """What one of them is, to people."""
    owner: str
    """What has a field by the plugin's name."""
    taken: frozenset[str]
    """What the owner calls something else."""
    kind: type[K]
    spec: type[SpecModel]
    """What the kind's `spec` must be derived from."""

    def load(self, built_in: Collection[str]) -> tuple[dict[str, K], dict[str, str]]:
        """The kinds that plugins add, and why others cannot be had; both by name."""
        kinds: dict[str, K] = {}
        refused: dict[str, str] = {}
        for point in sorted(entry_points(group=self.group)):
            named = f"the {self.called} `{point.name}` of {_origin(point)}"
            if point.name in built_in:
                _logger.warning("%s is not used: it is built in", named)  # a manifest means the same everywhere
            elif point.name in kinds or point.name in refused:
                kinds.pop(point.name, None)
                refused[point.name] = f"{named} cannot be used: another plugin has the same name"
            else:
                try:
                    kinds[point.name] = self._loaded(point)
                except _UnusableError as error:
                    refused[point.name] = f"{named} cannot be used: {error}"
        return kinds, refused

    def _loaded(self, point: EntryPoint) -> K:
        if not _NAME.fullmatch(point.name) or point.name in self.taken.union(dir(SpecModel)):
            raise _UnusableError(f"{self.owner} cannot have a field of that name")
        try:
            found = point.load()
        except (Exception, SystemExit) as error:  # whatever somebody else's code does
            raise _UnusableError(f"{type(error).__name__}: {error}") from None
        needed = [name for name in self.kind._fields if name not in self.kind._field_defaults]
        spec = getattr(found, "spec", None)
        if not (
            isinstance(spec, type)
            and issubclass(spec, self.spec)
            and callable(getattr(found, "make", None))
            and all(hasattr(found, name) for name in needed)
        ):
            fields = " and ".join(f"`{name}`" for name in needed if name != "spec")
            reason = f"`{point.value}` has no `spec`, which is a {self.spec.__name__}, and {fields}"
            raise _UnusableError(f"{reason}; see `{self.kind.__name__}`")
        return found if isinstance(found, self.kind) else self.kind(*(getattr(found, name) for name in needed))


class _UnusableError(Exception):
    """Why a plugin cannot be used."""


def _origin(point: EntryPoint) -> str:
    return "an unknown package" if point.dist is None else f"the package `{point.dist.name}` {point.dist.version}"
