"""The `k8s` and `argoWorkflow` actions against a server of our own: what they promise, and how they fail."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.actions.kubernetes_api import KubernetesApi
from tests.actions.kubernetes_contract import KubernetesActionContract, Watched


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[KubernetesApi]:
    server = KubernetesApi()
    monkeypatch.setenv("KUBECONFIG", str(server.write_kubeconfig(tmp_path / "kubeconfig")))
    yield server
    server.close()


@pytest.fixture
def cluster(api: KubernetesApi, tmp_path: Path) -> Watched:
    return Watched(str(tmp_path / "kubeconfig"), "shop")


class TestContract(KubernetesActionContract):
    """On a server in this process."""
