"""`eventbus backtest` on a real Kafka, beside sensors that really ran."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from pyspark.sql import SparkSession

from eventbus import Bus, Event
from eventbus.clock import SystemClock
from eventbus.formats import action_fact
from eventbus.moments import exactly
from eventbus.names import Kind, SensorName
from sensors.inspection import read_range
from sensors.sensor import Sensor
from tests.cli.conftest import Command, cli, on_kafka
from tests.spark.manifests import logged, sensor

__all__ = ["cli", "on_kafka"]

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(900), pytest.mark.usefixtures("submitted")]

SENSOR = json.dumps(
    sensor(
        "orders",
        {"paid": "shop", "packed": "warehouse", "refused": "bank"},
        [
            logged("ship", "paid && packed", correlate={"by": "data.order"}, within="1h"),
            logged("call", "refused", count={"refused": 3}, dedupe={"within": "1h"}),
            logged("both", "paid && refused"),
            logged("thank", "paid"),
        ],
    )
)
EVENTS = [
    *(Event.new("shop", "paid", {"order": n}, id=f"paid-{n}") for n in range(12)),
    *(Event.new("bank", "refused", {"order": n}, id=f"refused-{n % 7}") for n in range(10)),
    *(Event.new("warehouse", "packed", {"order": n}, id=f"packed-{n}") for n in range(3, 15)),
]


@pytest.fixture
def bus(on_kafka: list[str]) -> Iterator[Bus]:
    with Bus.connect(on_kafka[1], namespace=on_kafka[3]) as bus:
        bus.ensure(1)
        yield bus


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    file = tmp_path / "sensor.yaml"
    file.write_text(SENSOR)
    return file


def _run(bus: Bus, manifest: Path) -> dict[tuple[str, str], list[str]]:
    """Let the sensor do its work. Returns the ids of its actions, in order, by trigger and key."""
    sensor = Sensor.load(manifest)
    with sensor.start(bus, partitions=3) as replica:
        replica.wait_ready()
        bus.publish_all(EVENTS)
        replica.settle()
    reader = bus.cluster.reader()
    topic = SensorName(bus.name, "orders").topic(Kind.ACTION)
    lanes = defaultdict(list)
    for partition in range(3):
        for record in read_range(reader, topic, partition, start=0, end=None, clock=SystemClock()):
            fact = action_fact(record)
            lanes[fact.trigger, fact.key].append(fact.id)
    reader.close()
    return dict(lanes)


def _lanes(report: dict[str, Any]) -> dict[tuple[str, str], list[str]]:
    lanes = defaultdict(list)
    for each in report["firings"]:
        lanes[each["trigger"], each["key"]].append(each["action"])
    return dict(lanes)


def test_it_equals_the_sensor_that_ran(cli: Command, on_kafka: list[str], bus: Bus, orders: Path) -> None:
    """Over its trigger topic, and, as there is one partition, over its events."""
    ran = _run(bus, orders)
    assert {trigger for trigger, _ in ran} == {"ship", "call", "both", "thank"}
    joined = cli("backtest", orders, "--from", "triggers", "-o", "json", *on_kafka)
    assert (joined.code, joined.err) == (0, "")
    report = json.loads(joined.out)
    assert _lanes(report) == {place: ids for place, ids in ran.items() if place[0] != "thank"}
    assert (report["passed_over"], report["order"]) == (["thank"], "as the sensor has put them into its trigger topic")

    found = cli("backtest", orders, "--since", "1h", "-o", "json", *on_kafka)
    report = json.loads(found.out)
    spread = ran.pop(("thank", ""))
    alike = _lanes(report)
    assert sorted(alike.pop(("thank", ""))) == sorted(spread)
    assert alike == ran
    assert report["order"].startswith("partitions interleave freely: events of different partitions are taken in the")
    assert (report["offsets"], report["fired"], report["missing"]) == (len(EVENTS), len(report["firings"]), [])
    held = {each["trigger"]: each["held"] for each in report["triggers"]}
    assert held["ship"] == {"packed": 3, "paid": 3}

    shown = cli("backtest", orders, "--from", "triggers", *on_kafka)
    assert "the trigger `thank` has no record in the trigger topic" in shown.err
    assert ["ship", "9", "6", "-", "-"] in [line.split() for line in shown.out.splitlines()]


def test_what_it_exports_is_a_scenario(cli: Command, on_kafka: list[str], bus: Bus, orders: Path) -> None:
    """A sensor that has never run here."""
    bus.publish_all(EVENTS)
    expected = orders.with_name("expected.jsonl")
    lines = [json.dumps({"source": e.source, "name": e.subject, "id": e.id, "data": e.json()}) for e in EVENTS]
    orders.with_name("events.jsonl").write_text("\n".join(lines))
    answer = cli("backtest", orders, "--export", expected, *on_kafka)
    assert (answer.code, answer.err) == (0, "")
    assert len(expected.read_text().splitlines()) > len(EVENTS) / 2
    assert [file.name for file in orders.parent.iterdir() if ".part" in file.name] == []
    assert cli("test", orders.parent).code == 0

    other = orders.with_name("other.yaml")
    other.write_text(SENSOR.replace('"refused": 3', '"refused": 2'))
    options = ["--against", orders, "--fail-on-change", *on_kafka]
    assert cli("backtest", orders, *options).code == 0
    differs = cli("backtest", other, *options)
    assert differs.code == 1
    assert [line for line in differs.out.splitlines() if line.startswith(("+ ", "- ", "~ "))]
    assert cli("backtest", other, *options[:2], *on_kafka).code == 0


def test_what_retention_has_removed_is_named_and_an_archive_has_it(
    cli: Command, on_kafka: list[str], bus: Bus, orders: Path, spark: SparkSession
) -> None:
    bus.publish_all(EVENTS)
    topic = bus.name.event_topic
    before = cli("backtest", orders, "-o", "json", *on_kafka)
    reader = bus.cluster.reader()
    records = list(read_range(reader, topic, 0, start=0, end=None, clock=SystemClock()))
    reader.close()
    archive = orders.with_name("archive")
    assert cli("archive", archive, *on_kafka).code == 0
    admin = AdminClient({"bootstrap.servers": on_kafka[1]})
    by_size = ConfigEntry("retention.bytes", "1000000", incremental_operation=AlterConfigOpType.SET)
    [altered] = admin.incremental_alter_configs(
        [ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[by_size])]
    ).values()
    altered.result()
    [removed] = admin.delete_records([TopicPartition(topic, 0, 12)]).values()
    removed.result()

    since = ["--since", exactly(records[0].timestamp)]
    answer = cli("backtest", orders, *since, *on_kafka)
    gone = f"{topic}[0]: the offsets 0 to 11 are gone: what they would have done is not known"
    assert (answer.code, answer.err) == (0, f"warning: {gone}\n")
    for times in ([], since):
        found = json.loads(cli("backtest", orders, *times, "-o", "json", *on_kafka).out)
        assert found["missing"] == [{"topic": topic, "partition": 0, "start": 0, "end": 12}]
        mended = json.loads(cli("backtest", orders, *times, "--archive", archive, "-o", "json", *on_kafka).out)
        assert mended["missing"] == []
        assert mended["firings"] == json.loads(before.out)["firings"]
    until = ["--until", exactly(records[0].timestamp)]
    assert json.loads(cli("backtest", orders, *until, "--archive", archive, "-o", "json", *on_kafka).out)["fired"] == 0
    nowhere = cli("backtest", orders, "--archive", orders.with_name("nowhere"), *on_kafka)
    assert nowhere.code == 2
    assert "there is no archive" in nowhere.err


def test_it_starts_a_spark_of_its_own(
    on_kafka: list[str], bus: Bus, orders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus.publish_all(EVENTS)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT")
    command = [sys.executable, "-m", "eventbus", "backtest", str(orders), "--since", "1h", *on_kafka]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=800)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ["thank", "12", "0", "-", "-"] in [line.split() for line in ran.stdout.splitlines()]
