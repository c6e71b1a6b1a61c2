"""The controller against an API server in this process: whatever was there before, in the end it is as it should be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from eventbus import Bus
from eventbus.clock import ManualClock
from eventbus.controller.conditions import Condition
from eventbus.controller.loop import Controller
from eventbus.controller.objects import Object, Objects
from eventbus.controller.retirement import FINALIZER, ON_DELETE
from eventbus.names import SensorName, Stage
from eventbus.ports import Commit
from eventbus.topics import ensure_sensor_topics
from sensors.actions.base import ActionError
from sensors.actions.kube.cluster import Cluster
from tests.actions.kubernetes_api import Fault, KubernetesApi
from tests.contract.lab import Lab, commit_offset
from tests.controller.resources import SETTINGS, bus, sensor, source

_PLURALS = {"Sensor": "sensors", "EventSource": "eventsources", "EventBus": "eventbuses"}


class World:
    """A cluster, and the controller that looks after it."""

    def __init__(self, api: KubernetesApi) -> None:
        self.api = api
        self.clock = ManualClock()
        self.controller = Controller(Objects(Cluster()), SETTINGS, None, self.clock)

    def put(self, resource: Object) -> Object:
        self.api.objects[self.path(resource)] = resource
        return resource

    def path(self, resource: Object) -> str:
        metadata = resource["metadata"]
        plural = _PLURALS[resource["kind"]]
        return f"/apis/eventbus.dev/v1alpha1/namespaces/{metadata['namespace']}/{plural}/{metadata['name']}"

    def change(self, resource: Object, **spec: Any) -> None:
        stored = self.api.objects[self.path(resource)]
        stored["spec"] |= spec
        stored["metadata"]["generation"] += 1
        self.touch(stored)

    def touch(self, stored: Object) -> None:
        stored["metadata"]["resourceVersion"] = str(int(stored["metadata"]["resourceVersion"]) + 1000)

    def look(self) -> list[tuple[str, str]]:
        """Returns what was written."""
        self.api.requests.clear()
        self.controller.look()
        return [(method, path.rpartition("/")[2]) for method, path in self.api.requests if method != "GET"]

    def made(self, kind: str) -> list[Object]:
        return [each for each in self.api.objects.values() if each["kind"] == kind]

    def condition(self, resource: Object, kind: str) -> dict[str, Any]:
        conditions = self.api.objects[self.path(resource)]["status"]["conditions"]
        return next(each for each in conditions if each["type"] == kind)

    def pod(self, owner: str, name: str, *, ready: bool) -> Object:
        labels = {"app.kubernetes.io/managed-by": "eventbus", "eventbus.dev/sensor": owner}
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": str(ready)}]}
        metadata = {"name": name, "namespace": "shop", "labels": labels, "uid": name, "resourceVersion": str(ready)}
        made = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "status": status}
        self.api.objects[f"/api/v1/namespaces/shop/pods/{name}"] = made
        return made


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    api = KubernetesApi()
    monkeypatch.setenv("KUBECONFIG", str(api.write_kubeconfig(tmp_path / "config")))
    monkeypatch.setattr("eventbus.controller.buses._check", lambda *_: Condition("Ready", True, "TopicsReady"))
    yield World(api)
    api.close()


def test_a_sensor_waits_for_its_bus_and_goes_on_when_it_comes(world: World) -> None:
    orders = world.put(sensor())
    world.look()
    waits = world.condition(orders, "Ready")
    assert (waits["status"], waits["reason"]) == ("False", "EventBusMissing")
    assert waits["message"] == "there is no EventBus `default` in the namespace `shop`"
    assert world.condition(orders, "TriggersProvided")["status"] == "True"
    assert world.made("StatefulSet") == []
    world.put(bus())
    world.look()
    assert world.condition(orders, "Deployed")["status"] == "True"
    assert len(world.made("StatefulSet")) == 1


def test_ready_when_all_pods_are(world: World) -> None:
    world.put(bus())
    orders = world.put(sensor(replicas=2))
    world.pod("orders", "orders-sensor-0", ready=True)
    world.pod("orders", "orders-sensor-1", ready=False)
    world.look()
    assert world.condition(orders, "Ready")["message"].startswith("1 of 2 replicas take part")
    world.pod("orders", "orders-sensor-1", ready=True)
    world.look()
    assert world.condition(orders, "Ready")["status"] == "True"
    stored = world.api.objects[world.path(orders)]["status"]
    assert (stored["replicas"], stored["selector"]) == (2, "eventbus.dev/sensor=orders")


def test_nothing_is_written_while_nothing_changes(world: World) -> None:
    world.put(bus())
    world.put(sensor())
    world.put(source())
    world.look()
    for _ in range(3):
        written = [(method, name) for method, name in world.look() if name != "status"]
        assert written == []
    world.clock.advance(31)
    before = {path: dict(each) for path, each in world.api.objects.items() if each["kind"] != "EventBus"}
    assert world.look()
    after = {path: dict(each) for path, each in world.api.objects.items() if each["kind"] != "EventBus"}
    assert {path: each["spec"] for path, each in before.items() if "spec" in each} == {
        path: each["spec"] for path, each in after.items() if "spec" in each
    }


def test_what_somebody_has_removed_is_made_again(world: World) -> None:
    world.put(bus())
    world.put(sensor())
    world.look()
    [path] = [path for path, each in world.api.objects.items() if each["kind"] == "StatefulSet"]
    del world.api.objects[path]
    world.clock.advance(31)
    world.look()
    assert path in world.api.objects


def test_more_replicas_restart_nothing_and_another_spec_does(world: World) -> None:
    world.put(bus())
    orders = world.put(sensor())

    def template() -> Object:
        [made] = world.made("StatefulSet")
        pod: Object = made["spec"]["template"]
        return pod

    world.look()
    before = template()
    world.change(orders, replicas=5)
    world.look()
    assert world.made("StatefulSet")[0]["spec"]["replicas"] == 5
    assert template() == before
    world.change(orders, startFrom="earliest")
    world.look()
    assert template() != before


def test_what_is_needed_no_more_goes(world: World) -> None:
    world.put(bus())
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "job-"}, "spec": {}}
    action = {"k8s": {"source": {"resource": pod}}}
    orders = world.put(sensor(action=action))
    world.look()
    assert len(world.made("Role")) == len(world.made("RoleBinding")) == 1
    world.change(orders, triggers=[{"template": {"name": "ship", "conditions": "paid", "log": {}}}])
    world.look()
    assert world.made("Role") == world.made("RoleBinding") == []


def test_what_is_wrong_is_told_as_on_the_command_line_and_stops_nobody_else(world: World) -> None:
    world.put(bus())
    wrong = world.put(sensor("wrong", triggers=[]))
    hostile = world.put(sensor("hostile", template={"volumes": [{"name": "h", "hostPath": {"path": "/"}}]}))
    good = world.put(sensor("good"))
    world.look()
    assert world.condition(wrong, "TriggersProvided")["status"] == "False"
    assert "`triggers`" in world.condition(wrong, "Ready")["message"]
    assert "`hostPath` volumes are not allowed" in world.condition(hostile, "Ready")["message"]
    assert world.condition(good, "Deployed")["status"] == "True"
    assert [each["metadata"]["name"] for each in world.made("StatefulSet")] == ["good-sensor"]


def test_what_belongs_to_somebody_else_is_left_alone(world: World) -> None:
    world.put(bus())
    foreign = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "orders-sensor", "namespace": "shop"}}
    world.api.objects["/api/v1/namespaces/shop/configmaps/orders-sensor"] = foreign
    orders = world.put(sensor())
    world.look()
    assert world.condition(orders, "Ready")["reason"] == "NameTaken"
    assert "data" not in foreign


def test_killed_anywhere_it_leaves_nothing_that_the_next_one_does_not_put_right(world: World) -> None:
    """The API server is gone after so many writes; then another controller begins with nothing but the cluster."""
    for lost_after in count():
        world.api.objects.clear()
        lost = _begun_and_lost(World(world.api), lost_after)
        World(world.api).look()
        kinds = sorted(each["kind"] for each in world.api.objects.values() if each["kind"] != "Event")
        assert kinds == sorted(
            ["EventBus", "Sensor", "EventSource", "StatefulSet", "Deployment", "Service", "Role", "RoleBinding"]
            + 2 * ["ConfigMap", "ServiceAccount", "PodDisruptionBudget"]
        )
        if not lost:
            break
    assert lost_after > 14


def _begun_and_lost(world: World, lost_after: int) -> bool:
    """Returns whether there were so many writes at all."""
    world.put(bus())
    world.put(sensor(replicas=2))
    world.put(source())
    writes = 0

    def gone(method: str, _path: str) -> None:
        nonlocal writes
        writes += method != "GET"
        if writes > lost_after:
            raise Fault(503, "ServiceUnavailable", "gone")

    world.api.before = gone
    with suppress(ActionError):
        world.controller.look()
    world.api.before = lambda _method, _path: None
    return writes > lost_after


def test_what_becomes_another_is_told_as_an_event(world: World) -> None:
    orders = world.put(sensor())
    world.look()
    assert _told(world, orders) == [("Warning", "EventBusMissing", 1)]
    world.put(bus())
    world.look()
    world.clock.advance(60)
    world.look()
    assert _told(world, orders)[1:] == [("Normal", "Applied", 1), ("Normal", "WaitingForReplicas", 1)]
    world.pod("orders", "orders-sensor-0", ready=True)
    world.look()
    assert _told(world, orders)[3:] == [("Normal", "AllReplicasReady", 1)]
    del world.api.objects["/api/v1/namespaces/shop/pods/orders-sensor-0"]
    world.look()
    assert ("Normal", "WaitingForReplicas", 2) in _told(world, orders)


def _told(world: World, resource: Object) -> list[tuple[str, str, int]]:
    uid = resource["metadata"]["uid"]
    about = [each for each in world.made("Event") if each["involvedObject"]["uid"] == uid]
    return [(each["type"], each["reason"], each["count"]) for each in about]


def test_an_event_that_may_not_be_written_is_left_out(world: World) -> None:
    def refused(_method: str, path: str) -> None:
        if path.endswith("/events"):
            raise Fault(403, "Forbidden", "no events")

    world.api.before = refused
    world.put(bus())
    orders = world.put(sensor())
    world.look()
    assert world.condition(orders, "Deployed")["status"] == "True"
    assert world.made("Event") == []


def test_topics_are_kept_unless_somebody_asks_for_their_end(world: World) -> None:
    plain = world.put(sensor("plain"))
    asking = world.put(sensor("asking"))
    asking["metadata"]["annotations"] = {ON_DELETE: "drop-topics"}
    world.look()
    assert "finalizers" not in world.api.objects[world.path(plain)]["metadata"]
    assert world.api.objects[world.path(asking)]["metadata"]["finalizers"] == [FINALIZER]
    stored = world.api.objects[world.path(asking)]
    del stored["metadata"]["annotations"]
    world.touch(stored)
    world.look()
    assert world.api.objects[world.path(asking)]["metadata"]["finalizers"] == []


@pytest.mark.kafka
def test_pods_go_before_topics_and_groups(world: World, kafka_bootstrap_servers: str) -> None:
    with Bus.connect(kafka_bootstrap_servers, namespace="shop") as shop:
        shop.ensure(1)
        name = SensorName(shop.name, "orders")
        topics = [each for stage in Stage if (each := name.input_topic(stage)) != shop.name.event_topic]
        ensure_sensor_topics(shop.cluster, name)
        lab = Lab(shop.cluster, "shop")
        member = lab.member(shop.name.event_topic, group="default-orders-match")
        commit_offset(lab.producer(), shop.name.event_topic, Commit(0, 5, "as a replica does"), member)
        lab.close()
        world.put(bus(url=kafka_bootstrap_servers))
        orders = world.put(sensor())
        orders["metadata"]["annotations"] = {ON_DELETE: "drop-topics"}
        world.look()
        world.pod("orders", "orders-sensor-0", ready=True)
        stored = world.api.objects[world.path(orders)]
        stored["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        world.touch(stored)
        world.look()
        assert world.made("StatefulSet") == []
        assert None not in shop.cluster.describe(topics).values()
        del world.api.objects["/api/v1/namespaces/shop/pods/orders-sensor-0"]
        world.look()
        assert set(shop.cluster.describe(topics).values()) == {None}
        assert shop.cluster.committed(name.group(Stage.MATCH), shop.name.event_topic) == {0: None}
        assert world.api.objects[world.path(orders)]["metadata"]["finalizers"] == []
        shop.cluster.delete([shop.name.event_topic])


def test_a_refusal_by_the_cluster_is_told(world: World) -> None:
    def refused(method: str, path: str) -> None:
        if method == "PATCH" and "/roles/" in path:
            raise Fault(403, "Forbidden", "attempting to grant RBAC permissions not currently held")

    world.api.before = refused
    world.put(bus())
    clock = world.put(source())
    world.look()
    ready = world.condition(clock, "Ready")
    assert ready["reason"] == "Refused"
    assert "not currently held" in ready["message"]


def test_it_complains_of_itself_when_it_is_stuck(world: World) -> None:
    complaints: list[str] = []

    def sleep() -> None:
        world.clock.advance(400)
        complaints.extend(world.controller.complaints())

    election = Voted(sleep)
    world.controller.run(election, election)
    assert complaints == ["it has looked at nothing for 400 s"]
    assert world.controller.complaints() == []


class Voted:
    """Leads for one look, and is then told to stop."""

    def __init__(self, meanwhile: Callable[[], object]) -> None:
        self._meanwhile = meanwhile
        self._asked = 0

    term = 1

    @property
    def leading(self) -> bool:
        return True

    def wait_until_leading(self, stop: Any) -> int | None:
        return None if stop.is_set() else 1

    def is_set(self) -> bool:
        return self._asked > 0

    def wait(self, timeout: float | None = None) -> bool:
        self._asked += 1
        self._meanwhile()
        return True

    def close(self) -> None:
        """Nobody waits for it."""
