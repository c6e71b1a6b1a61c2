"""The custom resource definitions of Sensor, EventSource and EventBus, made from the models that check manifests."""

from __future__ import annotations

from typing import Any, NamedTuple

from eventbus.controller.structural import Schema, structural
from eventsources.spec import EventSourceManifest
from sensors.spec.eventbus import EventBusManifest
from sensors.spec.manifest import Manifest
from sensors.spec.models import SensorManifest
from sensors.spec.schema import manifest_schema

GROUP = "eventbus.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"


class Resource(NamedTuple):
    """A kind of custom resource."""

    manifest: type[Manifest]
    plural: str
    short: str
    columns: tuple[tuple[str, str], ...] = ()
    """Beside those that all have: title and path."""
    scales: bool = False


RESOURCES = (
    Resource(
        SensorManifest,
        "sensors",
        "sn",
        (("Bus", ".spec.eventBusName"), ("Replicas", ".status.replicas")),
        scales=True,
    ),
    Resource(
        EventSourceManifest,
        "eventsources",
        "es",
        (("Bus", ".spec.eventBusName"), ("Replicas", ".status.replicas")),
        scales=True,
    ),
    Resource(EventBusManifest, "eventbuses", "eb"),
)

_DEFAULTS = {"eventBusName": "default", "replicas": 1}
"""What `kubectl get` and autoscalers want to see; of the rest it matters who has written it."""
_TEXT: Schema = {"type": "string"}
_NUMBER: Schema = {"type": "integer"}
_CONDITION: Schema = {
    "type": "object",
    "required": ["type", "status"],
    "properties": {
        "type": _TEXT,
        "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
        "reason": _TEXT,
        "message": _TEXT,
        "observedGeneration": _NUMBER,
        "lastTransitionTime": {"type": "string", "format": "date-time"},
    },
}
_STATUS: Schema = {
    "type": "object",
    "properties": {
        "observedGeneration": _NUMBER,
        "replicas": _NUMBER,
        "selector": _TEXT,
        "conditions": {
            "type": "array",
            "items": _CONDITION,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
        },
    },
    # The controller's framework keeps notes of its own there.
    "x-kubernetes-preserve-unknown-fields": True,
}


def definitions() -> list[dict[str, Any]]:
    """All of them, as `kubectl apply` takes them."""
    return [_definition(each) for each in RESOURCES]


def _definition(resource: Resource) -> dict[str, Any]:
    kind = resource.manifest.called
    names = {
        "kind": kind,
        "listKind": f"{kind}List",
        "plural": resource.plural,
        "singular": kind.lower(),
        "shortNames": [resource.short],
        "categories": ["eventing"],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{resource.plural}.{GROUP}"},
        "spec": {"group": GROUP, "names": names, "scope": "Namespaced", "versions": [_version(resource)]},
    }


def _version(resource: Resource) -> dict[str, Any]:
    scale = {
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    }
    return {
        "name": VERSION,
        "served": True,
        "storage": True,
        "subresources": {"status": {}, **({"scale": scale} if resource.scales else {})},
        "additionalPrinterColumns": [*_columns(resource)],
        "schema": {"openAPIV3Schema": _schema(resource.manifest)},
    }


def _schema(manifest: type[Manifest]) -> Schema:
    made = structural(manifest_schema(manifest))
    spec = made["properties"]["spec"]
    for name, default in _DEFAULTS.items():
        if name in spec["properties"]:
            spec["properties"][name]["default"] = default
    properties = {"apiVersion": _TEXT, "kind": _TEXT, "metadata": {"type": "object"}}
    return {
        "type": "object",
        "description": made["description"],
        "required": ["spec"],
        "properties": {**properties, "spec": spec, "status": _STATUS},
    }


def _columns(resource: Resource) -> list[dict[str, str]]:
    def of_condition(kind: str, field: str) -> str:
        return f'.status.conditions[?(@.type=="{kind}")].{field}'

    texts = [
        *resource.columns,
        ("Ready", of_condition("Ready", "status")),
        ("Healthy", of_condition("Healthy", "status")),
        ("Message", of_condition("Ready", "message")),
    ]
    made = [{"name": title, "type": "string", "jsonPath": path} for title, path in texts]
    return [*made, {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}]
