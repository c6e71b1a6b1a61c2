"""Leases on a real Kubernetes API server: the same promises as in `tests/eventsources`, with more contenders.

The way to it is cut and mended by a relay, so that the server need not be ours. Where it is, it is killed, too.
"""

from __future__ import annotations

from pathlib import Path
from signal import SIGKILL
from typing import Any

import pytest
from kubernetes import client

from e2e.conftest import Kubernetes
from tests.eventsources.lease_contract import Contest, LeaseContract

LEASE = "eventsource-calendar"

pytestmark = pytest.mark.timeout(400)


class TestRealApiServer(LeaseContract):
    """See there."""

    number = 8

    @pytest.fixture
    def kubeconfig(self, kubernetes: Kubernetes) -> Path:
        return kubernetes.kubeconfig

    @pytest.fixture
    def namespace(self, kubernetes_namespace: str) -> str:
        return kubernetes_namespace

    @pytest.fixture
    def leases(self, kubernetes: Kubernetes) -> Any:
        return client.CoordinationV1Api(kubernetes.api())

    def test_the_official_client_reads_what_was_written(self, contest: Contest, leases: Any, namespace: str) -> None:
        contest.leader_after(0)
        lease = leases.read_namespaced_lease(LEASE, namespace)
        assert lease.spec.lease_duration_seconds == 3
        assert lease.spec.lease_transitions >= 1
        assert lease.spec.renew_time >= lease.spec.acquire_time

    def test_another_program_may_change_the_object_meanwhile(
        self, contest: Contest, leases: Any, namespace: str
    ) -> None:
        leader = contest.leader_after(0)
        leases.patch_namespaced_lease(LEASE, namespace, {"metadata": {"labels": {"team": "till"}}})
        leader.end(SIGKILL)
        contest.leader_after(leader.last_term)
        assert leases.read_namespaced_lease(LEASE, namespace).metadata.labels == {"team": "till"}

    def test_a_leader_whose_lease_is_deleted_stops_and_the_terms_are_counted_on(
        self, contest: Contest, leases: Any, namespace: str
    ) -> None:
        leader = contest.leader_after(0)
        losses, term = leader.losses, contest.last_term
        leases.delete_namespaced_lease(LEASE, namespace)
        contest.wait_for_loss(leader, losses)
        contest.leader_after(term)

    def test_nobody_leads_while_the_api_server_is_dead_and_somebody_does_when_it_lives_again(
        self, contest: Contest, kubernetes: Kubernetes
    ) -> None:
        cluster = kubernetes.cluster()
        leader = contest.leader_after(0)
        losses, term = leader.losses, contest.last_term
        cluster.kill_api_server()
        try:
            contest.wait_for_loss(leader, losses)
        finally:
            cluster.start_api_server()
        contest.leader_after(term)
