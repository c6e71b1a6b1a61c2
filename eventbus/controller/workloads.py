"""All Kubernetes objects of one Sensor or EventSource: the same resource always makes the same objects."""

from __future__ import annotations

from collections.abc import Iterator

from eventbus.controller.objects import Object
from eventbus.controller.pods import (
    HEALTH_PORT,
    Workload,
    config_map,
    disruption_budget,
    pod_template,
    service_account,
)
from eventbus.controller.rbac import role, role_binding, rules_of
from eventsources.spec import EventSourceManifest
from sensors.spec.models import SensorManifest

_POD_INDEX = "metadata.labels['apps.kubernetes.io/pod-index']"
_SLOT = "EVENTBUS_SLOT"
_RBAC = "rbac.authorization.k8s.io/v1"
KINDS = frozenset(
    (
        ("v1", "ConfigMap"),
        ("v1", "ServiceAccount"),
        ("v1", "Service"),
        (_RBAC, "Role"),
        (_RBAC, "RoleBinding"),
        ("policy/v1", "PodDisruptionBudget"),
        ("apps/v1", "StatefulSet"),
        ("apps/v1", "Deployment"),
    )
)
"""Whatever may ever have been made for a resource."""


def objects_of(workload: Workload) -> list[Object]:
    """In the order in which they are to be made."""
    return [
        config_map(workload),
        *_identity(workload),
        disruption_budget(workload),
        *_running(workload),
    ]


def _identity(workload: Workload) -> Iterator[Object]:
    """A service account with the least rights; whoever brings one of their own decides what it may do."""
    if workload.account() != workload.name:
        return
    yield service_account(workload)
    rules = rules_of(workload.manifest)
    if rules:
        yield role(workload, rules)
        yield role_binding(workload)


def _running(workload: Workload) -> Iterator[Object]:
    if isinstance(workload.manifest, SensorManifest):
        return _sensor(workload, workload.manifest)
    return _source(workload, workload.manifest)


def _sensor(workload: Workload, manifest: SensorManifest) -> Iterator[Object]:
    """Pods with stable numbers: who takes a number over takes over the unfinished transactions of who had it."""
    yield {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": workload.metadata(),
        "spec": {
            "clusterIP": "None",
            "selector": workload.selector,
            "ports": [{"name": "health", "port": HEALTH_PORT}],
        },
    }
    slot = {"name": _SLOT, "valueFrom": {"fieldRef": {"fieldPath": _POD_INDEX}}}
    spec: Object = {
        "replicas": workload.replicas,
        "serviceName": workload.name,
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": workload.selector},
        "template": pod_template(workload, ["--slot", f"$({_SLOT})"], [slot]),
    }
    limit = manifest.spec.revisionHistoryLimit
    yield {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": workload.metadata(),
        "spec": spec if limit is None else {**spec, "revisionHistoryLimit": limit},
    }


def _source(workload: Workload, manifest: EventSourceManifest) -> Iterator[Object]:
    """Old pods serve until new ones are ready; of those that run once, the election lets one work."""
    ports = sorted(manifest.ports())
    if ports:
        yield {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": workload.metadata(),
            "spec": {
                "selector": workload.selector,
                "ports": [{"name": f"port-{port}", "port": port, "targetPort": port} for port in ports],
                **(manifest.spec.service or {}).get("spec", {}),
            },
        }
    yield {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": workload.metadata(),
        "spec": {
            "replicas": workload.replicas,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "selector": {"matchLabels": workload.selector},
            "template": pod_template(workload, []),
        },
    }
