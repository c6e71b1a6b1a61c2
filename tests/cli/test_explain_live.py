"""`eventbus explain` without events: why has the sensor that runs not fired? On a real Kafka."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from eventbus import Bus, Event
from eventbus.kafka import KafkaCluster
from eventbus.names import BusName, Kind, SensorName, Stage
from sensors.sensor import Sensor
from tests.cli.conftest import JOIN, Command

PAID, PACKED = Event.new("shop", "paid", id="paid-1"), Event.new("warehouse", "packed", id="packed-1")
BY_ORDER = """\
apiVersion: eventbus.dev/v1alpha1
kind: Sensor
metadata:
  name: orders
spec:
  dependencies:
    - {name: paid, eventSourceName: shop, eventName: paid}
    - name: packed
      eventSourceName: warehouse
      eventName: packed
      filters:
        data: [{path: weight, type: number, comparator: "<", value: ["30"]}]
  triggers:
    - template:
        name: ship
        conditions: paid && packed
        correlate: {by: data.order}
        within: 1h
        log: {}
"""


@contextmanager
def _running(on_kafka: list[str], manifest: Path, *events: Event) -> Iterator[None]:
    """A replica that has dealt with these events."""
    with Bus.connect(on_kafka[1], namespace=on_kafka[3]) as bus, Sensor.load(manifest).start(bus) as replica:
        replica.wait_ready()
        for event in events:
            bus.publish(event)
            replica.settle()
        yield


def _state_of_the_log(cluster: KafkaCluster, namespace: str) -> list[object]:
    name = SensorName(BusName(namespace), "orders")
    topics = [name.event_topic, *(name.topic(kind) for kind in Kind)]
    reader = cluster.reader()
    infos = cluster.describe(topics)
    try:
        ends = {(t, p): reader.offsets(t, p) for t, info in infos.items() if info for p in range(info.partitions)}
    finally:
        reader.close()
    return [ends, [cluster.committed(name.group(stage), name.input_topic(stage)) for stage in Stage]]


def _diagnosis(cli: Command, on_kafka: list[str], manifest: Path, *options: str) -> dict[str, Any]:
    answer = cli("explain", manifest, *options, "-o", "json", *on_kafka)
    assert (answer.code, answer.err) == (0, "")
    told: dict[str, Any] = json.loads(answer.out)
    return told


@pytest.mark.kafka
def test_what_is_waited_for_is_told_and_nothing_is_touched(
    cli: Command, on_kafka: list[str], orders: Path, kafka_cluster: KafkaCluster
) -> None:
    with _running(on_kafka, orders, PAID, PACKED, Event.new("shop", "paid", id="paid-2")):
        before = _state_of_the_log(kafka_cluster, on_kafka[3])
        told = cli("explain", orders, *on_kafka)
        assert _state_of_the_log(kafka_cluster, on_kafka[3]) == before
        assert (told.code, told.err) == (0, "")
        lines = [line.split(maxsplit=1) for line in told.out.splitlines()]
    assert lines[0] == ["ship", "packed && paid"]
    assert lines[1:4] == [["sensor", "match: 1 replica, up to date"], ["join:", "1 replica, up to date"], lines[3]]
    [holds] = [text for about, text in lines if about == "holds"]
    assert holds.startswith("paid=paid-2 (since ")
    assert holds.endswith("; waits for packed")
    assert ["paid:", "2 matched, the last is paid-2"] in lines
    [fired] = [text for about, text in lines if about == "fired"]
    assert ": packed=packed-1 paid=paid-1, action " in fired
    assert fired.endswith("; attempt 1 succeeded, logged")
    about, text = lines[-1]
    assert about == "answer"
    assert text.startswith("It holds paid since ")
    assert text.endswith(" and waits for packed: the last packed, packed-1, is used or let go already.")


@pytest.mark.kafka
def test_a_sensor_that_does_not_run_is_the_answer(
    cli: Command, on_kafka: list[str], orders: Path, kafka_bus: Bus
) -> None:
    with _running(on_kafka, orders, PAID):
        pass
    kafka_bus.publish(PACKED)
    told = _diagnosis(cli, on_kafka, orders)
    assert told["diagnoses"][0]["answer"]["code"] == "not-running"
    assert [(each["stage"], each["replicas"], each["behind"]) for each in told["evidence"]["stages"]] == [
        ("match", 0, 1),
        ("join", 0, 0),
        ("invoke", 0, 0),
    ]


@pytest.mark.kafka
def test_events_that_were_filtered_or_called_otherwise_are_told(
    cli: Command, on_kafka: list[str], orders: Path
) -> None:
    orders.write_text(BY_ORDER)
    events = [
        Event.new("shop", "paid", {"order": 1}, id="paid-1"),
        Event.new("shop", "paid", {"order": 2}, id="paid-2"),
        Event.new("warehouse", "packed", {"order": 1, "weight": 31}, id="heavy"),
        Event.new("warehouse", "packed", {"order": 3, "weight": 1}, id="packed-3"),
        Event.new("warehouse", "Packed", {"order": 2, "weight": 1}, id="upper"),
    ]
    with _running(on_kafka, orders, *events):
        told = _diagnosis(cli, on_kafka, orders, "--trigger", "ship", "--key", "1", "--since", "1h")
        [diagnosis] = told["diagnoses"]
        [trigger] = told["evidence"]["triggers"]
        assert [state["key"] for state in trigger["held"]] == ["1"]
        assert trigger["recent"]["filtered"]["packed"]["data"]["example"] == "heavy"
        assert trigger["recent"]["other_keys"]["packed"]["text"] == "3"
        [near] = trigger["recent"]["near"]
        assert (near["name"], near["meant"]) == ("Packed", "packed")
        assert diagnosis["answer"]["code"] == "filtered"


@pytest.mark.kafka
def test_an_event_without_a_key_is_told(cli: Command, on_kafka: list[str], orders: Path) -> None:
    orders.write_text(BY_ORDER)
    with _running(on_kafka, orders, Event.new("shop", "paid", {}, id="lost")):
        told = _diagnosis(cli, on_kafka, orders)
    assert told["diagnoses"][0]["answer"]["code"] == "no-key"
    [trigger] = told["evidence"]["triggers"]
    assert trigger["recent"]["without_key"]["example"] == "lost"
    assert trigger["dead_letters"]["no-correlation-key"]["count"] == 1


@pytest.mark.kafka
def test_an_action_that_failed_is_the_answer(cli: Command, on_kafka: list[str], orders: Path) -> None:
    orders.write_text(JOIN.replace("log: {}", "http: {url: 'http://127.0.0.1:1/'}"))
    with _running(on_kafka, orders, PAID, PACKED):
        told = _diagnosis(cli, on_kafka, orders)
    [diagnosis] = told["diagnoses"]
    [trigger] = told["evidence"]["triggers"]
    assert diagnosis["answer"]["code"] == "action-failed"
    assert trigger["last"]["invoked"]["outcome"] == "dead-lettered"
    assert trigger["dead_letters"]["action-failed"]["count"] == 1


@pytest.mark.kafka
def test_another_version_than_the_manifest_is_the_answer(cli: Command, on_kafka: list[str], orders: Path) -> None:
    with _running(on_kafka, orders, PAID):
        orders.write_text(JOIN.replace("&&", "||"))
        assert _diagnosis(cli, on_kafka, orders)["diagnoses"][0]["answer"]["code"] == "other-version"


@pytest.mark.kafka
def test_asking_about_a_sensor_that_never_ran_creates_nothing(
    cli: Command, on_kafka: list[str], orders: Path, namespace: str, kafka_cluster: KafkaCluster
) -> None:
    answer = cli("explain", orders, *on_kafka)
    assert answer.code == 2
    assert answer.err.endswith(f"the sensor {namespace}/default/orders has never run here\n")
    name = SensorName(BusName(namespace), "orders")
    topics = [name.event_topic, *(name.topic(kind) for kind in Kind)]
    assert set(kafka_cluster.describe(topics).values()) == {None}


def test_questions_that_make_no_sense_are_refused(cli: Command, orders: Path, events: Path) -> None:
    both = "error: --key and --since are about a sensor that runs: leave out --events\n"
    assert cli("explain", orders, "--events", events, "--since", "1h") == (2, "", both)
    assert cli("explain", orders, "--events", events, "--key", "1") == (2, "", both)
    answer = cli("explain", orders, "--key", "1", "--bootstrap-servers", "127.0.0.1:1")
    assert answer == (2, "", "error: --key: none of these triggers joins by key (`correlate`)\n")
