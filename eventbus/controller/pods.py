"""The pods of sensors and event sources: what they have in common.

A pod has its manifest and the connection to Kafka in one mounted ConfigMap, and every secret that these name as a
mounted file. It needs no access to the Kubernetes API, except for what its actions or its election ask for.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

import msgspec

from eventbus.controller.crds import API_VERSION, GROUP
from eventbus.controller.objects import Object, Objects
from eventbus.controller.rbac import rules_of
from eventbus.controller.references import Reference, references
from eventbus.errors import ConfigError
from eventsources.spec import EventSourceManifest
from sensors.secrets import ConfigMapKeySelector, SecretKeySelector
from sensors.spec.eventbus import EventBusManifest
from sensors.spec.models import SensorManifest
from sensors.spec.podtemplate import PodContainer, PodMetadata, PodTemplate

HEALTH_PORT = 8080
MOST_NAME = 40
"""Kubernetes' limit for a StatefulSet is 52 characters, ours are behind the name."""
DRAIN_SECONDS = 20
_GRACE_SECONDS = 2 * DRAIN_SECONDS
_CONFIG = "/etc/eventbus"
MANIFEST_FILE, BUS_FILE = "manifest.json", "bus.json"
_HASH = f"{GROUP}/config-hash"
_MANAGED = {"app.kubernetes.io/managed-by": "eventbus"}
MANAGED_BY = "app.kubernetes.io/managed-by=eventbus"
_ABOUT_PODS = frozenset(("replicas", "template", "revisionHistoryLimit", "service"))
_RESOURCES = {"requests": {"cpu": "50m", "memory": "128Mi"}}


class PodSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What whoever runs the controller decides about all pods."""

    image: str
    pull_policy: str = "IfNotPresent"


def own_settings(objects: Objects, namespace: str) -> PodSettings:
    """The image of the pod that this runs in. Raises `ConfigError` where this is none, or `ActionError`."""
    name = os.environ.get("POD_NAME")
    pods = objects.list("v1", "Pod", namespace, fields=f"metadata.name={name}") if name else []
    if not pods:
        raise ConfigError("outside of a pod the controller does not know which image to run: name it with --image")
    container = pods[0]["spec"]["containers"][0]
    return PodSettings(image=container["image"], pull_policy=container["imagePullPolicy"])


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """A Sensor or an EventSource whose pods are to run."""

    manifest: SensorManifest | EventSourceManifest
    written: Object
    """The resource as the cluster has it."""
    generation: int
    """When what it does was last changed: of two pods, the one with the higher one takes over."""
    bus: EventBusManifest
    bus_written: Object
    settings: PodSettings

    @property
    def kind(self) -> str:
        return self.manifest.called.lower()

    @property
    def name(self) -> str:
        """Of everything that is made for it."""
        return f"{self.manifest.name}-{self.kind}"

    @property
    def replicas(self) -> int:
        return self.manifest.spec.replicas

    @property
    def template(self) -> PodTemplate:
        return self.manifest.spec.template or PodTemplate()

    @property
    def selector(self) -> dict[str, str]:
        return {f"{GROUP}/{self.kind}": self.manifest.name}

    def labels(self) -> dict[str, str]:
        return {**self.selector, **_MANAGED, "app.kubernetes.io/name": self.name}

    def metadata(self) -> Object:
        return {
            "name": self.name,
            "namespace": self.manifest.namespace,
            "labels": self.labels(),
            "ownerReferences": [_owner(self.written)],
        }

    def account(self) -> str:
        return self.template.serviceAccountName or self.name


def _owner(resource: Mapping[str, Any]) -> Object:
    """Whose end ends everything that was made for it."""
    metadata = resource["metadata"]
    return {
        "apiVersion": API_VERSION,
        "kind": resource["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def config_map(workload: Workload) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": workload.metadata(),
        "data": {
            MANIFEST_FILE: document(workload.written, workload.generation),
            BUS_FILE: document(workload.bus_written, None),
        },
    }


def document(resource: Mapping[str, Any], generation: int | None) -> str:
    """What pods read: nothing that only a cluster adds, nor what is about the pods themselves.

    So a sensor that only gets another number of replicas has the same document, and no pod begins anew.
    """
    metadata = {name: resource["metadata"][name] for name in ("name", "namespace")}
    spec = {name: value for name, value in resource["spec"].items() if name not in _ABOUT_PODS}
    made = {
        "apiVersion": API_VERSION,
        "kind": resource["kind"],
        "metadata": metadata if generation is None else {**metadata, "generation": generation},
        "spec": spec,
    }
    return msgspec.json.encode(made, order="sorted").decode()


def service_account(workload: Workload) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": workload.metadata(),
        "automountServiceAccountToken": False,
    }


def disruption_budget(workload: Workload) -> Object:
    """Of several pods one may be away at a time; a single one may always go, else its node could never be emptied."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": workload.metadata(),
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": workload.selector}},
    }


