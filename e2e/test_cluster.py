"""Pods of the project's own image in a cluster of our own, and what is left of that cluster."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
import yaml
from kubernetes import client

from e2e.cluster.image import PROJECT
from e2e.conftest import Kubernetes
from e2e.waiting import wait_for
from eventbus import Bus
from eventbus.broker import EmbeddedBroker
from tests.eventsources.serving import events_on

pytestmark = pytest.mark.timeout(300)

_SAFE = {
    "runAsNonRoot": True,
    "readOnlyRootFilesystem": True,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
}
_CLOCK = {
    "apiVersion": "eventbus.dev/v1alpha1",
    "kind": "EventSource",
    "metadata": {"name": "clock"},
    "spec": {"calendar": {"tick": {"interval": "1s"}}},
}


@pytest.fixture(autouse=True)
def _own(kubernetes: Kubernetes) -> None:
    kubernetes.cluster()


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(ephemeral=True) as broker:
        yield broker


def container(*arguments: str, **fields: Any) -> dict[str, Any]:
    image = {"name": "main", "image": PROJECT, "imagePullPolicy": "Never", "args": list(arguments)}
    return {**image, "securityContext": _SAFE, **fields}


def test_the_command_runs_in_a_pod_without_any_rights(kubernetes: Kubernetes, kubernetes_namespace: str) -> None:
    core = kubernetes.core()
    spec = {"hostNetwork": True, "restartPolicy": "Never", "containers": [container("--version")]}
    core.create_namespaced_pod(kubernetes_namespace, {"metadata": {"name": "version"}, "spec": spec})

    def ended() -> bool:
        return core.read_namespaced_pod("version", kubernetes_namespace).status.phase in {"Succeeded", "Failed"}

    wait_for(ended, "the pod")
    assert "0.1.0" in core.read_namespaced_pod_log("version", kubernetes_namespace)
    assert core.read_namespaced_pod("version", kubernetes_namespace).status.phase == "Succeeded"


class Clock:
    """Two replicas of an event source that ticks every second."""

    def __init__(self, kubernetes: Kubernetes, namespace: str, bootstrap_servers: str) -> None:
        self.core = kubernetes.core()
        self._api = kubernetes.api()
        self._namespace = namespace
        self.core.create_namespaced_config_map(
            namespace, {"metadata": {"name": "clock"}, "data": {"clock.yaml": yaml.safe_dump(_CLOCK)}}
        )
        options = ["--bootstrap-servers", bootstrap_servers, "--namespace", namespace]
        environment = [{"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]
        mounts = [{"name": "manifests", "mountPath": "/etc/eventbus"}]
        main = container("run", "/etc/eventbus/clock.yaml", *options, env=environment, volumeMounts=mounts)
        spec = {
            "hostNetwork": True,
            "terminationGracePeriodSeconds": 5,
            "containers": [main],
            "volumes": [{"name": "manifests", "configMap": {"name": "clock"}}],
        }
        template = {"metadata": {"labels": {"app": "clock"}}, "spec": spec}
        deployment = {"replicas": 2, "selector": {"matchLabels": {"app": "clock"}}, "template": template}
        client.AppsV1Api(self._api).create_namespaced_deployment(
            namespace,
            {"metadata": {"name": "clock"}, "spec": deployment},  # type: ignore[arg-type]
        )

    def permit_leases(self) -> None:
        rules = [{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "update"]}]
        rights: Any = client.RbacAuthorizationV1Api(self._api)
        rights.create_namespaced_role(self._namespace, {"metadata": {"name": "clock"}, "rules": rules})
        account = {"kind": "ServiceAccount", "name": "default", "namespace": self._namespace}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "clock"}
        binding = {"metadata": {"name": "clock"}, "roleRef": role, "subjects": [account]}
        rights.create_namespaced_role_binding(self._namespace, binding)

    def pods(self) -> list[str]:
        found = self.core.list_namespaced_pod(self._namespace, label_selector="app=clock").items
        return [each.metadata.name for each in found if each.status.phase == "Running"]

    def restarts(self) -> int:
        found = self.core.list_namespaced_pod(self._namespace, label_selector="app=clock").items
        return sum(status.restart_count for each in found for status in each.status.container_statuses or [])

    def log(self, pod: str) -> str:
        return str(self.core.read_namespaced_pod_log(pod, self._namespace))

    def leader(self) -> str:
        """The pod that holds the lease."""
        leases: Any = client.CoordinationV1Api(self._api)
        lease = leases.read_namespaced_lease("eventsource-clock", self._namespace)
        return str(lease.spec.holder_identity).partition("_")[0]


def test_a_pod_leads_another_takes_over_and_no_tick_is_lost(
    kubernetes: Kubernetes, kubernetes_namespace: str, broker: EmbeddedBroker
) -> None:
    clock = Clock(kubernetes, kubernetes_namespace, broker.bootstrap_servers)
    wait_for(lambda: len(clock.pods()) == 2, "two pods")
    pods = clock.pods()
    wait_for(lambda: "403 Forbidden" in clock.log(pods[0]), "a pod to say what it is not permitted")
    clock.permit_leases()
    with Bus.connect(broker.bootstrap_servers, namespace=kubernetes_namespace) as bus:
        wait_for(lambda: len(events_on(bus)) >= 3, "ticks")
        leader = clock.leader()
        assert leader in pods
        clock.core.delete_namespaced_pod(leader, kubernetes_namespace, grace_period_seconds=0)
        wait_for(lambda: clock.leader() != leader, "another leader")
        before = len(events_on(bus))
        wait_for(lambda: len(events_on(bus)) >= before + 3, "more ticks")
        ticks = [datetime.fromisoformat(event.json()["eventTime"]) for event in events_on(bus)]
    assert {later - earlier for earlier, later in pairwise(sorted(ticks))} == {timedelta(seconds=1)}
    assert clock.restarts() == 0
