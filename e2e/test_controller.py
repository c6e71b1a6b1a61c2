"""`kubectl apply` is all that an operator does: installed as documented, on a real cluster."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from threading import Event as Flag
from typing import Any

import pytest
import yaml

from e2e.cluster import Cluster
from e2e.conftest import Kubernetes
from e2e.installation import DEPLOY, Kubectl, installed
from e2e.waiting import wait_for
from eventbus import Bus, Event
from eventbus.broker import EmbeddedBroker
from eventbus.controller.crds import definitions
from tests.eventsources.serving import events_on

pytestmark = pytest.mark.timeout(600)

_API = "eventbus.dev/v1alpha1"
_HOME = "eventbus"
"""The namespace of the controller."""
_AWAY_SECONDS = 60.0


class Operator(Kubectl):
    """Has a broker, too, that pods can reach."""

    def __init__(self, cluster: Cluster, broker: EmbeddedBroker) -> None:
        super().__init__(cluster.kubeconfig)
        self.cluster = cluster
        self.bus_url = cluster.network.bootstrap_servers(broker)
        self.bootstrap_servers = broker.bootstrap_servers

    def apply(self, *documents: dict[str, Any]) -> str:
        return self.kubectl("apply", "-f", "-", text=yaml.safe_dump_all(documents))

    def get(self, kind: str, name: str, namespace: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.kubectl("get", kind, name, "-n", namespace, "-o", "json"))
        return found

    def condition(self, kind: str, name: str, namespace: str, type_: str) -> dict[str, Any]:
        conditions = self.get(kind, name, namespace).get("status", {}).get("conditions", [])
        return next((each for each in conditions if each["type"] == type_), {"status": "", "message": ""})

    def wait_until(self, kind: str, name: str, namespace: str, type_: str, status: str = "True") -> dict[str, Any]:
        def reached() -> bool:
            return bool(self.condition(kind, name, namespace, type_)["status"] == status)

        try:
            wait_for(reached, f"{kind} {name} to be {type_}={status}")
        except AssertionError:
            told = self.condition(kind, name, namespace, "Ready")
            raise AssertionError(f"{kind} {name}: {told}\n{self.controller_logs(_HOME)}") from None
        return self.condition(kind, name, namespace, type_)


def _resource(kind: str, name: str, namespace: str, spec: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": _API,
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace, **metadata},
        "spec": spec,
    }


def _sensor(name: str, namespace: str, **spec: Any) -> dict[str, Any]:
    dependency = {"name": "paid", "eventSourceName": "shop", "eventName": "paid"}
    written = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"generateName": "paid-"},
        "data": {"order": "none"},
    }
    parameter = {"src": {"dependencyName": "paid", "dataKey": "id"}, "dest": "data.order"}
    action = {"k8s": {"source": {"resource": written}, "parameters": [parameter]}}
    trigger = {"template": {"name": "note", "conditions": "paid", **action}}
    return _resource("Sensor", name, namespace, {"dependencies": [dependency], "triggers": [trigger], **spec})


@pytest.fixture(scope="module")
def operator(kubernetes: Kubernetes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    """Everything is installed as README says."""
    cluster = kubernetes.cluster()
    with EmbeddedBroker(ephemeral=True, further=cluster.network.listener()) as broker:
        made = Operator(cluster, broker)
        with installed(made, "cluster-wide", _HOME, tmp_path_factory.mktemp("overlay")):
            yield made


@pytest.fixture
def home(operator: Operator, kubernetes_namespace: str) -> str:
    """A namespace that enforces Kubernetes' strictest standard, and has a bus."""
    label = "pod-security.kubernetes.io/enforce=restricted"
    operator.kubectl("label", "namespace", kubernetes_namespace, label)
    operator.apply(_resource("EventBus", "default", kubernetes_namespace, {"kafka": {"url": operator.bus_url}}))
    return kubernetes_namespace


def _made_by_sensor(operator: Operator, namespace: str) -> list[str]:
    found = operator.kubectl("get", "configmaps", "-n", namespace, "-l", "events.argoproj.io/sensor", "-o", "json")
    return sorted(each["data"]["order"] for each in json.loads(found)["items"])


