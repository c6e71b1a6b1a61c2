"""All kinds of manifests, for whoever checks or rewrites whatever a file has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from eventsources.differences import SOURCE_DIFFERENCES
from eventsources.spec import EventSourceManifest
from sensors.spec.busdifferences import BUS_DIFFERENCES
from sensors.spec.difference import Difference
from sensors.spec.differences import DIFFERENCES
from sensors.spec.eventbus import EventBusManifest
from sensors.spec.loader import Reader
from sensors.spec.manifest import Manifest
from sensors.spec.models import SensorManifest

KINDS: dict[str, type[Manifest]] = {
    model.called: model for model in (SensorManifest, EventSourceManifest, EventBusManifest)
}
ANY_KIND: Reader[Manifest] = Reader(*KINDS.values())

DIFFERENT: Mapping[str, Sequence[Difference]] = {
    "Sensor": DIFFERENCES,
    "EventSource": SOURCE_DIFFERENCES,
    "EventBus": BUS_DIFFERENCES,
}
"""From argo-events, by kind."""
