"""`eventbus pause`, `resume` and `flush`: what an operator may want of a running sensor."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from eventbus import Bus, Event
from sensors.sensor import Sensor
from tests.cli.conftest import Answer, Command

pytestmark = pytest.mark.kafka


class Shop:
    """The sensor `orders` while it runs, and the command line beside it."""

    def __init__(self, cli: Command, on_kafka: list[str], manifest: Path, bus: Bus) -> None:
        self._cli = cli
        self._on_kafka = on_kafka
        self._bus = bus
        self.manifest = manifest
        self.calls: list[dict[str, str]] = []
        sensor = Sensor.load(manifest)
        sensor.action("ship")(lambda call: self.calls.append({name: event.id for name, event in call.events.items()}))
        self.replica = sensor.start(bus)

    def eventbus(self, command: str, *arguments: str | Path) -> Answer:
        return self._cli(command, *arguments, *self._on_kafka)

    def publish(self, source: str, name: str) -> None:
        self._bus.publish(Event.new(source, name, id=f"{name}-1"))
        self.replica.settle()


@pytest.fixture
def shop(cli: Command, on_kafka: list[str], orders: Path) -> Iterator[Shop]:
    with Bus.connect(on_kafka[1], namespace=on_kafka[3]) as bus:
        shop = Shop(cli, on_kafka, orders, bus)
        with shop.replica as replica:
            replica.wait_ready()
            yield shop


def test_a_pause_and_its_end(shop: Shop) -> None:
    answer = shop.eventbus("pause", shop.manifest, "ship")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.startswith("paused ship of ")
    while not shop.replica.paused():
        pass
    shop.publish("shop", "paid")
    shop.publish("warehouse", "packed")
    assert shop.calls == []
    assert "Kept for `eventbus resume`: 1 action." in shop.eventbus("explain", shop.manifest).out
    answer = shop.eventbus("resume", "orders", "ship")  # by the sensor's name, without its manifest
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.endswith("; 1 actions had waited\n")
    shop.replica.settle()
    assert shop.calls == [{"paid": "paid-1", "packed": "packed-1"}]


def test_what_is_still_paused_is_told(shop: Shop) -> None:
    shop.eventbus("pause", shop.manifest)
    answer = shop.eventbus("resume", shop.manifest, "ship")
    assert answer.out.splitlines()[-1] == "still paused: all triggers (resume without a name)"


@pytest.mark.parametrize(("how", "told"), [("--fire", "fired with"), ("--drop", "dropped")])
def test_what_is_held_is_flushed(shop: Shop, how: str, told: str) -> None:
    shop.publish("shop", "paid")
    answer = shop.eventbus("flush", shop.manifest, "ship", how, "--yes")
    assert answer == (0, f"{told} what ship held in 1 slots\n", "")
    shop.replica.settle()
    assert shop.calls == ([{"paid": "paid-1"}] if how == "--fire" else [])
    assert shop.eventbus("flush", shop.manifest, "ship", how) == (0, "ship holds nothing\n", "")


def test_a_flush_waits_for_a_sensor_that_does_not_run(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.publish("shop", "paid")
    shop.replica.stop()
    monkeypatch.setattr("eventbus.cli.control._PATIENCE_SECONDS", 1.0)
    answer = shop.eventbus("flush", shop.manifest, "ship", "--drop", "--yes", "--output", "json")
    assert json.loads(answer.out)["done"] is False


def test_what_is_wrong_is_told(shop: Shop) -> None:
    mistakes: dict[tuple[str, ...], str] = {
        ("pause", str(shop.manifest), "shpi"): "error: the sensor has no trigger `shpi`; did you mean `ship`?\n",
        ("flush", str(shop.manifest), "ship"): "error: say what to do with the events: --fire or --drop\n",
        ("resume", "unknown"): "/default/unknown has never run here\n",
    }
    for arguments, told in mistakes.items():
        answer = shop.eventbus(*arguments)
        assert answer.code == 2
        assert told in answer.err
