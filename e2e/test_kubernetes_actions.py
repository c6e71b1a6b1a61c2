"""The actions on a real Kubernetes API server: the same promises as in `tests/actions`.

An API server and its etcd are enough; no node is needed. KUBECONFIG names it, and its user must be allowed to install
custom resource definitions and to create namespaces.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from uuid import uuid4

import pytest
from kubernetes import client, config

from tests.actions.kubernetes_contract import KubernetesActionContract, Watched

pytestmark = pytest.mark.skipif(
    not os.environ.get("KUBECONFIG"), reason="KUBECONFIG names no cluster whose API server to try this on"
)

_KINDS = {
    "Workflow": "Namespaced",
    "WorkflowTemplate": "Namespaced",
    "CronWorkflow": "Namespaced",
    "ClusterWorkflowTemplate": "Cluster",
}


@pytest.fixture(scope="module")
def kubeconfig() -> str:
    return os.environ["KUBECONFIG"]


@pytest.fixture(scope="module", autouse=True)
def _definitions(kubeconfig: str) -> None:
    """Argo's kinds as its minimal installation has them: any content, no status subresource."""
    api = config.new_client_from_config(kubeconfig)  # type: ignore[no-untyped-call]
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
def cluster(kubeconfig: str) -> Iterator[Watched]:
    """A namespace of its own for every test, with the service account that pods need."""
    watched = Watched(kubeconfig, f"eventbus-{uuid4().hex[:12]}")
    watched.core.create_namespace({"metadata": {"name": watched.namespace}})
    try:
        watched.core.create_namespaced_service_account(watched.namespace, {"metadata": {"name": "default"}})
    except client.ApiException as error:
        if error.status != 409:  # a controller was faster
            raise
    yield watched
    watched.core.delete_namespace(watched.namespace)


class TestRealApiServer(KubernetesActionContract):
    """On the cluster that KUBECONFIG names."""
