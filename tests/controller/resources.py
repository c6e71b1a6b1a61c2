"""Resources as a cluster has them, and what is made of them."""

from __future__ import annotations

from typing import Any

from eventbus.controller.objects import Object
from eventbus.controller.pods import PodSettings, Workload
from eventbus.controller.reconcile import BUSES, checked

SETTINGS = PodSettings(image="eventbus:test")
DEPENDENCY = {"name": "paid", "eventSourceName": "shop", "eventName": "paid"}


def metadata(name: str, **more: Any) -> Object:
    return {"name": name, "namespace": "shop", "uid": f"uid-{name}", "generation": 3, "resourceVersion": "7", **more}


def resource(kind: str, name: str, spec: Object, **more: Any) -> Object:
    made = metadata(name, **more)
    return {"apiVersion": "eventbus.dev/v1alpha1", "kind": kind, "metadata": made, "spec": spec}


def sensor(name: str = "orders", *, action: Object | None = None, **spec: Any) -> Object:
    template = {"name": "ship", "conditions": "paid", **(action or {"log": {}})}
    return resource("Sensor", name, {"dependencies": [DEPENDENCY], "triggers": [{"template": template}], **spec})


def source(name: str = "clock", **spec: Any) -> Object:
    return resource("EventSource", name, spec or {"calendar": {"tick": {"interval": "1m"}}})


def bus(name: str = "default", **kafka: Any) -> Object:
    return resource("EventBus", name, {"kafka": {"url": "kafka:9092", **kafka}})


def workload(written: Object, bus_written: Object | None = None, generation: int = 3) -> Workload:
    manifest = checked(written)
    connected = bus_written or bus()
    return Workload(
        manifest=manifest,
        written=written,
        generation=generation,
        bus=BUSES.make(connected),
        bus_written=connected,
        settings=SETTINGS,
    )
