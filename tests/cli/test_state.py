"""`eventbus state`: what a sensor holds, as its topics tell it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eventbus import Bus
from eventbus.jsonl import read_events
from sensors.sensor import Sensor
from tests.cli.conftest import JOIN, Command


def _run(on_kafka: list[str], manifest: Path, events: Path) -> None:
    with Bus.connect(on_kafka[1], namespace=on_kafka[3]) as bus, Sensor.load(manifest).start(bus) as replica:
        replica.wait_ready()
        for event in read_events(events):
            bus.publish(event)
            replica.settle()


@pytest.mark.kafka
def test_held_events_are_shown_with_what_they_wait_for(
    cli: Command, on_kafka: list[str], orders: Path, events: Path, namespace: str
) -> None:
    _run(on_kafka, orders, events)
    answer = cli("state", orders, *on_kafka)
    assert (answer.code, answer.err) == (0, "")
    header, row = answer.out.splitlines()
    assert header.split("  ")[0] == "TRIGGER"
    assert row.startswith("ship     packed && paid  paid   shop paid-2  ")
    assert row.endswith("  packed")

    answer = cli("state", orders, "--output", "json", *on_kafka)
    state = json.loads(answer.out)
    assert state["sensor"] == f"{namespace}/default/orders"
    [trigger] = state["triggers"]
    [held] = trigger["held"]
    assert (held["dependency"], held["source"], held["id"]) == ("paid", "shop", "paid-2")
    assert 0 <= state["now"] - held["since"] < 120_000
    assert trigger["missing"] == [["packed"]]


@pytest.mark.kafka
def test_a_sensor_that_needs_single_events_holds_nothing(
    cli: Command, on_kafka: list[str], orders: Path, events: Path
) -> None:
    orders.write_text(JOIN.replace("&&", "||"))
    _run(on_kafka, orders, events)
    answer = cli("state", orders, *on_kafka)
    assert answer == (0, "every trigger of this sensor fires on a single event: nothing is ever held\n", "")


@pytest.mark.kafka
def test_looking_at_a_sensor_that_never_ran_creates_nothing(
    cli: Command, on_kafka: list[str], orders: Path, namespace: str
) -> None:
    for _ in range(2):
        answer = cli("state", orders, *on_kafka)
        assert answer.code == 2
        assert answer.err == (
            f"error: the topic `{namespace}-default` does not exist: "
            f"the sensor {namespace}/default/orders has never run here\n"
        )
