"""`eventbus run` with event sources: from the outside world to an action, in real processes on a real Kafka."""

from __future__ import annotations

import json
import signal
import time
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import pytest
from urllib3 import request

from eventbus import Bus
from tests.cli.conftest import Command
from tests.cli.processes import Program
from tests.eventsources.kafka_topic import Topic
from tests.eventsources.serving import events_on
from tests.security.broker import wait_until

WEBHOOK = """\
apiVersion: eventbus.dev/v1alpha1
kind: EventSource
metadata: {name: shop}
spec: {webhook: {order: {port: 0, endpoint: /orders}}}
"""
SENSOR = """\
apiVersion: eventbus.dev/v1alpha1
kind: Sensor
metadata: {name: orders}
spec:
  dependencies: [{name: order, eventSourceName: shop, eventName: order}]
  triggers: [{template: {name: tell, conditions: order, log: {}}}]
"""
CALENDAR = """\
apiVersion: eventbus.dev/v1alpha1
kind: EventSource
metadata: {name: clock}
spec: {calendar: {tick: {interval: 200ms}}}
"""


@pytest.mark.parametrize("port", ["", "port: 12000, "], ids=["default", "named"])
def test_two_sources_on_one_port_are_refused_at_once(cli: Command, tmp_path: Path, port: str) -> None:
    one, other = tmp_path / "one.yaml", tmp_path / "other.yaml"
    one.write_text(WEBHOOK.replace("port: 0, ", ""))
    other.write_text(WEBHOOK.replace("port: 0, ", port).replace("name: shop", "name: depot"))
    answer = cli("run", one, other)
    assert answer.code == 2
    assert answer.err == (
        f"error: the event sources shop ({one}) and depot ({other}) would both listen on port 12000: "
        "change `port` of one\n"
    )


def _bus(on_kafka: list[str]) -> Bus:
    return Bus.connect(on_kafka[1], namespace=on_kafka[3])


@pytest.mark.kafka
def test_a_request_becomes_an_action(on_kafka: list[str], tmp_path: Path) -> None:
    manifest = tmp_path / "all.yaml"
    manifest.write_text(f"{WEBHOOK}---\n{SENSOR}")
    with Program("run", manifest, *on_kafka) as run:
        port = run.wait_for("shop listens on port").rsplit(" ", 1)[1]
        run.wait_for("orders is ready")
        answer = request("POST", f"http://127.0.0.1:{port}/orders", body=b'{"id": 17}', retries=False)
        assert answer.status == 202
        run.wait_for("tell")
        run.signal(signal.SIGTERM)
        assert run.end() == 0
    assert not any("Traceback" in line for line in run.err)


@pytest.mark.kafka
def test_of_two_replicas_one_ticks_and_the_other_takes_over(
    on_kafka: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    manifest = tmp_path / "clock.yaml"
    manifest.write_text(CALENDAR)
    with _bus(on_kafka) as bus:
        with Program("run", manifest, *on_kafka) as one, Program("run", manifest, *on_kafka) as other:
            for program in (one, other):
                program.wait_for("clock is ready")
            _wait_for_events(bus, 5)
            leader = one if _leads(one) else other
            leader.signal(signal.SIGKILL)
            killed = len(events_on(bus))
            _wait_for_events(bus, killed + 10)
            for program in (one, other):
                program.signal(signal.SIGTERM)
            for program in (one, other):
                program.end()
        ticks = sorted(event.attributes["time"] for event in events_on(bus))
    assert len(set(ticks)) == len(ticks), "a tick was repeated"
    steps = {round((_ms(later) - _ms(earlier)) / 200) for earlier, later in pairwise(ticks)}
    assert steps == {1}, "a tick is missing"


@pytest.mark.kafka
def test_of_two_replicas_that_read_another_kafka_one_is_killed_and_nothing_is_lost(
    on_kafka: list[str], tmp_path: Path
) -> None:
    topic = Topic(on_kafka[1], f"{on_kafka[3]}-foreign", partitions=2)
    source = {"kafka": {"order": topic.spec(limitEventsPerSecond=20)}}
    metadata = {"name": "orders"}
    document = {"apiVersion": "eventbus.dev/v1alpha1", "kind": "EventSource", "metadata": metadata, "spec": source}
    manifest = tmp_path / "orders.yaml"
    manifest.write_text(json.dumps(document))
    with _bus(on_kafka) as bus:
        with Program("run", manifest, *on_kafka) as one, Program("run", manifest, *on_kafka) as other:
            for program in (one, other):
                program.wait_for("orders is ready")
            wait_until(lambda: topic.cluster.members(topic.group) == 2)
            for partition in range(2):
                topic.send(*map(str, range(100)), partition=partition)
            _wait_for_events(bus, 20)
            one.signal(signal.SIGKILL)
            told = {f"{topic.name}-{partition}-{offset}" for partition in range(2) for offset in range(100)}
            wait_until(lambda: {event.id for event in events_on(bus)} == told)
            assert topic.cluster.members(topic.group) == 1
            other.signal(signal.SIGTERM)
            assert other.end() == 0
        assert not any("Traceback" in line for line in other.err)
        assert topic.unacknowledged() == 0
    topic.close()


def _leads(program: Program) -> bool:
    return any("(this one)" in line for line in program.err)


def _wait_for_events(bus: Bus, number: int) -> None:
    deadline = time.monotonic() + 60
    while len(events_on(bus)) < number:
        assert time.monotonic() < deadline, "there are no more ticks"


def _ms(moment: object) -> int:
    return round(datetime.fromisoformat(str(moment)).timestamp() * 1000)
