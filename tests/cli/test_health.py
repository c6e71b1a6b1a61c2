"""Health, readiness and metrics over HTTP, of real sensors on a log in memory."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from eventbus import Bus, Event
from eventbus.clock import ManualClock
from eventbus.errors import ConfigError, FatalError
from eventbus.names import Stage
from sensors.actions.base import ActionCall, ActionError
from sensors.health import HealthServer
from sensors.retry import RetryPolicy
from sensors.runner import replica as replica_module
from sensors.runner.replica import Replica
from sensors.sensor import Sensor


@pytest.fixture
def bus() -> Iterator[Bus]:
    with Bus.memory() as bus:
        yield bus


def _sensor(name: str = "orders", action: Callable[[ActionCall], Any] = print) -> Sensor:
    sensor = Sensor(name, {"paid": ("shop", "paid"), "packed": ("warehouse", "packed")})
    retry = RetryPolicy(steps=2, duration=0.0)
    sensor.trigger("ship", "paid && packed", at_least_once=True, retry=retry)(action)
    sensor.trigger("thank", "paid")(lambda _call: None)
    return sensor


def _get(server: HealthServer, path: str) -> tuple[int, str]:
    try:
        with urlopen(f"http://127.0.0.1:{server.port}{path}") as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()


def _metrics(server: HealthServer) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Every sample, by its name and labels; a page in which a metric comes twice is refused."""
    families = list(text_string_to_metric_families(_get(server, "/metrics")[1]))
    assert len({family.name for family in families}) == len(families)
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def _labels(name: str, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    return name, frozenset({"sensor": "default/default/orders", **labels}.items())


# --- health and readiness -------------------------------------------------------------------------------------------


def test_a_replica_is_unready_until_it_runs_and_again_when_it_stops(bus: Bus) -> None:
    replica = _sensor().start(bus, slot="0")
    with HealthServer([replica], 0) as server:
        code, body = _get(server, "/readyz")
        assert code == 503
        assert json.loads(body)["complaints"] == [
            {
                "name": "default/default/orders",
                "slot": "0",
                "reasons": [f"the {stage} stage is not ready" for stage in Stage],
            }
        ]
        with replica:
            replica.wait_ready()
            assert _get(server, "/readyz")[0] == 200
            assert _get(server, "/healthz") == (200, '{"ok":true,"running":["default/default/orders"]}\n')
        assert _get(server, "/readyz")[0] == 503
        assert _get(server, "/healthz")[0] == 200, "a replica that is stopped on purpose needs no restart"


def test_a_replica_that_is_stopping_says_so_while_it_drains(bus: Bus) -> None:
    began, finish = threading.Event(), threading.Event()

    def act(_call: ActionCall) -> None:
        began.set()
        assert finish.wait(10)

    replica = _sensor(action=act).start(bus).start()
    with HealthServer([replica], 0) as server:
        replica.wait_ready()
        bus.publish(Event.new("shop", "paid"), Event.new("warehouse", "packed"))
        assert began.wait(10)
        stopping = threading.Thread(target=replica.stop)
        stopping.start()
        while replica.ready():
            pass
        code, body = _get(server, "/readyz")
        finish.set()
        stopping.join()
    assert code == 503
    assert json.loads(body)["complaints"][0]["reasons"] == ["it is stopping"]


def test_a_replica_that_failed_says_why(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    replica = _sensor().start(bus)
    healthy = _sensor("others").start(bus)

    def fail(_timeout: float) -> float:
        raise FatalError("the disk is full")

    monkeypatch.setattr(replica.loops[Stage.JOIN], "step", fail)
    with HealthServer([replica, healthy], 0) as server, healthy:
        replica.start()
        assert replica.wait(10)
        code, body = _get(server, "/healthz")
        with pytest.raises(FatalError):
            replica.stop()
    assert code == 503
    assert [(each["name"], each["reasons"]) for each in json.loads(body)["complaints"]] == [
        ("default/default/orders", ["the disk is full"])
    ]


def test_a_stage_that_does_not_get_on_is_unhealthy(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    with _sensor().start(bus) as replica:
        replica.wait_ready()
        assert replica.complaints() == []
        monkeypatch.setattr(replica.loops[Stage.JOIN], "stalled_seconds", lambda: 61.0)
        assert replica.complaints() == ["the join stage has lag and has committed nothing for 61 s"]
        assert not replica.healthy()


def test_a_stage_that_hangs_in_a_call_is_unhealthy(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_module, "_STALL_SECONDS", -20.0)  # minus the drain time: any turn is too long
    hanging, finish = threading.Event(), threading.Event()

    def hang(_timeout: float) -> bool:
        hanging.set()
        return finish.wait(10)

    replica: Replica = _sensor().start(bus)
    monkeypatch.setattr(replica.loops[Stage.MATCH], "_turn", hang)
    with replica:
        assert hanging.wait(10)
        monkeypatch.setattr(replica.loops[Stage.MATCH], "stalled_seconds", lambda: -30.0)
        [complaint] = [each for each in replica.complaints() if "match" in each]
        finish.set()
    assert complaint == "the match stage has been stuck in one turn for 0 s"


def test_a_turn_is_measured_from_its_own_beginning(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    replica = _sensor().start(bus, slot="0")
    loop, clock = replica.loops[Stage.MATCH], ManualClock()
    clock.advance(1e9)
    monkeypatch.setattr(loop, "_clock", clock)
    assert loop.turn_seconds() > 0
    loop.step(0.0)
    assert loop.turn_seconds() == 0
    replica.stop()


def test_other_pages_do_not_exist(bus: Bus) -> None:
    with HealthServer([], 0) as server:
        assert _get(server, "/") == (404, '{"pages":["/healthz","/metrics","/readyz"]}\n')
        assert _get(server, "/healthz?verbose")[0] == 200


def test_a_process_without_replicas_is_healthy_but_not_ready() -> None:
    with HealthServer([], 0) as server:
        assert _get(server, "/healthz")[0] == 200
        assert _get(server, "/readyz") == (503, '{"ok":false,"complaints":[]}\n')


def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"on port {port}: Address already in use"):
            HealthServer([], port)


# --- metrics --------------------------------------------------------------------------------------------------------


def test_everything_that_happens_is_counted(bus: Bus) -> None:
    def act(call: ActionCall) -> None:
        if call.events["paid"].id != "good":
            raise ActionError("no", retriable=True, sent=True)

    with _sensor(action=act).start(bus) as replica, HealthServer([replica], 0) as server:
        replica.wait_ready()
        assert _metrics(server)[_labels("eventbus_fired_total", trigger="ship")] == 0
        for id in ("good", "bad"):
            bus.publish(Event.new("shop", "paid", id=id))
            replica.settle()
            bus.publish(Event.new("warehouse", "packed"))
            replica.settle()
        bus.publish(Event.new("shop", "paid"))
        replica.settle()
        metrics = _metrics(server)
    expected = {
        _labels("eventbus_fired_total", trigger="ship"): 2,
        _labels("eventbus_fired_total", trigger="thank"): 3,
        _labels("eventbus_invocations_total", trigger="ship", outcome="succeeded"): 1,
        _labels("eventbus_invocations_total", trigger="ship", outcome="failed"): 2,
        _labels("eventbus_retries_total", trigger="ship"): 1,
        _labels("eventbus_retries_total", trigger="thank"): 0,
        _labels("eventbus_dead_letters_total", reason="action-failed"): 1,
        _labels("eventbus_records_received_total", stage="match"): 5,
        _labels("eventbus_transactions_aborted_total", stage="join"): 0,
        _labels("eventbus_lag_records", stage="invoke"): 0,
        _labels("eventbus_seconds_since_commit_with_lag", stage="invoke"): 0,
        _labels("eventbus_held_events", trigger="ship"): 1,
    }
    assert {name: metrics[name] for name in expected} == expected
    assert metrics[_labels("eventbus_rebalances_total", stage="match")] >= 1
    assert metrics[_labels("eventbus_transactions_committed_total", stage="match")] >= 5
    assert 0 <= metrics[_labels("eventbus_held_age_seconds", trigger="ship")] < 60


def test_a_trigger_that_never_holds_anything_has_no_gauge(bus: Bus) -> None:
    with HealthServer([_sensor().start(bus, slot="0")], 0) as server:
        metrics = _metrics(server)
    assert metrics[_labels("eventbus_held_age_seconds", trigger="ship")] == 0
    assert _labels("eventbus_held_events", trigger="thank") not in metrics


def test_several_sensors_share_one_page(bus: Bus) -> None:
    with HealthServer([_sensor(name).start(bus, slot="0") for name in ("orders", "others")], 0) as server:
        metrics = _metrics(server)
    sensors = {dict(labels)["sensor"] for name, labels in metrics if name == "eventbus_fired_total"}
    assert sensors == {"default/default/orders", "default/default/others"}
