"""The webhook: asked over TLS as an API server asks, with the certificate that it has made itself."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from threading import Thread

import msgspec
import pytest
import urllib3

from eventbus.controller.admission import admission, reviewed
from eventbus.controller.certificates import CONFIGURATION, SECRET, Certificate, ensure_certificate, make_trusted
from eventbus.controller.objects import Object, Objects
from eventsources.receiver.server import Server
from sensors.actions.kube.cluster import Cluster
from tests.actions.kubernetes_api import KubernetesApi
from tests.controller.resources import bus, sensor

HOST = "eventbus-webhook.eventbus.svc"


def request(resource: Object, operation: str = "CREATE") -> Object:
    return {"uid": "u-1", "operation": operation, "object": resource}


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[KubernetesApi]:
    made = KubernetesApi()
    monkeypatch.setenv("KUBECONFIG", str(made.write_kubeconfig(tmp_path / "config")))
    yield made
    made.close()


@pytest.fixture
def objects(api: KubernetesApi) -> Objects:
    return Objects(Cluster())


def ask(server: Server, certificate: Certificate, body: bytes, method: str = "POST") -> urllib3.BaseHTTPResponse:
    trusted = ssl.create_default_context(cadata=certificate.certificate)
    pool = urllib3.HTTPSConnectionPool(
        "127.0.0.1", server.port, ssl_context=trusted, server_hostname=HOST, assert_hostname=HOST
    )
    try:
        return pool.request(method, "/validate", body=body, retries=False, timeout=10)
    finally:
        pool.close()


@pytest.fixture
def served(objects: Objects) -> Iterator[tuple[Server, Certificate]]:
    certificate = ensure_certificate(objects, "eventbus")
    server = Server(admission, 0, certificate.context(), 1)
    server.start()
    yield server, certificate
    server.stop()


def test_it_answers_over_tls(served: tuple[Server, Certificate]) -> None:
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request(sensor())}
    answer = ask(*served, msgspec.json.encode(review))
    assert answer.status == 200
    assert answer.json() == {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {"uid": "u-1", "allowed": True, "warnings": []},
    }


@pytest.mark.parametrize(
    ("body", "method", "status"), [(b"{", "POST", 400), (b"[]", "POST", 400), (b"{}", "POST", 400), (b"", "GET", 405)]
)
def test_what_is_no_review_is_told(served: tuple[Server, Certificate], body: bytes, method: str, status: int) -> None:
    assert ask(*served, body, method).status == status


def test_a_refusal_says_what_and_where() -> None:
    wrong = sensor(triggers=[{"template": {"name": "ship", "conditions": "paid && shipped", "log": {}}}])
    answer = reviewed(request(wrong))
    assert answer["allowed"] is False
    assert answer["status"]["code"] == 422
    told = "spec.triggers[0].template.conditions: there is no dependency `shipped`; known are `paid` (column 9)"
    assert answer["status"]["message"] == told


@pytest.mark.parametrize("operation", ["DELETE", "CONNECT"])
def test_nobody_is_kept_from_deleting(operation: str) -> None:
    assert reviewed(request(sensor(triggers=[]), operation))["allowed"] is True


def test_the_end_of_a_resource_does_not_wait_for_its_being_right() -> None:
    going = sensor(triggers=[])
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert reviewed(request(going, "UPDATE"))["allowed"] is True


def test_a_bus_is_checked_too() -> None:
    assert reviewed(request(bus()))["allowed"] is True
    assert "`acks`" in reviewed(request(bus(producer={"acks": "1"})))["status"]["message"]


def test_all_replicas_have_one_certificate(api: KubernetesApi, objects: Objects) -> None:
    made: list[Certificate] = []
    threads = [Thread(target=lambda: made.append(ensure_certificate(objects, "eventbus"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({each.certificate for each in made}) == 1
    assert list(api.objects) == [f"/api/v1/namespaces/eventbus/secrets/{SECRET}"]


def test_one_that_ends_soon_is_made_anew(api: KubernetesApi, objects: Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("eventbus.controller.certificates._LIFETIME", timedelta(days=300))
        old = ensure_certificate(objects, "eventbus")
    new = ensure_certificate(objects, "eventbus")
    assert new != old
    assert ensure_certificate(objects, "eventbus") == new
    [secret] = api.objects.values()
    del secret["data"]["tls.key"]
    assert ensure_certificate(objects, "eventbus") != new


def test_the_api_server_is_told_whom_to_trust(api: KubernetesApi, objects: Objects) -> None:
    certificate = ensure_certificate(objects, "eventbus")
    assert not make_trusted(objects, certificate)
    place = f"/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/{CONFIGURATION}"
    webhook = {"name": "manifests.eventbus.dev", "clientConfig": {"service": {"name": "x", "namespace": "y"}}}
    api.objects[place] = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": CONFIGURATION, "resourceVersion": "1"},
        "webhooks": [webhook],
    }
    assert make_trusted(objects, certificate)
    [told] = api.objects[place]["webhooks"]
    assert told["clientConfig"]["caBundle"]
    assert told["clientConfig"]["service"] == webhook["clientConfig"]["service"]  # type: ignore[index]
    api.requests.clear()
    assert make_trusted(objects, certificate)
    assert [method for method, _ in api.requests] == ["GET"]
