"""From a resource to what has to be there for it, and from what is there to the resource's status.

Everything is applied each time, whatever was there before: so whoever was killed half-way, or has missed something,
leaves nothing for good. Objects of a resource are owned by it; when it goes, they go.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from eventbus.controller.conditions import Condition
from eventbus.controller.crds import API_VERSION
from eventbus.controller.health import health
from eventbus.controller.objects import Object, Objects
from eventbus.controller.pods import MANIFEST_FILE, MOST_NAME, PodSettings, Workload, document
from eventbus.controller.rbac import rbac_flaws
from eventbus.controller.workloads import KINDS, objects_of
from eventsources.spec import MANIFESTS, EventSourceManifest
from sensors.actions.kube.cluster import Refusal
from sensors.spec.eventbus import EventBusManifest
from sensors.spec.loader import Reader, unplaced
from sensors.spec.manifest import Manifest
from sensors.spec.models import SensorManifest
from sensors.spec.problems import ManifestError, Problem

BUSES = Reader(EventBusManifest)
_FAILED_MOUNT = "FailedMount"


class Waiting(Exception):
    """What a resource needs is not there yet. It is looked for again and again."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Outcome(msgspec.Struct, frozen=True):
    """What is to be said about a resource."""

    conditions: list[Condition]
    workload: Workload | None = None


class Reconciler:
    """Of Sensors and EventSources. Whatever it does, it can do again."""

    def __init__(self, objects: Objects, settings: PodSettings) -> None:
        self._objects = objects
        self._settings = settings

    def reconcile(self, resource: Object, pods: Sequence[Object]) -> Outcome:
        """Make it so. Raises `ActionError` when the cluster cannot be asked."""
        kinds = _PROVISIONS[resource["kind"]]
        try:
            manifest = checked(resource)
        except ManifestError as error:
            return Outcome([Condition(kind, False, "Invalid", str(error)) for kind in (*kinds, "Ready")])
        provided = [Condition(kind, True, "Valid") for kind in kinds]
        try:
            workload = self._workload(resource, manifest)
            self._apply(workload)
        except Waiting as reason:
            waits = [Condition(kind, False, reason.reason, str(reason)) for kind in ("Deployed", "Ready")]
            return Outcome([*provided, *waits])
        deployed = Condition("Deployed", True, "Applied")
        conditions = health(pods, workload.replicas, dict(self._mount_failures(manifest.namespace, pods)))
        return Outcome([*provided, deployed, *conditions], workload)

    # --- what is wanted ---------------------------------------------------------------------------------------------

    def _workload(self, resource: Object, manifest: SensorManifest | EventSourceManifest) -> Workload:
        bus_written, bus = self._bus(manifest)
        return Workload(
            manifest=manifest,
            written=resource,
            generation=self._generation(resource, manifest),
            bus=bus,
            bus_written=bus_written,
            settings=self._settings,
        )

    def _bus(self, manifest: SensorManifest | EventSourceManifest) -> tuple[Object, EventBusManifest]:
        name = manifest.spec.eventBusName
        written = self._objects.find(API_VERSION, "EventBus", manifest.namespace, name)
        if written is None:
            raise Waiting("EventBusMissing", f"there is no EventBus `{name}` in the namespace `{manifest.namespace}`")
        try:
            return written, BUSES.make(written)
        except ManifestError as error:
            raise Waiting("EventBusInvalid", f"the EventBus `{name}`: {error}") from None

    def _generation(self, resource: Object, manifest: Manifest) -> int:
        """When what it does was last changed: pods that do the same must not begin anew."""
        current: int = resource["metadata"]["generation"]
        known = self._objects.find("v1", "ConfigMap", manifest.namespace, f"{manifest.name}-{manifest.called.lower()}")
        text = ((known or {}).get("data") or {}).get(MANIFEST_FILE)
        if text is None:
            return current
        before: int = msgspec.json.decode(text)["metadata"]["generation"]
        return before if document(resource, before) == text else current

    # --- what is there ----------------------------------------------------------------------------------------------

    def _apply(self, workload: Workload) -> None:
        wanted = objects_of(workload)
        owner = workload.written["metadata"]["uid"]
        for each in wanted:
            self._apply_one(each, owner)
        for api_version, kind in KINDS - {(each["apiVersion"], each["kind"]) for each in wanted}:
            found = self._objects.find(api_version, kind, workload.manifest.namespace, workload.name)
            if found is not None and owned_by(found, owner):
                self._objects.delete(found)

    def _apply_one(self, target: Object, owner: str) -> None:
        kind, metadata = target["kind"], target["metadata"]
        found = self._objects.find(target["apiVersion"], kind, metadata["namespace"], metadata["name"])
        if found is not None and not owned_by(found, owner):
            message = f"there is a {kind} `{metadata['name']}` already, which is not this resource's: remove it"
            raise Waiting("NameTaken", message)
        try:
            self._objects.apply(target)
        except Refusal as refusal:
            if refusal.retriable and not refusal.denied:
                raise
            raise Waiting("Refused", f"{kind} `{metadata['name']}`: {refusal}") from None

    def _mount_failures(self, namespace: str, pods: Sequence[Object]) -> Iterator[tuple[str, str]]:
        """Only events tell which secret is missing."""
        names = {pod["metadata"]["name"] for pod in pods if pod.get("status", {}).get("phase") == "Pending"}
        for event in self._objects.list("v1", "Event", namespace, fields=f"reason={_FAILED_MOUNT}") if names else ():
            about = event.get("involvedObject", {}).get("name")
            if about in names:
                yield about, " ".join(str(event.get("message")).split())


_PROVISIONS = {"Sensor": ("DependenciesProvided", "TriggersProvided"), "EventSource": ("SourcesProvided",)}
"""As argo-events calls them."""


def checked(resource: Mapping[str, Any]) -> SensorManifest | EventSourceManifest:
    """The same checks as on the command line, and what concerns only a cluster. Raises `ManifestError`."""
    manifest = MANIFESTS.make(resource)
    assert isinstance(manifest, SensorManifest | EventSourceManifest)  # noqa: S101 - the reader knows no other
    problems = [*_cluster_problems(manifest)]
    if problems:
        raise ManifestError(problems)
    return manifest


def _cluster_problems(manifest: SensorManifest | EventSourceManifest) -> Iterator[Problem]:
    if len(manifest.name) > MOST_NAME:
        yield Problem(f"the name is longer than {MOST_NAME} characters, and pods need room behind it", "metadata.name")
    if manifest.spec.template is None or manifest.spec.template.serviceAccountName is None:
        yield from map(unplaced, rbac_flaws(manifest))


def owned_by(found: Mapping[str, Any], owner: str) -> bool:
    return any(each.get("uid") == owner for each in found["metadata"].get("ownerReferences") or ())
