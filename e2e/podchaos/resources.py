"""What is applied to the cluster: definitions, a bus, the sensor that is tormented, a clock that elects its leader."""

from __future__ import annotations

from typing import Any

import yaml
from kubernetes import client

from e2e.chaos.manifest import Mode, manifest
from eventbus.controller.crds import GROUP, RESOURCES, VERSION, definitions
from eventbus.controller.pods import MANIFEST_FILE

SENSOR = "chaos"
CLOCK = "clock"
TICK_SECONDS = 1
_PLURALS = {each.manifest.called: each.plural for each in RESOURCES}


class Resources:
    """Of one namespace."""

    def __init__(self, api: Any, namespace: str) -> None:
        self._namespace = namespace
        self._core: Any = client.CoreV1Api(api)
        self._custom: Any = client.CustomObjectsApi(api)
        self._definitions: Any = client.ApiextensionsV1Api(api)

    def define(self) -> None:
        """Also where it is done already."""
        for each in definitions():
            try:
                self._definitions.create_custom_resource_definition(each)
            except client.ApiException as error:
                if error.status != 409:
                    raise

    def defined(self) -> bool:
        served = [self._definitions.read_custom_resource_definition(each["metadata"]["name"]) for each in definitions()]
        return all(
            any(condition.type == "Established" and condition.status == "True" for condition in each.status.conditions)
            for each in served
        )

    def create_bus(self, bootstrap_servers: str) -> None:
        self._create("EventBus", "default", {"kafka": {"url": bootstrap_servers}})

    def create_sensor(self, names: list[str], replicas: int, url: str) -> None:
        spec = yaml.safe_load(manifest(names, Mode.BOTH, url))["spec"]
        self._create("Sensor", SENSOR, {**spec, "replicas": replicas})

    def create_clock(self, replicas: int) -> None:
        self._create(
            "EventSource", CLOCK, {"replicas": replicas, "calendar": {"tick": {"interval": f"{TICK_SECONDS}s"}}}
        )

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

    def leader(self) -> str:
        """The pod that leads the clock's, or that did until its lease runs out."""
        leases: Any = client.CoordinationV1Api(self._core.api_client)
        lease = leases.read_namespaced_lease(f"eventsource-{CLOCK}", self._namespace)
        return str(lease.spec.holder_identity).partition("_")[0]

    def _create(self, kind: str, name: str, spec: dict[str, Any]) -> None:
        metadata = {"name": name, "namespace": self._namespace}
        resource = {"apiVersion": f"{GROUP}/{VERSION}", "kind": kind, "metadata": metadata, "spec": spec}
        self._custom.create_namespaced_custom_object(GROUP, VERSION, self._namespace, _PLURALS[kind], resource)
