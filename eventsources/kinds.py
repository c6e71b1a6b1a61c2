"""All kinds of manifests, for whoever checks or rewrites whatever a file has."""

from __future__ import annotations

from eventsources.spec import EventSourceManifest
from sensors.spec.eventbus import EventBusManifest
from sensors.spec.loader import Reader
from sensors.spec.manifest import Manifest
from sensors.spec.models import SensorManifest

KINDS: dict[str, type[Manifest]] = {
    model.called: model for model in (SensorManifest, EventSourceManifest, EventBusManifest)
}
ANY_KIND: Reader[Manifest] = Reader(*KINDS.values())
