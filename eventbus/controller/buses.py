"""What can be said about an EventBus: whether Kafka can be reached, and its topics are as they should be.

Kafka may take long to answer, or never do: it is asked by other threads, and the controller goes on meanwhile.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

from eventbus.bus import Bus
from eventbus.clock import SystemClock
from eventbus.controller.conditions import Condition
from eventbus.controller.objects import Object
from eventbus.controller.reconcile import BUSES, Outcome
from eventbus.errors import ConfigError, EventBusError
from eventbus.kafka.connection import Connection
from eventbus.names import BusName
from eventbus.ports import Clock
from sensors.spec.problems import ManifestError

_AGAIN_SECONDS = 30.0
_THREADS = 4


class BusKeeper:
    """Remembers what was found out last."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="buses")
        self._checks: dict[tuple[str, int], tuple[float, Future[Condition]]] = {}

    def look(self, resource: Object) -> Outcome:
        """What is known by now; the first time, that is little."""
        try:
            manifest = BUSES.make(resource)
        except ManifestError as error:
            return Outcome([Condition("Ready", False, "Invalid", str(error))])
        try:
            connection = manifest.spec.kafka.connection()
        except ConfigError as error:
            message = f"the controller cannot look: {error}. Pods check topics when they start"
            return Outcome([Condition("Ready", None, "NotChecked", message)])
        return Outcome([self._last(resource, connection, manifest.bus_name)])

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _last(self, resource: Object, connection: Connection, name: BusName) -> Condition:
        uid, generation = resource["metadata"]["uid"], resource["metadata"]["generation"]
        known = self._checks.get((uid, generation))
        now = self._clock.monotonic()
        if known is None or (known[1].done() and now - known[0] > _AGAIN_SECONDS):
            self._checks = {key: check for key, check in self._checks.items() if key[0] != uid}
            known = self._checks[uid, generation] = now, self._threads.submit(_check, connection, name)
        return known[1].result() if known[1].done() else _meanwhile(resource)


def _check(connection: Connection, name: BusName) -> Condition:
    try:
        with Bus.on(connection, name) as bus:
            partitions = bus.ensure()
    except ConfigError as error:
        return Condition("Ready", False, "TopicsWrong", str(error))
    except EventBusError as error:
        return Condition("Ready", False, "Unreachable", str(error))
    return Condition("Ready", True, "TopicsReady", f"{name.event_topic} has {partitions} partitions")


def _meanwhile(resource: Object) -> Condition:
    """What was said before, while it is looked at again."""
    for each in (resource.get("status") or {}).get("conditions") or ():
        if each["type"] == "Ready" and each.get("observedGeneration") == resource["metadata"]["generation"]:
            status = {"True": True, "False": False}.get(each["status"])
            return Condition("Ready", status, each["reason"], each.get("message", ""))
    return Condition("Ready", None, "Checking", "Kafka has not answered yet")
