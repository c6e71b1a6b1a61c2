"""The actions on a real Kubernetes API server: the same promises as in `tests/actions`.

An API server and its etcd are enough; no node is needed. Where KUBECONFIG names it, its user must be allowed to install
custom resource definitions and to create namespaces.
"""

from __future__ import annotations

import pytest
from kubernetes import client

from e2e.conftest import Kubernetes
from tests.actions.kubernetes_contract import KubernetesActionContract, Watched

_KINDS = {
    "Workflow": "Namespaced",
    "WorkflowTemplate": "Namespaced",
    "CronWorkflow": "Namespaced",
    "ClusterWorkflowTemplate": "Cluster",
}


@pytest.fixture(scope="module", autouse=True)
def _definitions(kubernetes: Kubernetes) -> None:
    """Argo's kinds as its minimal installation has them: any content, no status subresource."""
    api = kubernetes.api()
    definitions = client.ApiextensionsV1Api(api)
    there = {each.metadata.name for each in definitions.list_custom_resource_definition().items if each.metadata}
    missing = {kind: scope for kind, scope in _KINDS.items() if f"{kind.lower()}s.argoproj.io" not in there}
    for kind, scope in missing.items():
        definitions.create_custom_resource_definition(_definition(kind, scope))  # type: ignore[arg-type]
    for kind in missing:
        _wait_until_served(api, f"{kind.lower()}s")


def _definition(kind: str, scope: str) -> dict[str, object]:
    plural = f"{kind.lower()}s"
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.argoproj.io"},
        "spec": {
            "group": "argoproj.io",
            "scope": scope,
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "versions": [{"name": "v1alpha1", "served": True, "storage": True, "schema": schema}],
        },
    }


def _wait_until_served(api: client.ApiClient, plural: str) -> None:
    """A watch of the definition ends when the API server says that it serves the kind."""
    from kubernetes import watch

    definitions = client.ApiextensionsV1Api(api)
    stream = watch.Watch().stream(  # type: ignore[no-untyped-call]
        definitions.list_custom_resource_definition,
        field_selector=f"metadata.name={plural}.argoproj.io",
        timeout_seconds=30,
    )
    for event in stream:
        conditions = event["object"].status.conditions or []
        if any(each.type == "Established" and each.status == "True" for each in conditions):
            return
    pytest.fail(f"the API server does not serve {plural} after 30 s")


@pytest.fixture
def cluster(kubernetes: Kubernetes, kubernetes_namespace: str, monkeypatch: pytest.MonkeyPatch) -> Watched:
    monkeypatch.setenv("KUBECONFIG", str(kubernetes.kubeconfig))
    return Watched(str(kubernetes.kubeconfig), kubernetes_namespace)


class TestRealApiServer(KubernetesActionContract):
    """See there."""
