"""Faults of argo-events that concern single events: filters, identity, and how to try a sensor out."""

from __future__ import annotations

import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from eventbus import BusName, Event
from eventbus.cli.main import app
from sensors import ActionCall, Sensor
from sensors.explain import Explainer
from sensors.health import HealthServer
from sensors.spec.loader import make_manifest
from tests.pipeline.world import World

EXAMPLE = Path(__file__).parents[2] / "examples" / "02-join"


def _sensor(**dependency: Any) -> Sensor:
    return Sensor.of(
        make_manifest(
            {
                "apiVersion": "argoproj.io/v1alpha1",
                "kind": "Sensor",
                "metadata": {"name": "s"},
                "spec": {
                    "dependencies": [{"name": "a", "eventSourceName": "shop", "eventName": "a", **dependency}],
                    "triggers": [{"template": {"name": "t", "log": {}}}],
                },
            }
        )
    )


@pytest.mark.parametrize(("branch", "passes"), [("main", False), ("release", False), ("mine", True)])
def test_pain_3215_not_equal_to_several_values_means_none_of_them(branch: str, passes: bool) -> None:
    """A filter with `!=` and several values nearly always passes."""
    branches = {"path": "branch", "type": "string", "comparator": "!=", "value": ["^main$", "^release$"]}
    explainer = Explainer(_sensor(filters={"data": [branches]}).blueprint(BusName()).plan)
    explanation = explainer.feed(Event.new("shop", "a", {"branch": branch}))
    assert ("a" not in explanation.filtered) is passes


def test_pain_2011_the_identity_of_an_event_is_kept(world: World) -> None:
    """The id of a CloudEvent is replaced by another."""
    seen: list[Event] = []
    replica = world.start(world.sensor(each="a", function=lambda call: seen.append(call.events["a"])))
    world.bus.publish(Event.new("shop", "a", {"n": 1}, id="mine", type="com.example.order", region="eu"))
    replica.settle()
    [event] = seen
    assert (event.id, event.attributes["type"], event.attributes["region"]) == ("mine", "com.example.order", "eu")


def test_pain_1111_the_trace_of_an_event_goes_on_in_its_action(world: World) -> None:
    """A trace ends at the event bus."""
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    seen: list[ActionCall] = []
    replica = world.start(world.sensor(each="a", function=seen.append))
    world.bus.publish(Event.new("shop", "a", traceparent=trace))
    replica.settle()
    assert [call.traceparent for call in seen] == [trace]


def test_pain_3339_a_sensor_can_be_tried_out_without_a_cluster() -> None:
    """There is no way to try a sensor out locally."""
    files = [str(EXAMPLE / "sensor.yaml"), "--events", str(EXAMPLE / "events.jsonl")]
    explained = CliRunner().invoke(app, ["explain", *files])
    assert explained.exit_code == 0
    assert " fired " in explained.output
    assert CliRunner().invoke(app, ["test", str(EXAMPLE)]).exit_code == 0


def test_pain_1633_probes_tell_when_a_sensor_is_ready(world: World) -> None:
    """A sensor has no probes."""
    replica = world.start(world.sensor(each="a"))
    with HealthServer([replica], 0) as server:
        assert _status(server, "readyz") == _status(server, "healthz") == 200
        replica.stop()
        assert _status(server, "readyz") == 503


def _status(server: HealthServer, page: str) -> int:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/{page}") as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code
