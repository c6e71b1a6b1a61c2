"""The objects of a resource: the least rights, restricted pods, and no restart without a reason."""

from __future__ import annotations

import json
from typing import Any

import pytest

from eventbus.controller.objects import Object
from eventbus.controller.rbac import Rule, rules_of
from eventbus.controller.reconcile import checked
from eventbus.controller.workloads import KINDS, objects_of
from sensors.spec.problems import ManifestError
from tests.cli.conftest import Command
from tests.controller.resources import bus, sensor, source, workload

POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "job-"}, "spec": {}}

CONFINED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}
CLUSTER_TEMPLATE = {
    "apiVersion": "argoproj.io/v1alpha1",
    "kind": "ClusterWorkflowTemplate",
    "metadata": {"name": "t"},
}


def k8s(written: Object, **more: Any) -> Object:
    return {"k8s": {"source": {"resource": written}, **more}}


def by_kind(written: Object, bus_written: Object | None = None, generation: int = 3) -> dict[str, Object]:
    made = objects_of(workload(written, bus_written, generation))
    assert {(each["apiVersion"], each["kind"]) for each in made} <= KINDS
    assert len({each["kind"] for each in made}) == len(made)
    return {each["kind"]: each for each in made}


def pod_of(made: dict[str, Object]) -> Object:
    pod: Object = (made.get("StatefulSet") or made["Deployment"])["spec"]["template"]
    return pod


def test_a_sensor_becomes_a_stateful_set_whose_pods_know_their_number() -> None:
    made = by_kind(sensor(replicas=3))
    assert made.keys() == {"ConfigMap", "ServiceAccount", "PodDisruptionBudget", "Service", "StatefulSet"}
    assert made["StatefulSet"]["spec"]["replicas"] == 3
    [container] = pod_of(made)["spec"]["containers"]
    assert container["command"][-2:] == ["--slot", "$(EVENTBUS_SLOT)"]
    assert all(each["metadata"]["ownerReferences"][0]["uid"] == "uid-orders" for each in made.values())


def test_a_source_becomes_a_deployment_with_the_ports_it_listens_on() -> None:
    hooks = {"a": {"endpoint": "/a", "port": 12000}, "b": {"endpoint": "/b", "port": 12000}, "c": {"endpoint": "/c"}}
    made = by_kind(source("hooks", webhook=hooks))
    assert [port["port"] for port in made["Service"]["spec"]["ports"]] == [12000]
    assert "Role" not in made
    assert by_kind(source()).keys() >= {"Role", "RoleBinding", "Deployment"}