def test_from_apply_to_action_and_back(operator: Operator, home: str) -> None:
    operator.wait_until("eventbus", "default", home, "Ready")
    operator.apply(_sensor("orders", home, replicas=2))
    ready = operator.wait_until("sensor", "orders", home, "Ready")
    assert ready["message"] == "2 of 2 replicas take part"
    assert operator.condition("sensor", "orders", home, "Healthy")["status"] == "True"
    with Bus.connect(operator.bootstrap_servers, namespace=home) as bus:
        bus.publish_all(Event.new("shop", "paid", {"id": f"o-{number}"}) for number in range(20))
    expected = sorted(f"o-{number}" for number in range(20))
    wait_for(lambda: _made_by_sensor(operator, home) == expected, "what the actions make")
    told = operator.kubectl("describe", "sensor", "orders", "-n", home)
    assert "AllReplicasReady" in told.partition("Events:")[2]
    operator.kubectl("delete", "sensor", "orders", "-n", home)
    wait_for(lambda: "orders-sensor" not in operator.kubectl("get", "pods", "-n", home), "the pods to go")


def _first_pod(operator: Operator, namespace: str) -> str:
    """Its uid; nothing while there is none."""
    wanted = "--ignore-not-found", "-o", "jsonpath={.metadata.uid}"
    return operator.kubectl("get", "pod", "orders-sensor-0", "-n", namespace, *wanted)


def test_scaling_restarts_nobody_and_another_spec_does(operator: Operator, home: str) -> None:
    operator.apply(_sensor("orders", home))
    operator.wait_until("sensor", "orders", home, "Ready")
    first = _first_pod(operator, home)
    assert first
    operator.kubectl("scale", "sensor", "orders", "-n", home, "--replicas=2")
    wait_for(lambda: "orders-sensor-1" in operator.kubectl("get", "pods", "-n", home), "another replica")
    operator.wait_until("sensor", "orders", home, "Ready")
    assert _first_pod(operator, home) == first
    operator.apply(_sensor("orders", home, replicas=2, startFrom="earliest"))
    wait_for(lambda: _first_pod(operator, home) not in ("", first), "a new pod")
    operator.wait_until("sensor", "orders", home, "Ready")


def test_what_could_not_run_is_refused_in_the_words_of_the_command_line(operator: Operator, home: str) -> None:
    wrong = _sensor("wrong", home)
    wrong["spec"]["triggers"][0]["template"]["conditions"] = "paid && shipped"
    refused = operator.run("apply", "-f", "-", text=yaml.safe_dump(wrong))
    assert refused.returncode != 0
    file = operator.cluster.logs / "wrong.yaml"
    file.write_text(yaml.safe_dump(wrong))
    command = [sys.executable, "-m", "eventbus", "validate", str(file)]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    sentence = "there is no dependency `shipped`; known are `paid`"
    assert sentence in told.stdout + told.stderr
    assert sentence in refused.stderr


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ({"volumes": [{"name": "h", "hostPath": {"path": "/"}}]}, "`hostPath` volumes are not allowed"),
        ({"container": {"securityContext": {"privileged": True}}}, "`privileged: true` is not allowed"),
    ],
)
def test_a_hostile_sensor_is_refused(operator: Operator, home: str, template: dict[str, Any], message: str) -> None:
    refused = operator.run("apply", "-f", "-", text=yaml.safe_dump(_sensor("hostile", home, template=template)))
    assert refused.returncode != 0
    assert message in refused.stderr


@pytest.mark.parametrize(
    ("resource", "message"),
    [
        (
            {"apiVersion": "v1", "kind": "Secret", "metadata": {"generateName": "theirs-"}},
            "no rights on `Secret` are given: whoever may create or change secrets can read what belongs to others",
        ),
        (
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "theirs", "namespace": "kube-system"}},
            "the namespace `kube-system` is not the sensor's",
        ),
    ],
)
def test_a_sensor_that_reaches_for_others_things_is_refused(
    operator: Operator, home: str, resource: dict[str, Any], message: str
) -> None:
    sensor = _sensor("grabber", home)
    sensor["spec"]["triggers"][0]["template"]["k8s"] = {"source": {"resource": resource}}
    refused = operator.run("apply", "-f", "-", text=yaml.safe_dump(sensor))
    assert refused.returncode != 0
    assert message in refused.stderr


def test_rights_that_the_controller_does_not_have_cannot_be_had_through_it(operator: Operator, home: str) -> None:
    sensor = _sensor("grabber", home)
    [trigger] = sensor["spec"]["triggers"]
    trigger["template"]["k8s"]["source"]["resource"] = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "open"},
    }
    del trigger["template"]["k8s"]["parameters"]
    operator.apply(sensor)
    refused = operator.wait_until("sensor", "grabber", home, "Deployed", "False")
    assert refused["reason"] == "Refused"
    assert "permissions not currently held" in refused["message"]


