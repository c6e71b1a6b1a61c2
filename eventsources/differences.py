"""What an EventSource does differently here than in argo-events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sensors.spec.base import Path, get
from sensors.spec.difference import Difference, recorder

SOURCE_DIFFERENCES: list[Difference] = []
difference = recorder(SOURCE_DIFFERENCES)


def _events(manifest: Any, *kinds: str) -> Iterator[tuple[Path, Any]]:
    for kind in kinds:
        section = get(manifest, "spec", kind)
        for name, spec in section.items() if isinstance(section, Mapping) else ():
            yield ("spec", kind, name), spec


@difference(
    """argo-events answers 200, and 400 whatever goes wrong. Here it is 202 when the brokers have the event, and another
    status for each reason why they do not.""",
    "spec.webhook",
)
def webhook_answers(manifest: Any) -> Iterator[Path]:
    for path, _ in _events(manifest, "webhook"):
        yield path


@difference(
    """argo-events makes JSON of forms, takes any other body for JSON, and has GET. Here only what is JSON is JSON,
    anything else is text, and it is POST, PUT or PATCH.""",
    "spec.webhook",
)
def webhook_bodies(manifest: Any) -> Iterator[Path]:
    for path, _ in _events(manifest, "webhook"):
        yield path


@difference(
    "argo-events registers a hook that sends nothing unless `active` is true. Here it sends, unless `active` is false.",
    "spec.github{}.active",
)
def active_hooks(manifest: Any) -> Iterator[Path]:
    for path, spec in _events(manifest, "github"):
        if get(spec, "active") is None:
            yield path


@difference(
    """argo-events forgets ticks for which nobody was there, unless there is `persistence`. Here they are made up for,
    up to 5 minutes back, unless `missed` or `maxMissed` says otherwise.""",
    "spec.calendar",
)
def missed_ticks(manifest: Any) -> Iterator[Path]:
    for path, spec in _events(manifest, "calendar"):
        if get(spec, "persistence") is None:
            yield path


@difference(
    "argo-events counts intervals from its start. Here they are counted from 1970, so that all replicas agree.",
    "spec.calendar",
)
def intervals(manifest: Any) -> Iterator[Path]:
    for path, spec in _events(manifest, "calendar"):
        if get(spec, "interval") is not None:
            yield (*path, "interval")
