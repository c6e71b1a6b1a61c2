"""What is applied to the cluster: a bus, the sensor that is tormented, a clock that elects its leader, a receiver."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import yaml
from kubernetes import client

from e2e.chaos.manifest import Mode, manifest
from eventbus.controller.crds import GROUP, RESOURCES, VERSION
from eventbus.controller.pods import MANIFEST_FILE

SENSOR = "chaos"
CONTROLLER = "eventbus-controller"
CLOCK = "clock"
TICK_SECONDS = 1
RECEIVER = "shop"
"""The name that the sensor's dependencies ask for: what is sent to it is as good as what is published."""
RECEIVER_PORT = 12000
_LEASES = {CLOCK: f"eventsource-{CLOCK}", CONTROLLER: CONTROLLER}
_PLURALS = {each.manifest.called: each.plural for each in RESOURCES}


class Resources:
    """Of one namespace."""

    def __init__(self, api: Any, namespace: str) -> None:
        self._namespace = namespace
        self._core: Any = client.CoreV1Api(api)
        self._custom: Any = client.CustomObjectsApi(api)

    def create_bus(self, bootstrap_servers: str) -> None:
        self._create("EventBus", "default", {"kafka": {"url": bootstrap_servers}})

    def create_sensor(self, names: list[str], replicas: int, url: str) -> None:
        spec = yaml.safe_load(manifest(names, Mode.BOTH, url))["spec"]
        self._create("Sensor", SENSOR, {**spec, "replicas": replicas})

    def create_clock(self, replicas: int) -> None:
        self._create(
            "EventSource", CLOCK, {"replicas": replicas, "calendar": {"tick": {"interval": f"{TICK_SECONDS}s"}}}
        )

    def create_receiver(self, names: Sequence[str], replicas: int) -> None:
        endpoints = {name: {"port": RECEIVER_PORT, "endpoint": f"/{name}"} for name in names}
        self._create("EventSource", RECEIVER, {"replicas": replicas, "webhook": endpoints})

    def delete(self, kind: str, name: str) -> None:
        self._custom.delete_namespaced_custom_object(GROUP, VERSION, self._namespace, _PLURALS[kind], name)

    def is_ready(self, kind: str, name: str) -> bool:
        """As the controller sees it."""
        found = self._custom.get_namespaced_custom_object(GROUP, VERSION, self._namespace, _PLURALS[kind], name)
        conditions = found.get("status", {}).get("conditions", ())
        return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

    def sensor_as_mounted(self) -> str:
        """What its pods read: only that has the generation and the defaults that they have."""
        mounted = self._core.read_namespaced_config_map(f"{SENSOR}-sensor", self._namespace)
        return str(mounted.data[MANIFEST_FILE])

    def leader(self, of: str) -> str:
        """The pod that leads those of the clock or of the controller, or that did until its lease runs out."""
        leases: Any = client.CoordinationV1Api(self._core.api_client)
        lease = leases.read_namespaced_lease(_LEASES[of], self._namespace)
        return str(lease.spec.holder_identity).partition("_")[0]

    def _create(self, kind: str, name: str, spec: dict[str, Any]) -> None:
        metadata = {"name": name, "namespace": self._namespace}
        resource = {"apiVersion": f"{GROUP}/{VERSION}", "kind": kind, "metadata": metadata, "spec": spec}
        self._custom.create_namespaced_custom_object(GROUP, VERSION, self._namespace, _PLURALS[kind], resource)
