"""The `k8s` and `argoWorkflow` actions against a server of our own: what they promise, and how they fail."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from eventbus.bus import Bus
from eventbus.errors import ConfigError
from eventbus.events import Event
from sensors.actions.base import ActionCall, ActionContext, ActionError
from sensors.actions.k8s import K8sAction, K8sSpec
from sensors.actions.kube.cluster import Address, Cluster, ResourceType
from sensors.actions.kube.policy import LabelWatch
from sensors.sensor import Sensor
from sensors.spec.policy import Backoff, Policy, ResourcePolicy
from tests.actions.conftest import Certificate, make_call
from tests.actions.kubernetes_api import TOKEN, Fault, KubernetesApi
from tests.actions.kubernetes_contract import KubernetesActionContract, Watched, call_with, config_map, parameter


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


# --- failures -------------------------------------------------------------------------------------------------------


def make_action(policy: dict[str, Any] | None = None, **fields: Any) -> K8sAction:
    applied = Policy() if policy is None else Policy.model_validate({"k8s": policy})
    context = ActionContext(sensor="orders", namespace="shop", bootstrap_servers="", partitions={}, policy=applied)
    return K8sAction(K8sSpec.model_validate(fields), context)


def creating(name: str = "made") -> K8sAction:
    return make_action(source={"resource": config_map(name)})


def failure_of(action: K8sAction, call: ActionCall | None = None) -> ActionError:
    with pytest.raises(ActionError) as caught:
        action.invoke(call or call_with())
    assert TOKEN not in str(caught.value)
    return caught.value


def answer_writes_with(api: KubernetesApi, fault: Fault) -> None:
    def before(method: str, _path: str) -> None:
        if method != "GET":
            raise fault

    api.before = before


@pytest.mark.parametrize(
    ("fault", "retriable", "retry_after"),
    [
        (Fault(409, "Conflict", "not now"), False, None),
        (Fault(422, "Invalid", "no such field"), False, None),
        (Fault(429, "TooManyRequests", "slowly", {"Retry-After": "7"}), True, 7.0),
        (Fault(500, "InternalError", "etcd is away"), True, None),
        (Fault(503, "ServiceUnavailable", "later", {"Retry-After": "3"}), True, 3.0),
        (Fault(504, "Timeout", "too late"), True, None),
    ],
)
def test_a_refusal_says_whether_to_try_again(
    api: KubernetesApi, fault: Fault, retriable: bool, retry_after: float | None
) -> None:
    answer_writes_with(api, fault)
    error = failure_of(creating())
    assert str(error) == f"the cluster answered {fault.code} {fault.reason}: {fault}"
    assert (error.retriable, error.sent, error.status) == (retriable, True, str(fault.code))
    assert error.retry_after == retry_after
    assert api.objects == {}


def test_who_is_denied_has_done_nothing_and_may_be_granted_it_later(api: KubernetesApi) -> None:
    answer_writes_with(api, Fault(403, "Forbidden", "you may not"))
    error = failure_of(creating())
    assert str(error) == "the cluster answered 403 Forbidden: you may not"
    assert (error.retriable, error.sent, error.status) == (True, False, "403")


def test_a_cluster_that_is_down_has_got_nothing(api: KubernetesApi) -> None:
    action = creating()
    api.close()
    error = failure_of(action)
    assert (error.retriable, error.sent) == (True, False)
    assert str(error) == "the cluster: no connection: Connection refused"


def test_an_answer_that_is_lost_may_mean_success_and_a_repetition_finds_out(api: KubernetesApi) -> None:
    api.lose_answer_to = "POST"
    error = failure_of(creating())
    assert (error.retriable, error.sent) == (True, True)
    api.lose_answer_to = None
    assert creating().invoke(call_with()) == "created before configmaps/shop/made"
    assert [method for method, _ in api.requests].count("POST") == 2
    assert len(api.objects) == 1


def test_a_read_that_is_not_answered_has_changed_nothing(api: KubernetesApi) -> None:
    api.lose_answer_to = "GET"
    error = failure_of(creating())
    assert (error.retriable, error.sent) == (True, False)


def test_an_update_begins_anew_when_somebody_else_was_faster(api: KubernetesApi) -> None:
    path = "/api/v1/namespaces/shop/configmaps/shared"
    make_action(source={"resource": config_map("shared", {"a": "old"})}).invoke(call_with(id="first"))
    left = [2]

    def interfere(method: str, _path: str) -> None:
        if method == "PUT" and left[0]:
            left[0] -= 1
            api.touch(path)

    api.before = interfere
    update = make_action(operation="update", source={"resource": config_map("shared", {"a": "new"})})
    assert update.invoke(call_with()) == "updated configmaps/shop/shared"
    assert api.objects[path]["data"].keys() == {"a", "touched"}
    assert api.objects[path]["data"]["a"] == "new"
    left[0] = 99
    error = failure_of(update, call_with(id="action-2"))
    assert str(error) == "configmaps/shop/shared was changed by others 5 times while it was being changed"
    assert (error.retriable, error.sent) == (True, False)


def test_the_api_is_asked_about_a_kind_once(api: KubernetesApi) -> None:
    action = make_action(source={"resource": config_map("", generateName="x-")})
    for number in range(3):
        action.invoke(call_with(id=f"action-{number}"))
    assert [path for method, path in api.requests if method == "GET"] == ["/api/v1"]


def test_many_threads_make_one_object(api: KubernetesApi) -> None:
    action = make_action(source={"resource": config_map("", generateName="x-")})
    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(lambda _: action.invoke(call_with()), range(16)))
    assert len(api.objects) == 1
    assert sum(status.startswith("created configmaps") for status in done) == 1


def test_a_long_prefix_still_makes_a_name_of_63_characters(api: KubernetesApi) -> None:
    make_action(source={"resource": config_map("", generateName="x" * 80 + "-")}).invoke(call_with())
    [path] = api.objects
    assert len(path.rpartition("/")[2]) == 63


def test_a_trigger_whose_name_is_no_label_gets_none(api: KubernetesApi) -> None:
    creating().invoke(make_call(trigger="_odd_"))
    [made] = api.objects.values()
    assert made["metadata"]["labels"].keys() == {
        "events.argoproj.io/sensor",
        "events.argoproj.io/action-timestamp",
    }


# --- policy ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def address(api: KubernetesApi) -> Address:
    creating().invoke(call_with())
    return Address(ResourceType("v1", "configmaps", True), "shop", "made")


def test_a_policy_waits_for_labels(api: KubernetesApi, address: Address) -> None:
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            [made] = api.objects.values()
            made["metadata"]["labels"]["phase"] = "Succeeded"

    backoff = Backoff(steps=5, duration=timedelta(seconds=10), factor=2, jitter=0)
    policy = ResourcePolicy(labels={"phase": "Succeeded"}, backoff=backoff, errorOnBackoffTimeout=True)
    LabelWatch(Cluster(), policy, sleep, lambda: 0.0).wait(call_with(), address)
    assert pauses == [10, 20, 40]


def test_a_policy_waits_no_longer_than_an_hour(api: KubernetesApi, address: Address) -> None:
    clock = [0.0]

    def sleep(seconds: float) -> None:
        clock[0] += seconds

    backoff = Backoff(steps=10**6, duration=timedelta(minutes=10), jitter=0)
    policy = ResourcePolicy(labels={"phase": "Succeeded"}, backoff=backoff)
    LabelWatch(Cluster(), policy, sleep, lambda: clock[0]).wait(call_with(), address)
    assert clock[0] == 3600


def test_a_policy_looks_again_after_a_cluster_that_was_away_for_a_moment(api: KubernetesApi, address: Address) -> None:
    left = [2]

    def before(_method: str, _path: str) -> None:
        left[0] -= 1
        if left[0] >= 0:
            raise Fault(503, "ServiceUnavailable", "one moment")

    api.before = before
    policy = ResourcePolicy(labels={"events.argoproj.io/sensor": "orders"}, errorOnBackoffTimeout=True)
    LabelWatch(Cluster(), policy, lambda _: None).wait(call_with(), address)
    assert left[0] < 0


def test_a_policy_that_may_not_look_has_failed_after_the_fact(api: KubernetesApi, address: Address) -> None:
    def before(_method: str, _path: str) -> None:
        raise Fault(403, "Forbidden", "look away")

    api.before = before
    with pytest.raises(ActionError, match=r"configmaps/shop/made cannot be looked at: .* 403 Forbidden") as caught:
        LabelWatch(Cluster(), ResourcePolicy(labels={"a": "b"}), lambda _: None).wait(call_with(), address)
    assert (caught.value.retriable, caught.value.sent) == (False, True)
    assert len(api.requests) > 1, "it may have been granted meanwhile"


# --- what an event may change ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "dest",
    ["kind", "apiVersion", "metadata.namespace", "spec.serviceAccountName", "spec.template.spec.hostPID", "metadata"],
)
def test_a_sensor_that_lets_events_change_what_an_object_may_do_does_not_start(api: KubernetesApi, dest: str) -> None:
    fields: dict[str, Any] = {"source": {"resource": config_map("x")}, "parameters": [parameter("total", dest)]}
    with pytest.raises(ConfigError, match=f"`dest: {dest}`: an event must not change .* list it in `allowParameters`"):
        make_action(**fields)
    make_action(**fields, allowParameters=[dest])


def test_an_event_cannot_smuggle_it_in_either(api: KubernetesApi) -> None:
    raw = parameter("value", "data.x")
    raw["src"]["useRawData"] = True
    action = make_action(source={"resource": config_map("x")}, parameters=[raw])
    error = failure_of(action, call_with({"value": {"securityContext": {"privileged": True}}}))
    assert "an event must not bring its own `securityContext`" in str(error)
    assert (error.retriable, error.sent) == (False, False)


def test_what_is_fetched_is_protected_as_well(api: KubernetesApi, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(
        "{apiVersion: v1, kind: Pod, metadata: {name: x}, spec: {serviceAccountName: a}}"
    )
    source = {"file": {"path": str(tmp_path / "job.yaml")}}
    error = failure_of(make_action(source=source, parameters=[parameter("total", "spec")]))
    assert "an event must not change `serviceAccountName`" in str(error)


def test_an_allowed_namespace_is_used(api: KubernetesApi) -> None:
    move = parameter("to", "metadata.namespace")
    action = make_action(
        source={"resource": config_map("x")}, parameters=[move], allowParameters=["metadata.namespace"]
    )
    assert action.invoke(call_with({"to": "elsewhere"})) == "created configmaps/elsewhere/x"
    error = failure_of(action, call_with({"to": "../../x"}))
    assert "cannot be the namespace of an object" in str(error)


# --- configuration --------------------------------------------------------------------------------------------------


def test_without_the_client_there_is_one_clear_message(api: KubernetesApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    with pytest.raises(ConfigError, match=r"pip install 'kafka-eventbus\[kubernetes\]'"):
        creating()


def test_without_a_cluster_there_is_one_clear_message(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(ConfigError, match="there is no Kubernetes cluster to act on"):
        creating()


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", "clusters: 1", "current-context: x"),
        *("users: [{token: canary-1", "token: canary-2\n\t- x", "- canary-3", "users: canary-4", "'canary-5"),
    ],
)
def test_a_damaged_configuration_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str) -> None:
    (tmp_path / "broken").write_text(text)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "broken"))
    with pytest.raises(ConfigError, match=r"^KUBECONFIG=.*broken cannot be used: [^\n]+$") as caught:
        creating()
    assert "canary" not in str(caught.value)


def test_a_wrong_token_is_refused_and_not_shown(api: KubernetesApi, tmp_path: Path) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text(file.read_text().replace(TOKEN, "other-canary-77"))
    error = failure_of(creating())
    assert str(error) == "the cluster answered 401 Unauthorized: who are you?"
    assert (error.retriable, error.sent) == (True, False)


def test_the_certificate_of_the_cluster_is_verified(
    certificate: Certificate, foreign_certificate: Certificate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = KubernetesApi(certificate.server_context())
    try:
        trusting, doubting = tmp_path / "trusting", tmp_path / "doubting"
        server.write_kubeconfig(trusting, **{"certificate-authority": str(certificate.cert)})
        server.write_kubeconfig(doubting, **{"certificate-authority": str(foreign_certificate.cert)})
        monkeypatch.setenv("KUBECONFIG", str(trusting))
        assert creating().invoke(call_with()) == "created configmaps/shop/made"
        monkeypatch.setenv("KUBECONFIG", str(doubting))
        error = failure_of(creating())
    finally:
        server.close()
    assert "TLS" in str(error)
    assert (error.retriable, error.sent) == (True, False)


# --- a whole sensor -------------------------------------------------------------------------------------------------

SENSOR = """
apiVersion: argoproj.io/v1alpha1
kind: Sensor
metadata: {name: orders, namespace: shop}
spec:
  dependencies:
    - {name: paid, eventSourceName: till, eventName: paid}
  triggers:
    - template:
        name: ship
        argoWorkflow:
          operation: submit
          source:
            resource:
              apiVersion: argoproj.io/v1alpha1
              kind: Workflow
              metadata: {generateName: ship-}
              spec: {entrypoint: main, arguments: {parameters: [{name: order, value: none}]}}
          parameters:
            - {src: {dependencyName: paid, dataKey: order}, dest: spec.arguments.parameters.0.value}
      policy:
        k8s:
          labels: {workflows.argoproj.io/phase: Succeeded}
          backoff: {steps: 2, duration: 1ms}
          errorOnBackoffTimeout: true
      retryStrategy: {steps: 2, duration: 1ms}
      atLeastOnce: true
"""


def test_events_become_workflows(api: KubernetesApi, tmp_path: Path) -> None:
    """The workflow never succeeds, which its policy minds; it is submitted once all the same."""
    (tmp_path / "sensor.yaml").write_text(SENSOR)
    sensor = Sensor.load(tmp_path / "sensor.yaml")
    with Bus.memory(namespace="shop") as bus, sensor.start(bus) as running:
        running.wait_ready()
        bus.publish(Event.new("till", "paid", {"order": "7"}))
        running.settle()
    [made] = api.objects.values()
    assert made["spec"]["arguments"]["parameters"] == [{"name": "order", "value": "7"}]
    assert made["metadata"]["labels"]["events.argoproj.io/trigger"] == "ship"
    submissions = [path for method, path in api.requests if method == "POST"]
    assert submissions == ["/apis/argoproj.io/v1alpha1/namespaces/shop/workflows"] * 2
