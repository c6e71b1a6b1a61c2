"""Every example does what it promises: explained offline, in memory and on a real Kafka."""

from __future__ import annotations

import runpy
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eventbus import Bus, BusName
from eventbus.clock import SystemClock
from eventbus.formats import action_fact, dead_letter, invocation
from eventbus.names import Kind, SensorName
from eventbus.ports import Record
from eventsources.spec import MANIFESTS
from sensors import ActionCall, Sensor
from sensors.actionrecords import events_by_dependency
from sensors.inspection import read_range
from sensors.scenarios import Firing
from tests.examples.samples import ROOT, Example, names, with_manifest

LIBRARY = ROOT / "09-library"


@pytest.fixture(params=with_manifest())
def example(request: pytest.FixtureRequest) -> Example:
    return Example(ROOT / request.param)


def test_examples_are_numbered_without_gaps() -> None:
    assert [int(name[:2]) for name in names()] == list(range(1, len(names()) + 1))


def test_every_example_has_a_short_readme() -> None:
    lengths = {name: len((ROOT / name / "README.md").read_text().splitlines()) for name in names()}
    assert {name: length for name, length in lengths.items() if not 10 <= length <= 25} == {}


def test_manifests_give_no_warnings(example: Example) -> None:
    for file in sorted(example.folder.glob("*.yaml")):
        assert [manifest.warnings for manifest in MANIFESTS.load(file) if manifest.warnings] == []


def test_offline_it_fires_as_promised(example: Example) -> None:
    assert example.scenario.differences() == []


def test_on_a_bus_it_fires_as_promised(example: Example, bus: Bus) -> None:
    sensor = example.sensor()
    calls: list[ActionCall] = []
    for trigger in sensor.manifest.spec.triggers:
        sensor.action(trigger.name)(calls.append)
    _run(sensor, bus, example)
    done = [_firing(call) for call in calls]
    assert example.lanes(done) == example.lanes(action.plain() for action in example.scenario.expected)
    assert len({call.id for call in calls}) == len(calls)


def _firing(call: ActionCall) -> Firing:
    events: dict[str, str | list[str]] = {name: event.id for name, event in call.events.items()}
    events |= {name: [event.id for event in several] for name, several in call.batches.items()}
    return Firing(call.trigger, events)


# --- the real actions -----------------------------------------------------------------------------------------------


@pytest.fixture
def bank() -> Iterator[Any]:
    server = runpy.run_path(str(ROOT / "05-http-retry/server.py"))["Bank"](0)
    with server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_http_calls_are_retried_and_dead_lettered_as_promised(bus: Bus, bank: Any) -> None:
    example = Example(ROOT / "05-http-retry")
    sensor = example.sensor(replacements={"localhost:8080": f"127.0.0.1:{bank.server_port}"})
    _run(sensor, bus, example)
    name = SensorName(bus.name, "http-retry")
    assert _outcomes(bus, name) == example.scenario.expected
    letters = [dead_letter(record) for record in _records(bus, name.topic(Kind.DLQ))]
    given_up = [action.attempts for action in example.scenario.expected if action.outcome == "dead-lettered"]
    assert [letter.attempts for letter in letters] == given_up
    assert bank.attempts.total() == sum(action.attempts or 0 for action in example.scenario.expected)


def test_one_sensors_actions_are_the_next_ones_events(bus: Bus) -> None:
    example = Example(ROOT / "06-kafka-chain")
    namespace = bus.name.namespace
    next_bus = Bus(bus.cluster, BusName(namespace, "delivery"), bootstrap_servers=bus.bootstrap_servers)
    next_bus.ensure()
    downstream = example.sensor("downstream.yaml", {"/default/orders": f"/{namespace}/orders"})
    dispatched: list[ActionCall] = []
    downstream.action("dispatch")(dispatched.append)
    with downstream.start(next_bus) as replica:
        replica.wait_ready()
        _run(example.sensor(replacements={"default-delivery": next_bus.name.event_topic}), bus, example)
        replica.settle()
    actions = [action_fact(record).id for record in _records(bus, SensorName(bus.name, "orders").topic(Kind.ACTION))]
    assert [call.events["fulfilled"].id for call in dispatched] == actions
    assert [call.events["fulfilled"].json() for call in dispatched] == [
        {"order": 1, "weight": 0.7},
        {"order": 2, "weight": 1.2},
    ]


# --- the library ----------------------------------------------------------------------------------------------------


def test_the_library_example_runs_as_a_program(tmp_path: Path) -> None:
    environment = {"EVENTBUS_SLOT_DIR": str(tmp_path)}
    ran = subprocess.run(
        [sys.executable, LIBRARY / "main.py"], env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    assert ran.stdout == (LIBRARY / "expected.txt").read_text()


def test_the_library_example_runs_on_a_bus(bus: Bus, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(LIBRARY / "main.py"))["run"](bus)
    assert capsys.readouterr().out == (LIBRARY / "expected.txt").read_text()


# --- helpers --------------------------------------------------------------------------------------------------------


def _run(sensor: Sensor, bus: Bus, example: Example) -> None:
    with sensor.start(bus) as replica:
        replica.wait_ready()
        bus.publish_all(example.scenario.events)
        replica.settle()


def _records(bus: Bus, topic: str) -> list[Record]:
    info = bus.cluster.describe([topic])[topic]
    assert info is not None
    reader = bus.cluster.reader()
    try:
        return [
            record
            for partition in range(info.partitions)
            for record in read_range(reader, topic, partition, start=0, end=None, clock=SystemClock())
        ]
    finally:
        reader.close()


def _outcomes(bus: Bus, name: SensorName) -> list[Firing]:
    """What the sensor's own topics say about its actions."""
    last = {}
    for record in _records(bus, name.topic(Kind.INVOCATION)):
        last[invocation(record).action] = invocation(record)
    done = []
    for record in _records(bus, name.topic(Kind.ACTION)):
        fact = action_fact(record)
        events: dict[str, str | list[str]] = {}
        for dependency, several in events_by_dependency(fact, record.value).items():
            events[dependency] = [each.id for each in several] if dependency in fact.counted else several[-1].id
        done.append(Firing(fact.trigger, events, last[fact.id].outcome, last[fact.id].attempt))
    return done
