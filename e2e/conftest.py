"""What several end-to-end tests use."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import pytest
from kubernetes import client, config

from e2e.cluster import Cluster
from e2e.cluster.building import lacking, not_built


class Kubernetes(NamedTuple):
    """A real one, whose user may do everything."""

    kubeconfig: Path
    own: Cluster | None
    """None where KUBECONFIG names one, which nobody may stop."""

    def cluster(self) -> Cluster:
        """For tests that stop servers, or run pods of our own image."""
        if self.own is None:
            pytest.skip("KUBECONFIG names a cluster that is not ours to stop, and that does not have our image")
        return self.own

    def core(self) -> Any:
        return client.CoreV1Api(self.api())

    def api(self) -> Any:
        return config.new_client_from_config(str(self.kubeconfig))  # type: ignore[no-untyped-call]


@pytest.fixture(scope="session")
def kubernetes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubernetes]:
    """The one that KUBECONFIG names, or one of our own for all tests together."""
    named = os.environ.get("KUBECONFIG")
    if named:
        yield Kubernetes(Path(named), None)
        return
    reason = lacking() or not_built()
    if reason is not None:
        pytest.skip(reason)
    with Cluster() as own:
        yield Kubernetes(own.kubeconfig, own)
        shutil.copytree(own.logs, tmp_path_factory.mktemp("kubernetes") / "logs")


@pytest.fixture
def kubernetes_namespace(kubernetes: Kubernetes) -> Iterator[str]:
    """A namespace of its own for every test, with the service account that pods need."""
    core, name = kubernetes.core(), f"eventbus-{uuid4().hex[:12]}"
    core.create_namespace({"metadata": {"name": name}})
    try:
        core.create_namespaced_service_account(name, {"metadata": {"name": "default"}})
    except client.ApiException as error:
        if error.status != 409:  # a controller was faster
            raise
    yield name
    core.delete_namespace(name)
