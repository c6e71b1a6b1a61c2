"""Leases as the Kubernetes API has them, and contenders in processes of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from urllib3.exceptions import ConnectTimeoutError

from eventbus.errors import ConfigError
from eventsources.election.kubernetes import KubernetesLeases
from eventsources.election.ports import Conflict, Gone, Record, Seen, Unreachable
from tests.actions.kubernetes_api import Fault, KubernetesApi
from tests.eventsources.lease_contract import LeaseContract

RECORD = Record("me_1", duration=15, transitions=3, acquired_ms=1_700_000_000_000, renewed_ms=1_700_000_002_050)
PLACE = "/apis/coordination.k8s.io/v1/namespaces/shop/leases/eventsource-calendar"
TIMEOUT = 10


@pytest.fixture
def api() -> Iterator[KubernetesApi]:
    server = KubernetesApi()
    yield server
    server.close()


@pytest.fixture
def kubeconfig(api: KubernetesApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = api.write_kubeconfig(tmp_path / "kubeconfig")
    monkeypatch.setenv("KUBECONFIG", str(file))
    return file


@pytest.fixture
def leases(kubeconfig: Path) -> Iterator[KubernetesLeases]:
    store = KubernetesLeases("eventsource-calendar", "shop")
    yield store
    store.close()


def seen(answer: object) -> Seen:
    assert isinstance(answer, Seen)
    return answer


def test_what_is_written_is_what_is_read(leases: KubernetesLeases) -> None:
    assert leases.get(TIMEOUT) == Gone()
    made = seen(leases.create(RECORD, TIMEOUT))
    assert made.record == RECORD
    assert leases.get(TIMEOUT) == made
    changed = Record("", duration=15, transitions=3, acquired_ms=1, renewed_ms=1_700_000_003_000)
    replaced = seen(leases.replace(changed, made.version, TIMEOUT))
    assert (replaced.record, replaced.version != made.version) == (changed, True)


def test_the_object_is_as_kubernetes_wants_it(api: KubernetesApi, leases: KubernetesLeases) -> None:
    leases.create(RECORD, TIMEOUT)
    assert leases.name == "shop/eventsource-calendar"
    assert api.objects[PLACE]["kind"] == "Lease"
    assert api.objects[PLACE]["spec"] == {
        "holderIdentity": "me_1",
        "leaseDurationSeconds": 15,
        "leaseTransitions": 3,
        "acquireTime": "2023-11-14T22:13:20.000000Z",
        "renewTime": "2023-11-14T22:13:22.050000Z",
    }


def test_what_others_have_put_into_the_object_stays(api: KubernetesApi, leases: KubernetesLeases) -> None:
    leases.create(RECORD, TIMEOUT)
    api.objects[PLACE]["metadata"]["labels"] = {"team": "till"}
    api.objects[PLACE]["spec"]["strategy"] = "OldestEmulationVersion"
    leases.replace(RECORD, seen(leases.get(TIMEOUT)).version, TIMEOUT)
    assert api.objects[PLACE]["metadata"]["labels"] == {"team": "till"}
    assert api.objects[PLACE]["spec"]["strategy"] == "OldestEmulationVersion"


def test_an_object_of_another_program_may_say_nothing(api: KubernetesApi, leases: KubernetesLeases) -> None:
    leases.create(RECORD, TIMEOUT)
    del api.objects[PLACE]["spec"]
    found = seen(leases.get(TIMEOUT))
    assert found.record == Record("", 0, 0, 0, 0)
    assert isinstance(leases.replace(RECORD, found.version, TIMEOUT), Seen)


def test_only_one_of_two_writers_wins(leases: KubernetesLeases) -> None:
    version = seen(leases.create(RECORD, TIMEOUT)).version
    assert leases.create(RECORD, TIMEOUT) == Conflict()
    leases.replace(RECORD, version, TIMEOUT)
    assert leases.replace(RECORD, version, TIMEOUT) == Conflict()


def test_a_deleted_lease_is_gone(api: KubernetesApi, leases: KubernetesLeases) -> None:
    version = seen(leases.create(RECORD, TIMEOUT)).version
    api.objects.clear()
    assert leases.replace(RECORD, version, TIMEOUT) == Gone()


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (Fault(403, "Forbidden", "no leases\nfor you"), "the cluster answered 403 Forbidden no leases for you"),
        (Fault(503, "", ""), "the cluster answered 503"),
        (Fault(404, "", "page not found"), "the cluster answered 404 page not found"),
    ],
)
def test_a_refusal_is_told_in_one_line(api: KubernetesApi, leases: KubernetesLeases, fault: Fault, reason: str) -> None:
    def refuse(*_: Any) -> None:
        raise fault

    api.before = refuse
    assert leases.get(TIMEOUT) == Unreachable(reason)


def test_a_namespace_that_is_missing_is_told(api: KubernetesApi, leases: KubernetesLeases) -> None:
    def refuse(*_: Any) -> None:
        raise Fault(404, "NotFound", 'namespaces "shop" not found')

    api.before = refuse
    assert leases.create(RECORD, TIMEOUT) == Unreachable("there is no namespace `shop`")


def test_a_write_whose_answer_is_lost_is_done_once(api: KubernetesApi, leases: KubernetesLeases) -> None:
    version = seen(leases.create(RECORD, TIMEOUT)).version
    api.lose_answer_to = "PUT"
    assert isinstance(leases.replace(RECORD, version, TIMEOUT), Unreachable)
    assert [method for method, _ in api.requests].count("PUT") == 1
    assert seen(leases.get(TIMEOUT)).version != version


def test_a_server_that_is_not_there_is_unreachable(api: KubernetesApi, tmp_path: Path, kubeconfig: Path) -> None:
    kubeconfig.write_text(kubeconfig.read_text().replace(api.url, "http://127.0.0.1:1"))
    store = KubernetesLeases("eventsource-calendar", "shop")
    answer = store.get(TIMEOUT)
    assert isinstance(answer, Unreachable)
    assert "refused" in answer.reason
    assert "\n" not in answer.reason


def test_the_same_failure_has_the_same_words(leases: KubernetesLeases, monkeypatch: pytest.MonkeyPatch) -> None:
    def time_out(*_: Any, **__: Any) -> None:
        raise ConnectTimeoutError(object(), "timed out")

    monkeypatch.setattr(leases._pools, "request", time_out)
    assert leases.get(TIMEOUT) == Unreachable("the cluster: (<object object>, 'timed out')")


def test_who_knows_no_cluster_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(ConfigError, match="there is no Kubernetes cluster"):
        KubernetesLeases("eventsource-calendar", "shop")


class TestProcesses(LeaseContract):
    """On our own server."""

    number = 3

    @pytest.fixture
    def namespace(self) -> str:
        return "shop"
