"""The controller: looks at all resources again and again, and makes the cluster agree with them.

It does not follow changes, it compares: so nothing that was missed, half done or undone by somebody else stays. A look
costs four lists; a resource is worked on when it, its bus or its pods have changed, and now and then in any case.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge

from eventbus.clock import SystemClock
from eventbus.controller.buses import BusKeeper
from eventbus.controller.conditions import told
from eventbus.controller.crds import API_VERSION, GROUP
from eventbus.controller.notices import Noticeboard, notices
from eventbus.controller.objects import Object, Objects
from eventbus.controller.pods import MANAGED_BY, PodSettings
from eventbus.controller.reconcile import Outcome, Reconciler
from eventbus.controller.retirement import Retirement
from eventbus.errors import EventBusError
from eventbus.ports import Clock
from eventsources.election.ports import Election, Stop
from sensors.actions.base import ActionError

LOOK_SECONDS = 2.0
_AGAIN_SECONDS = 30.0
_STUCK_SECONDS = 300.0

log = logging.getLogger("eventbus.controller")


class _Worked(msgspec.Struct, frozen=True):
    """When a resource was last worked on, and what was known of it then."""

    seen: Hashable
    at: float


class Controller:
    """Of one namespace, or of all. A `sensors.health.Part`."""

    name = "controller"
    slot = ""

    def __init__(
        self, objects: Objects, settings: PodSettings, namespace: str | None, clock: Clock | None = None
    ) -> None:
        self.registry = CollectorRegistry()
        self._resources = Gauge(
            "eventbus_controller_resources",
            "Sensors, EventSources and EventBuses",
            ["kind", "ready"],
            registry=self.registry,
        )
        self._failures = Counter(
            "eventbus_controller_failures", "What could not be done, and is tried again", registry=self.registry
        )
        self._begun: float | None = None
        """When it began to lead, or has last looked at everything."""
        self._objects = objects
        self._reconciler = Reconciler(objects, settings)
        self._buses = BusKeeper(clock)
        self._retirement = Retirement(objects)
        self._noticeboard = Noticeboard(objects)
        self._namespace = namespace
        self._clock = clock or SystemClock()
        self._worked: dict[str, _Worked] = {}

    def complaints(self) -> list[str]:
        """Why it should be restarted."""
        silent = 0.0 if self._begun is None else self._clock.monotonic() - self._begun
        return [f"it has looked at nothing for {silent:.0f} s"] if silent > _STUCK_SECONDS else []

    def waiting_for(self) -> list[str]:
        """Whoever does not lead is ready to."""
        return []

    def run(self, election: Election, stop: Stop) -> None:
        """While it is elected. What was known before may be wrong when it is elected again."""
        while election.wait_until_leading(stop) is not None:
            log.info("this controller leads")
            self._worked = {}
            while election.leading and not stop.is_set():
                self._begun = self._clock.monotonic()
                try:
                    self.look(lambda: election.leading)
                except ActionError as error:
                    self._failures.inc()
                    log.warning("%s; looking again in %g s", error, LOOK_SECONDS)
                stop.wait(LOOK_SECONDS)
            self._begun = None

    def look(self, may_go_on: Callable[[], bool] = lambda: True) -> None:
        """Once. Raises `ActionError` when the cluster cannot be asked; trouble with one resource is only told."""
        buses = {_key(each): each for each in self._list("EventBus")}
        pods: dict[tuple[str, str, str], list[Object]] = defaultdict(list)
        for pod in self._objects.list("v1", "Pod", self._namespace, labels=MANAGED_BY):
            pods[_owner_of_pod(pod)].append(pod)
        resources = [*buses.values(), *self._list("Sensor"), *self._list("EventSource")]
        self._take_stock(resources)
        for resource in resources:
            if not may_go_on():
                return
            bus = buses.get((resource["metadata"]["namespace"], resource["spec"].get("eventBusName") or "default"))
            own = pods[resource["metadata"]["namespace"], resource["kind"].lower(), resource["metadata"]["name"]]
            self._work(resource, bus, own)

    def _list(self, kind: str) -> list[Object]:
        """Items of a list do not say what they are."""
        found = self._objects.list(API_VERSION, kind, self._namespace)
        return [{"apiVersion": API_VERSION, "kind": kind, **each} for each in found]

    def _work(self, resource: Object, bus: Object | None, pods: list[Object]) -> None:
        uid, now = resource["metadata"]["uid"], self._clock.monotonic()
        seen = _version(resource), bus and bus["metadata"]["generation"], frozenset(map(_version, pods))
        before = self._worked.get(uid)
        known = before is not None and before.seen == seen and now - before.at < _AGAIN_SECONDS
        if known and resource["kind"] != "EventBus":  # whose news come from Kafka
            return
        try:
            if resource["metadata"].get("deletionTimestamp"):
                self._retirement.retire(resource, bus, pods)
                return
            self._retirement.prepare(resource)
            written = self._tell(resource, self._outcome(resource, pods))
        except (ActionError, EventBusError) as error:
            self._failures.inc()
            log.warning("%s %s/%s: %s", resource["kind"], *_key(resource), error)
        else:
            self._worked[uid] = _Worked((_version(written), *seen[1:]), now)

    def _outcome(self, resource: Object, pods: list[Object]) -> Outcome:
        if resource["kind"] == "EventBus":
            return self._buses.look(resource)
        return self._reconciler.reconcile(resource, pods)

    def _tell(self, resource: Object, outcome: Outcome) -> Object:
        """Returns the resource as it is then."""
        before = resource.get("status") or {}
        generation = resource["metadata"]["generation"]
        known, now = before.get("conditions") or (), datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        conditions = told(outcome.conditions, known, generation, now)
        status: Object = {"observedGeneration": generation, "conditions": conditions}
        if outcome.workload is not None:
            selector = outcome.workload.selector
            status |= {"replicas": outcome.workload.replicas, "selector": ",".join(map("=".join, selector.items()))}
        if all(before.get(name) == value for name, value in status.items()):
            return resource
        written = self._objects.merge(resource, {"status": status}, "status")
        self._noticeboard.put_up(resource, notices(outcome.conditions, known), now)
        return written

    def _take_stock(self, resources: list[Object]) -> None:
        uids = {each["metadata"]["uid"] for each in resources}
        self._worked = {uid: worked for uid, worked in self._worked.items() if uid in uids}
        self._resources.clear()
        for each in resources:
            self._resources.labels(each["kind"], _readiness(each)).inc()


def _key(resource: Mapping[str, Any]) -> tuple[str, str]:
    return resource["metadata"]["namespace"], resource["metadata"]["name"]


def _version(resource: Mapping[str, Any]) -> tuple[str, str]:
    return resource["metadata"]["uid"], resource["metadata"]["resourceVersion"]


def _readiness(resource: Mapping[str, Any]) -> str:
    conditions = (resource.get("status") or {}).get("conditions") or ()
    return next((str(each["status"]) for each in conditions if each["type"] == "Ready"), "Unknown")


def _owner_of_pod(pod: Mapping[str, Any]) -> tuple[str, str, str]:
    labels = pod["metadata"].get("labels") or {}
    for kind in ("sensor", "eventsource"):
        if f"{GROUP}/{kind}" in labels:
            return pod["metadata"]["namespace"], kind, labels[f"{GROUP}/{kind}"]
    return pod["metadata"]["namespace"], "", ""