def pod_template(workload: Workload, arguments: Sequence[str], environment: Sequence[Object] = ()) -> Object:
    """The template of a StatefulSet or Deployment."""
    template = workload.template
    metadata = template.metadata or PodMetadata()
    mounted = references(workload.manifest.spec, workload.bus.spec)
    spec: Object = {
        "serviceAccountName": workload.account(),
        "automountServiceAccountToken": bool(rules_of(workload.manifest)),
        "enableServiceLinks": False,
        # The kernel does not let SIGTERM end the first process of a namespace before that has said what to do about it:
        # a pod that is deleted while it starts would live on until its time is over.
        "shareProcessNamespace": True,
        "terminationGracePeriodSeconds": _GRACE_SECONDS,
        "securityContext": _confined(template.securityContext, {"runAsNonRoot": True}),
        "containers": [_container(workload, template.container or PodContainer(), arguments, environment, mounted)],
        "volumes": [
            {"name": "config", "configMap": {"name": workload.name}},
            {"name": "tmp", "emptyDir": {}},
            *map(_volume, mounted),
            *template.volumes,
        ],
        **_placement(template),
    }
    hashed = sha256("\n".join(config_map(workload)["data"].values()).encode()).hexdigest()
    return {
        "metadata": {
            "labels": {**metadata.labels, **workload.labels()},
            "annotations": {**metadata.annotations, _HASH: hashed},
        },
        "spec": spec,
    }


def _container(
    workload: Workload,
    wanted: PodContainer,
    arguments: Sequence[str],
    environment: Sequence[Object],
    mounted: Sequence[Reference],
) -> Object:
    bus_file = {"name": "EVENTBUS_BUS_FILE", "value": f"{_CONFIG}/{BUS_FILE}"}
    health = ["--health-port", str(HEALTH_PORT), "--drain-seconds", str(DRAIN_SECONDS), "--log-format", "json"]
    return {
        "name": "main",
        "image": workload.settings.image,
        "imagePullPolicy": wanted.imagePullPolicy or workload.settings.pull_policy,
        "command": ["eventbus", "run", f"{_CONFIG}/{MANIFEST_FILE}", *health, *arguments],
        "env": [bus_file, *environment, *wanted.env],
        "envFrom": [*wanted.envFrom],
        "ports": [{"name": "health", "containerPort": HEALTH_PORT}],
        # A pod that starts may have much to read; one that hangs is noticed by its own watch over commits.
        "startupProbe": _probe("/healthz", period=2, failures=60),
        "livenessProbe": _probe("/healthz", period=10, failures=3),
        "readinessProbe": _probe("/readyz", period=2, failures=1),
        "resources": wanted.resources or _RESOURCES,
        "securityContext": {
            "readOnlyRootFilesystem": True,
            **_confined(wanted.securityContext, {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}),
        },
        "volumeMounts": [
            {"name": "config", "mountPath": _CONFIG, "readOnly": True},
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - the only place that can be written to
            *map(_mount, mounted),
            *wanted.volumeMounts,
        ],
    }


def _confined(asked: Mapping[str, Any] | None, fixed: Object) -> Object:
    """What was asked for, as far as it is something: a field that is null would take away what is fixed."""
    given = {name: value for name, value in (asked or {}).items() if value is not None}
    return {**given, "seccompProfile": given.get("seccompProfile") or {"type": "RuntimeDefault"}, **fixed}


def _probe(path: str, *, period: int, failures: int) -> Object:
    return {
        "httpGet": {"path": path, "port": "health"},
        "periodSeconds": period,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }


def _volume(reference: Reference) -> Object:
    kind, named = ("secret", "secretName") if reference.is_secret else ("configMap", "name")
    return {"name": _volume_name(reference), kind: {named: reference.name, "optional": reference.optional}}


def _mount(reference: Reference) -> Object:
    directory = (SecretKeySelector if reference.is_secret else ConfigMapKeySelector).directory[1]
    return {"name": _volume_name(reference), "mountPath": f"{directory}/{reference.name}", "readOnly": True}


def _volume_name(reference: Reference) -> str:
    """Volumes have shorter names than secrets, and without dots."""
    digest = sha256(reference.name.encode()).hexdigest()[:12]
    return f"{'secret' if reference.is_secret else 'config'}-{digest}"


def _placement(template: PodTemplate) -> Object:
    chosen: Object = {
        "nodeSelector": dict(template.nodeSelector),
        "tolerations": [*template.tolerations],
        "imagePullSecrets": [*template.imagePullSecrets],
        "priorityClassName": template.priorityClassName,
        "priority": template.priority,
        "affinity": template.affinity,
    }
    return {name: value for name, value in chosen.items() if value}
