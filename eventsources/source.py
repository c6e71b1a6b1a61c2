"""An event source as a library user sees it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from eventbus.bus import Bus
from eventsources.spec import EVENT_SOURCES, EventSourceManifest

if TYPE_CHECKING:
    from eventsources.runner import SourceRunner


class EventSource:
    """What an EventSource manifest declares, ready to run.

    >>> from eventbus import Bus
    >>> shop = EventSource.make({
    ...     "apiVersion": "eventbus.dev/v1alpha1",
    ...     "kind": "EventSource",
    ...     "metadata": {"name": "shop"},
    ...     "spec": {"webhook": {"order": {"port": 0, "endpoint": "/orders"}}},
    ... })
    >>> with Bus.memory() as bus, shop.start(bus) as running:
    ...     len(running.ports)
    1
    """

    def __init__(self, manifest: EventSourceManifest) -> None:
        self.manifest = manifest

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """The one EventSource in a YAML file. Raises `ManifestError`."""
        return cls(EVENT_SOURCES.load_one(path))

    @classmethod
    def make(cls, manifest: Mapping[str, Any]) -> Self:
        """An EventSource made by a program. Raises `ManifestError`."""
        return cls(EVENT_SOURCES.make(manifest))

    def start(self, bus: Bus, *, drain_seconds: float = 20.0) -> SourceRunner:
        """Use the result as a context manager, or call its `stop`. Raises `EventBusError` where it cannot start."""
        from eventsources.election import take_part
        from eventsources.runner import SourceRunner

        elect = partial(take_part, namespace=bus.name.namespace)
        return SourceRunner(self.manifest, bus, elect, drain_seconds=drain_seconds).start()