def test_a_sensor_waits_for_its_bus_and_its_secret(operator: Operator, kubernetes_namespace: str) -> None:
    home = kubernetes_namespace
    secured = {"username": {"name": "web", "key": "user"}, "password": {"name": "web", "key": "password"}}
    sensor = _sensor("orders", home)
    [trigger] = sensor["spec"]["triggers"]
    trigger["template"] = {
        "name": "call",
        "conditions": "paid",
        "http": {"url": "http://10.0.0.1:1/", "basicAuth": secured},
    }
    operator.apply(sensor)
    waits = operator.wait_until("sensor", "orders", home, "Deployed", "False")
    assert waits["message"] == f"there is no EventBus `default` in the namespace `{home}`"
    operator.apply(_resource("EventBus", "default", home, {"kafka": {"url": operator.bus_url}}))
    operator.wait_until("sensor", "orders", home, "Healthy", "False")
    told = operator.condition("sensor", "orders", home, "Healthy")["message"]
    assert 'secret "web" not found' in told
    operator.kubectl(
        "create", "secret", "generic", "web", "-n", home, "--from-literal=user=u", "--from-literal=password=p"
    )
    operator.wait_until("sensor", "orders", home, "Ready")


def test_a_calendar_ticks_once_from_several_pods(operator: Operator, home: str) -> None:
    spec = {"replicas": 2, "calendar": {"tick": {"interval": "1s"}}}
    operator.apply(_resource("EventSource", "clock", home, spec))
    operator.wait_until("eventsource", "clock", home, "Ready")
    with Bus.connect(operator.bootstrap_servers, namespace=home) as bus:
        wait_for(lambda: len(events_on(bus)) >= 5, "ticks")
        ticks = [event.json()["eventTime"] for event in events_on(bus)]
    assert len(set(ticks)) == len(ticks)


def test_topics_go_with_a_sensor_that_asks_for_it(operator: Operator, home: str) -> None:
    sensor = _sensor("orders", home)
    sensor["metadata"]["annotations"] = {"eventbus.dev/on-delete": "drop-topics"}
    operator.apply(sensor)
    operator.wait_until("sensor", "orders", home, "Ready")
    topic, group = f"{home}-default-orders-trigger", f"{home}-default-orders-match"
    with Bus.connect(operator.bootstrap_servers, namespace=home) as bus:
        assert bus.cluster.describe([topic])[topic] is not None
        assert None not in bus.cluster.committed(group, bus.name.event_topic).values()
        operator.kubectl("delete", "sensor", "orders", "-n", home, "--timeout=120s")
        assert bus.cluster.describe([topic])[topic] is None
        assert set(bus.cluster.committed(group, bus.name.event_topic).values()) == {None}


def test_the_api_server_away_for_a_while_loses_nothing(operator: Operator, home: str) -> None:
    """Pods go on without it; what actions could not do meanwhile they do later.

    At least once: an API server that begins answers some requests with an error, and at most once none is repeated that
    has left.
    """
    sensor = _sensor("orders", home, replicas=2)
    [trigger] = sensor["spec"]["triggers"]
    trigger["atLeastOnce"] = True
    trigger["retryStrategy"] = {"steps": 300, "duration": "1s", "factor": 1.0}
    operator.apply(sensor)
    operator.wait_until("sensor", "orders", home, "Ready")
    operator.cluster.kill_api_server()
    try:
        with Bus.connect(operator.bootstrap_servers, namespace=home) as bus:
            bus.publish_all(Event.new("shop", "paid", {"id": f"o-{number}"}) for number in range(5))
        Flag().wait(_AWAY_SECONDS)
    finally:
        operator.cluster.start_api_server()
    expected = [f"o-{number}" for number in range(5)]
    wait_for(lambda: _made_by_sensor(operator, home) == expected, "the actions", seconds=300)
    operator.wait_until("sensor", "orders", home, "Ready")
    operator.apply(_sensor("orders", home, replicas=1))
    operator.wait_until("sensor", "orders", home, "Ready")


def test_the_example_of_a_network_policy_is_one(operator: Operator, home: str) -> None:
    policy = yaml.safe_load((DEPLOY / "examples" / "network-policy.yaml").read_text())
    policy["metadata"]["namespace"] = home
    operator.kubectl("apply", "--validate=strict", "-f", "-", text=yaml.safe_dump(policy))


def test_definitions_are_those_of_the_command(operator: Operator) -> None:
    for each in definitions():
        name = each["metadata"]["name"]
        found = json.loads(operator.kubectl("get", "crd", name, "-o", "json"))
        conditions = {condition["type"]: condition["status"] for condition in found["status"]["conditions"]}
        assert conditions == {"NamesAccepted": "True", "Established": "True"}