def test_pods_are_restricted_and_get_no_token_without_need() -> None:
    pod = pod_of(by_kind(sensor()))["spec"]
    [container] = pod["containers"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    assert container["securityContext"] == CONFINED
    assert pod_of(by_kind(source()))["spec"]["automountServiceAccountToken"] is True


def test_pods_are_not_the_first_process_of_their_namespace_so_that_they_can_be_stopped_while_they_start() -> None:
    for each in (sensor(), source()):
        assert pod_of(by_kind(each))["spec"]["shareProcessNamespace"] is True


@pytest.mark.parametrize(
    ("pod", "container"),
    [
        ({"runAsNonRoot": None, "seccompProfile": None}, {"allowPrivilegeEscalation": None, "capabilities": None}),
        ({"seccompProfile": {}}, {"capabilities": {"drop": []}, "seccompProfile": None}),
        ({"fsGroup": 7}, {"readOnlyRootFilesystem": None}),
    ],
)
def test_what_is_left_out_or_empty_takes_no_restriction_away(pod: Object, container: Object) -> None:
    template = {"securityContext": pod, "container": {"securityContext": container}}
    made = pod_of(by_kind(sensor(template=template)))["spec"]
    [main] = made["containers"]
    assert made["securityContext"]["runAsNonRoot"] is True
    assert made["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert made["securityContext"].get("fsGroup") == pod.get("fsGroup")
    assert main["securityContext"] == CONFINED


def test_secrets_of_manifest_and_bus_are_mounted_once_each() -> None:
    password = {"name": "kafka", "key": "password"}
    sasl = {"mechanism": "PLAIN", "userSecret": {"name": "kafka", "key": "user"}, "passwordSecret": password}
    auth = {"username": {"name": "web", "key": "u", "optional": True}, "password": {"name": "web", "key": "p"}}
    http = {"http": {"url": "https://x.example", "basicAuth": auth}}
    pod = pod_of(by_kind(sensor(action=http), bus(sasl=sasl)))["spec"]
    secrets = [each["secret"] for each in pod["volumes"] if "secret" in each]
    assert secrets == [{"secretName": "kafka", "optional": False}, {"secretName": "web", "optional": False}]
    mounts = {each["mountPath"] for each in pod["containers"][0]["volumeMounts"]}
    assert {"/var/run/eventbus/secrets/kafka", "/var/run/eventbus/secrets/web"} <= mounts


@pytest.mark.parametrize(
    ("changes", "restarts"),
    [
        ({}, False),
        ({"replicas": 5}, False),
        ({"startFrom": "earliest"}, True),
        ({"template": {"priorityClassName": "high"}}, True),
    ],
)
def test_only_what_concerns_pods_or_their_work_makes_new_ones(changes: Object, restarts: bool) -> None:
    before, after = pod_of(by_kind(sensor())), pod_of(by_kind(sensor(**changes)))
    assert (before != after) == restarts


def test_another_bus_makes_new_pods() -> None:
    assert pod_of(by_kind(sensor(), bus())) != pod_of(by_kind(sensor(), bus(config={"linger.ms": "7"})))


def test_what_pods_read_is_what_was_written() -> None:
    data = by_kind(sensor(replicas=2), generation=5)["ConfigMap"]["data"]
    manifest = json.loads(data["manifest.json"])
    assert manifest["metadata"] == {"name": "orders", "namespace": "shop", "generation": 5}
    assert "replicas" not in manifest["spec"]
    assert checked(manifest).spec == checked(sensor()).spec
    assert json.loads(data["bus.json"])["spec"]["kafka"]["url"] == "kafka:9092"


def test_whoever_brings_a_service_account_gets_no_role() -> None:
    made = by_kind(sensor(action=k8s(POD), template={"serviceAccountName": "mine"}))
    assert "Role" not in made
    assert "ServiceAccount" not in made
    assert pod_of(made)["spec"]["serviceAccountName"] == "mine"


@pytest.mark.parametrize(
    ("action", "rules"),
    [
        (k8s(POD), [Rule("", "pods", ("create", "get"))]),
        (k8s(POD, operation="delete"), [Rule("", "pods", ("delete",))]),
        (k8s(POD, operation="patch"), [Rule("", "pods", ("create", "get", "patch"))]),
        (
            k8s({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "n"}}),
            [Rule("networking.k8s.io", "networkpolicies", ("create", "get"))],
        ),
        (
            k8s(
                {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "n"}}, operation="update"
            ),
            [Rule("networking.k8s.io", "ingresses", ("create", "get", "update"))],
        ),
        (
            {"argoWorkflow": {"operation": "retry", "source": {"resource": {"metadata": {"name": "w"}, **POD}}}},
            [Rule("", "pods", ("delete", "list")), Rule("argoproj.io", "workflows", ("get", "update"))],
        ),
        ({"log": {}}, []),
    ],
)
def test_the_rights_follow_from_the_triggers(action: Object, rules: list[Rule]) -> None:
    assert rules_of(checked(sensor(action=action))) == rules


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (k8s({**POD, "metadata": {"name": "p", "namespace": "kube-system"}}), "`kube-system` is not the sensor's"),
        (k8s({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}), "no rights on `Secret` are given"),
        (
            k8s({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "s"}}),
            "it would let the sensor give itself rights",
        ),
        (k8s({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}}), "it belongs to no namespace"),
        (
            {"argoWorkflow": {"operation": "submit-from", "source": {"resource": CLUSTER_TEMPLATE}}},
            "it belongs to no namespace",
        ),
        ({"k8s": {"source": {"url": {"path": "https://x.example/pod.yaml"}}}}, "is not known before"),
    ],
)
def test_what_no_role_is_made_for_is_refused(action: Object, message: str, cli: Command, tmp_path: Any) -> None:
    with pytest.raises(ManifestError) as error:
        checked(sensor(action=action))
    assert message in str(error.value)
    checked(sensor(action=action, template={"serviceAccountName": "mine"}))
    file = tmp_path / "sensor.yaml"
    file.write_text(json.dumps(sensor(action=action)))
    answer = cli("rbac", file)
    assert answer.code == 2
    assert message in answer.err


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ({"volumes": [{"name": "h", "hostPath": {"path": "/"}}]}, "`hostPath` volumes are not allowed"),
        ({"container": {"securityContext": {"privileged": True}}}, "`privileged: true` is not allowed"),
        ({"securityContext": {"runAsUser": 0}}, "`runAsUser: 0` is not allowed"),
        ({"securityContext": {"runAsNonRoot": False}}, "`runAsNonRoot: false` is not allowed"),
        ({"container": {"securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}}, "capabilities cannot be added"),
        ({"securityContext": {"seccompProfile": {"type": "Unconfined"}}}, "`Unconfined` is not allowed"),
        ({"securityContext": {"sysctls": [{"name": "x"}]}}, "`sysctls` cannot be set"),
    ],
)
@pytest.mark.parametrize("make", [sensor, source])
def test_a_hostile_template_is_refused(make: Any, template: Object, message: str) -> None:
    spec = {} if make is sensor else {"calendar": {"tick": {"interval": "1m"}}}
    with pytest.raises(ManifestError) as error:
        checked(make(template=template, **spec))
    assert message in str(error.value)


def test_a_name_without_room_behind_it_is_refused() -> None:
    with pytest.raises(ManifestError, match="longer than 40 characters"):
        checked(sensor("x" * 41))
