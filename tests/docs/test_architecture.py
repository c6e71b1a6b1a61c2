"""What the documentation says about stages, topics and modules is what there is."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import pytest

from docs.diagram import stages_svg
from eventbus import Bus, BusName, Event
from eventbus.memory import MemoryCluster
from eventbus.memory.producer import MemoryProducer
from eventbus.names import Kind, SensorName, Stage
from eventbus.ports import Output
from sensors import ActionCall, ActionError, Sensor

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs/architecture.md").read_text()
NAME = SensorName(BusName(), "watched")
GARBAGE = b"not one of ours"


class WatchedCluster(MemoryCluster):
    """Notes which transactional id writes to which topic."""

    def __init__(self) -> None:
        super().__init__()
        self.written: defaultdict[str, set[str]] = defaultdict(set)

    def producer(self, transactional_id: str) -> MemoryProducer:
        written = self.written[transactional_id]

        class Watched(MemoryProducer):
            def produce(self, outputs: Sequence[Output]) -> None:
                written.update(output.topic for output in outputs)
                super().produce(outputs)

        return Watched(self._broker, transactional_id)


def _stage_rows() -> dict[str, list[str]]:
    """The table of stages: what each reads, writes, and where it is."""
    rows = re.findall(r"^\| (match|join|invoke) \|(.*)\|$", TEXT, re.MULTILINE)
    return {name: [cell.strip() for cell in rest.split("|")] for name, rest in rows}


def test_every_stage_reads_and_writes_the_topics_that_the_table_says() -> None:
    sensor = Sensor("watched", {"a": ("shop", "a"), "b": ("shop", "b")})

    @sensor.trigger("one", "a")
    def fail(call: ActionCall) -> None:
        raise ActionError("no", retriable=False, sent=True)

    @sensor.trigger("both", "a && b")
    def work(call: ActionCall) -> None:
        pass

    cluster = WatchedCluster()
    with Bus(cluster, NAME.bus) as bus, sensor.start(bus, slot="0") as replica:
        replica.wait_ready()
        publisher = cluster.publisher()
        for stage in (Stage.MATCH, Stage.JOIN):  # whose garbage becomes a dead letter; the third stage has a failure
            publisher.send(Output(NAME.input_topic(stage), 0, None, GARBAGE), lambda _error, _position: None)
        publisher.flush(1)
        bus.publish(Event.new("shop", "a"), Event.new("shop", "b"))
        replica.settle()

    short = {NAME.topic(kind): str(kind) for kind in Kind} | {NAME.event_topic: "events"}
    rows = _stage_rows()
    assert list(rows) == list(Stage)
    for stage in Stage:
        reads, writes = rows[stage][:2]
        assert reads == short[NAME.input_topic(stage)]
        assert set(writes.split(", ")) == {short[topic] for topic in cluster.written[NAME.transactional_id(stage, "0")]}


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`((?:eventbus|sensors|eventsources|tests)/[^`]*)`", TEXT))))
def test_every_named_file_exists(name: str) -> None:
    assert (ROOT / name).exists()


def test_the_picture_shows_every_stage_and_topic() -> None:
    picture = stages_svg()
    for kind in Kind:
        assert f">{kind}<" in picture
        assert f">{{ns}}-{{bus}}-{{sensor}}-{kind}<" in picture
    for number, stage in enumerate(Stage, 1):
        assert f">{number}  {stage}<" in picture
