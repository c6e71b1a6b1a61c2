"""`eventbus archive`: what it says, and whom it refuses. What it writes is in `tests/spark`."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from eventbus import Bus, Event
from eventbus.names import BusName
from sensors.spark.archive import FORMAT, Archive
from tests.cli.conftest import Command
from tests.cli.processes import Program

_SPARK_SECONDS = 300  # where others use the cores, too


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "archive"


@pytest.fixture
def bus(kafka_bus: Bus) -> Bus:
    """With an event topic."""
    kafka_bus.ensure(1)
    return kafka_bus


@pytest.mark.kafka
def test_a_topic_that_is_missing_is_told_before_spark_starts(
    cli: Command, directory: Path, on_kafka: list[str], bus: Bus
) -> None:
    answer = cli("archive", directory, "orders", *on_kafka)
    assert answer.code == 2
    assert f"error: the topic `{bus.name.event_topic}-orders-trigger` does not exist" in answer.err


@pytest.mark.kafka
def test_two_at_the_same_time_are_one_too_many(cli: Command, directory: Path, on_kafka: list[str], bus: Bus) -> None:
    with Archive(directory).locked():
        answer = cli("archive", directory, *on_kafka)
    assert answer.code == 2
    assert f"{directory} is being archived to already, by process {os.getpid()}" in answer.err


@pytest.mark.kafka
def test_an_archive_is_of_one_bus_in_one_place(cli: Command, directory: Path, on_kafka: list[str], bus: Bus) -> None:
    Archive(directory).introduce(BusName("other", "bus"), {})
    answer = cli("archive", directory, *on_kafka)
    assert answer.code == 2
    assert f"is the archive of the bus other/bus, not of {bus.name.namespace}/default" in answer.err
    (directory / "archive.json").unlink()
    Archive(directory).introduce(bus.name, {})
    moved = directory.rename(directory.with_name("moved"))
    answer = cli("archive", moved, *on_kafka)
    assert answer.code == 2
    assert f"{moved} was moved here from {directory}" in answer.err


@pytest.mark.kafka
def test_the_archive_of_a_newer_release_is_left_alone(
    cli: Command, directory: Path, on_kafka: list[str], bus: Bus
) -> None:
    Archive(directory).introduce(bus.name, {})
    file = directory / "archive.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"format": FORMAT + 1, "new": 1}))
    answer = cli("archive", directory, *on_kafka)
    assert answer.code == 3
    assert f"error: {file} was written by a newer release of eventbus" in answer.err
    file.write_text("{")
    assert f"error: {file} is damaged" in cli("archive", directory, *on_kafka).err


@pytest.mark.kafka
def test_a_place_that_cannot_be_written_to(cli: Command, tmp_path: Path, on_kafka: list[str], bus: Bus) -> None:
    (tmp_path / "file").touch()
    answer = cli("archive", tmp_path / "file" / "archive", *on_kafka)
    assert answer.code == 2
    assert f"error: {tmp_path}/file/archive: cannot be written to: Not a directory" in answer.err


def test_what_cannot_be_meant_is_refused(cli: Command, directory: Path, orders: Path, tmp_path: Path) -> None:
    assert "--every soon: write how long, such as 30s" in cli("archive", directory, "--every", "soon").err
    other = tmp_path / "other.yaml"
    other.write_text(orders.read_text().replace("name: orders", "name: other\n  namespace: elsewhere"))
    answer = cli("archive", directory, orders, other)
    assert answer.code == 2
    assert "these sensors are on the buses default/default and elsewhere/default" in answer.err
    assert not directory.exists()


@pytest.mark.kafka
@pytest.mark.timeout(400)
def test_it_follows_until_it_is_told_to_stop(directory: Path, on_kafka: list[str], bus: Bus) -> None:
    topic = bus.name.event_topic
    bus.publish(Event.new("shop", "order", 1), Event.new("shop", "order", 2))
    with Program("archive", directory, "--follow", "--every", "100ms", "--master", "local[1]", *on_kafka) as program:
        program.wait_for(f"{topic}: 2 added", _SPARK_SECONDS)
        bus.publish(Event.new("shop", "order", 3))
        program.wait_for(f"{topic}: 1 added", _SPARK_SECONDS)
        program.signal(signal.SIGTERM)
        assert program.end(_SPARK_SECONDS) == 0
    assert program.err == []
    [_, _, _header, row] = program.out
    assert row.split() == [topic, "3", "0:", "0…3", "2"]
