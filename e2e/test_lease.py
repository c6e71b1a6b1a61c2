"""Leases on a real Kubernetes API server: the same promises as in `tests/eventsources`, with more contenders.

KUBECONFIG names it, and its user must be allowed to create namespaces. The way to it is cut and mended by a relay, so
that the server need not be ours.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from signal import SIGKILL
from typing import Any
from uuid import uuid4

import pytest
from kubernetes import client, config

from tests.eventsources.lease_contract import Contest, LeaseContract

pytestmark = pytest.mark.skipif(
    not os.environ.get("KUBECONFIG"), reason="KUBECONFIG names no cluster whose API server to try this on"
)


class TestRealApiServer(LeaseContract):
    """On the cluster that KUBECONFIG names."""

    number = 8

    @pytest.fixture
    def kubeconfig(self) -> Path:
        return Path(os.environ["KUBECONFIG"])

    @pytest.fixture
    def api(self, kubeconfig: Path) -> Any:
        return config.new_client_from_config(str(kubeconfig))  # type: ignore[no-untyped-call]

    @pytest.fixture
    def namespace(self, api: Any) -> Iterator[str]:
        core, name = client.CoreV1Api(api), f"eventbus-{uuid4().hex[:12]}"
        core.create_namespace({"metadata": {"name": name}})  # type: ignore[arg-type]
        yield name
        core.delete_namespace(name)

    def test_the_official_client_reads_what_was_written(self, contest: Contest, api: Any, namespace: str) -> None:
        contest.leader_after(0)
        lease: Any = client.CoordinationV1Api(api).read_namespaced_lease("eventsource-calendar", namespace)
        assert lease.spec.lease_duration_seconds == 3
        assert lease.spec.lease_transitions >= 1
        assert lease.spec.renew_time >= lease.spec.acquire_time

    def test_another_program_may_change_the_object_meanwhile(self, contest: Contest, api: Any, namespace: str) -> None:
        leader = contest.leader_after(0)
        leases: Any = client.CoordinationV1Api(api)
        leases.patch_namespaced_lease("eventsource-calendar", namespace, {"metadata": {"labels": {"team": "till"}}})
        leader.end(SIGKILL)
        contest.leader_after(leader.last_term)
        assert leases.read_namespaced_lease("eventsource-calendar", namespace).metadata.labels == {"team": "till"}
