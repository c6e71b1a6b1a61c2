"""What remains of a resource that is deleted: its topics and its place in them, unless it asks for their end, too.

A resource with the annotation `eventbus.dev/on-delete: drop-topics` gets a finalizer. Its pods go first, and topics
only when nobody can write to them any more. Without the annotation there is no finalizer, and no need of a controller.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from eventbus.bus import Bus
from eventbus.controller.crds import GROUP
from eventbus.controller.objects import Object, Objects
from eventbus.controller.reconcile import BUSES, owned_by
from eventbus.errors import ConfigError
from eventbus.names import BusName, Kind, SensorName, Stage

ON_DELETE = f"{GROUP}/on-delete"
DROP_TOPICS = "drop-topics"
FINALIZER = f"{GROUP}/topics"
_RUNNING = (("apps/v1", "StatefulSet"), ("apps/v1", "Deployment"))


class Retirement:
    """Before and after the end."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    def prepare(self, resource: Object) -> None:
        """See to it that nothing is forgotten, or kept waiting for nothing."""
        wants = (resource["metadata"].get("annotations") or {}).get(ON_DELETE) == DROP_TOPICS
        has = FINALIZER in _finalizers(resource)
        if wants and not has:
            self._set_finalizers(resource, [*_finalizers(resource), FINALIZER])
        elif has and not wants:
            self._release(resource)

    def retire(self, resource: Object, bus: Object | None, pods: Sequence[Object]) -> None:
        """Raises `ConfigError` or `LogError` when the topics cannot be dropped; the resource stays until they can."""
        if FINALIZER not in _finalizers(resource):
            return
        metadata = resource["metadata"]
        for api_version, kind in _RUNNING:
            name = f"{metadata['name']}-{resource['kind'].lower()}"
            found = self._objects.find(api_version, kind, metadata["namespace"], name)
            if found is not None and owned_by(found, metadata["uid"]):
                self._objects.delete(found)
        if pods:
            return
        _drop(_legacy(resource), resource if resource["kind"] == "EventBus" else bus)
        self._release(resource)

    def _release(self, resource: Object) -> None:
        self._set_finalizers(resource, [each for each in _finalizers(resource) if each != FINALIZER])

    def _set_finalizers(self, resource: Object, finalizers: list[str]) -> None:
        version = resource["metadata"]["resourceVersion"]  # so that nobody else's finalizer gets lost
        changed = self._objects.merge(resource, {"metadata": {"finalizers": finalizers, "resourceVersion": version}})
        resource["metadata"] = changed["metadata"]


def _finalizers(resource: Object) -> list[str]:
    found: list[str] = resource["metadata"].get("finalizers") or []
    return found


class _Legacy(msgspec.Struct, frozen=True):
    """What a resource leaves in Kafka."""

    topics: list[str] = []
    groups: list[str] = []
    """They also have a place in the event topic, which stays: whoever comes next under this name begins anew."""


def _legacy(resource: Object) -> _Legacy:
    metadata: dict[str, Any] = resource["metadata"]
    if resource["kind"] == "EventBus":
        name = BusName(metadata["namespace"], metadata["name"])
        return _Legacy([name.event_topic, name.source_topic, name.reject_topic])
    if resource["kind"] != "Sensor":
        return _Legacy()
    bus = BusName(metadata["namespace"], resource["spec"].get("eventBusName") or "default")
    sensor = SensorName(bus, metadata["name"])
    return _Legacy([*map(sensor.topic, Kind), sensor.control_topic], list(map(sensor.group, Stage)))


def _drop(legacy: _Legacy, bus: Object | None) -> None:
    if not legacy.topics:
        return
    if bus is None:
        raise ConfigError(f"its EventBus is gone, so that its topics cannot be dropped: remove `{ON_DELETE}`")
    manifest = BUSES.make(bus)
    with Bus.on(manifest.spec.kafka.connection(), manifest.bus_name) as home:
        home.cluster.forget(legacy.groups)
        home.cluster.delete(legacy.topics)
