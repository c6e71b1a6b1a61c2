"""`eventbus audit` on a real Kafka: a sensor that has worked, and one whose topics somebody has tampered with."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from eventbus import Bus, Event
from eventbus.clock import Deadline, SystemClock
from eventbus.formats import action_fact, invocation
from eventbus.names import Kind, SensorName, Stage
from eventbus.ports import Record
from sensors.inspection import read_range
from sensors.sensor import Sensor
from tests.cli.conftest import Command, cli, on_kafka
from tests.spark.manifests import logged, sensor

__all__ = ["cli", "on_kafka"]

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(900), pytest.mark.usefixtures("submitted")]

SENSOR = sensor(
    "orders",
    {"paid": "shop", "packed": "warehouse"},
    [
        logged("ship", "paid && packed", correlate={"by": "data.order"}, within="1h"),
        {**logged("pair", "paid && packed"), "atLeastOnce": True},
        logged("thank", "paid"),
    ],
)
ORDERS = 10
PATIENCE = 300.0


@pytest.fixture
def bus(on_kafka: list[str]) -> Iterator[Bus]:
    with Bus.connect(on_kafka[1], namespace=on_kafka[3]) as bus:
        bus.ensure(2)
        yield bus


@pytest.fixture
def orders(bus: Bus, tmp_path: Path) -> Path:
    """A sensor that has done its work."""
    file = tmp_path / "sensor.yaml"
    file.write_text(json.dumps(SENSOR))
    with Sensor.load(file).start(bus) as replica:
        replica.wait_ready()
        for number in range(ORDERS):
            for source, name in (("shop", "paid"), ("warehouse", "packed")):
                bus.publish(Event.new(source, name, {"order": number}, id=f"{name}-{number}", partitionkey="k"))
        replica.settle()
    return file


def _topic(bus: Bus, kind: Kind) -> str:
    return SensorName(bus.name, "orders").topic(kind)


def _records(bus: Bus, kind: Kind) -> list[Record]:
    reader = bus.cluster.reader()
    try:
        return [
            record
            for partition in range(2)
            for record in read_range(reader, _topic(bus, kind), partition, start=0, end=None, clock=SystemClock())
        ]
    finally:
        reader.close()


def _write(bus: Bus, record: Record, *, aborted: bool = False) -> None:
    producer = Producer({"bootstrap.servers": bus.bootstrap_servers, "transactional.id": f"{record.topic}-forger"})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(record.topic, record.value, record.key, record.partition, headers=list(record.headers))
    producer.flush()
    producer.abort_transaction() if aborted else producer.commit_transaction()


def _audit(cli: Command, *arguments: object) -> tuple[int, dict[str, Any]]:
    answer = cli("audit", *arguments, "-o", "json")
    assert answer.err == ""
    return answer.code, json.loads(answer.out)


def test_a_sensor_that_has_worked_is_clean_and_aborted_records_do_not_count(  # noqa: PLR0917
    cli: Command, on_kafka: list[str], bus: Bus, orders: Path, tmp_path: Path, spark: SparkSession
) -> None:
    for kind in (Kind.ACTION, Kind.INVOCATION, Kind.TRIGGER):
        _write(bus, _records(bus, kind)[0], aborted=True)
    page, tables = tmp_path / "audit.html", tmp_path / "tables"
    code, report = _audit(cli, orders, *on_kafka, "--report", page, "--parquet", tables)
    assert (code, report["violations"], report["missing"], report["not_judged"]) == (0, [], [], {})
    fired = {each["trigger"]: (each["fired"], each["succeeded"], each["mode"]) for each in report["triggers"]}
    assert fired == {
        "ship": (ORDERS, ORDERS, "atMostOnce"),
        "pair": (ORDERS, ORDERS, "atLeastOnce"),
        "thank": (ORDERS, ORDERS, "atMostOnce"),
    }
    assert "Every promise was kept" in page.read_text()
    assert {row["trigger"] for row in spark.read.parquet(f"{tables}/triggers").collect()} == {"ship", "pair", "thank"}
    text = cli("audit", orders, *on_kafka, "--trigger", "pair")
    assert text.code == 0
    assert text.out.startswith("Every promise was kept.")


def test_what_somebody_has_tampered_with_is_named_and_what_is_gone_is_not_passed_over(
    cli: Command, on_kafka: list[str], bus: Bus, orders: Path
) -> None:
    actions = _records(bus, Kind.ACTION)
    again = next(each for each in actions if action_fact(each).trigger == "pair")
    _write(bus, again)
    taken = next(each for each in _records(bus, Kind.INVOCATION) if invocation(each).outcome == "taken")
    _write(bus, taken)
    code, report = _audit(cli, orders, *on_kafka)
    said = {f"{each['invariant']} {each['breach']} {each['trigger']}" for each in report["violations"]}
    assert code == 1
    assert said == {"I2 duplicated pair", f"I7 duplicated {invocation(taken).trigger}"}

    admin = AdminClient({"bootstrap.servers": bus.bootstrap_servers})
    trigger = _records(bus, Kind.TRIGGER)[3]
    place = TopicPartition(trigger.topic, trigger.partition, trigger.offset)
    [removed] = admin.delete_records([place]).values()
    removed.result()
    code, report = _audit(cli, orders, *on_kafka, "--trigger", "ship")
    assert code == 1
    assert report["missing"] == [
        {"topic": trigger.topic, "partition": trigger.partition, "start": 0, "end": trigger.offset}
    ]


def test_a_new_spec_is_not_blamed_for_what_the_old_one_did_nor_the_old_one_for_what_came_later(
    cli: Command, on_kafka: list[str], bus: Bus, orders: Path, tmp_path: Path
) -> None:
    spec = SENSOR["spec"]
    changed = {
        **SENSOR,
        "metadata": {"name": "orders", "generation": 2},
        "spec": {**spec, "triggers": [*spec["triggers"][:2], logged("applaud", "packed")]},
    }
    newer = tmp_path / "newer.yaml"
    newer.write_text(json.dumps(changed))
    with Sensor.load(newer).start(bus) as replica:
        replica.wait_ready()
        for name, source in (("packed", "warehouse"), ("paid", "shop")):
            bus.publish(Event.new(source, name, {"order": ORDERS}, id=f"{name}-{ORDERS}", partitionkey="k"))
        replica.settle()
    for manifest in (newer, orders):
        code, report = _audit(cli, manifest, *on_kafka)
        assert (code, report["violations"]) == (0, []), manifest
        assert any("other generations" in what for what in report["not_judged"])

    applause = next(each for each in _records(bus, Kind.ACTION) if action_fact(each).trigger == "applaud")
    _write(bus, applause)
    code, report = _audit(cli, newer, *on_kafka)
    assert (code, {each["trigger"] for each in report["violations"]}) == (1, {"applaud"})


def test_a_sensor_of_which_kafka_has_forgotten_the_commits_is_judged_by_those_in_an_archive(
    cli: Command, on_kafka: list[str], bus: Bus, orders: Path, tmp_path: Path
) -> None:
    archive = tmp_path / "archive"
    assert cli("archive", archive, orders, *on_kafka).code == 0
    bus.cluster.forget([SensorName(bus.name, "orders").group(stage) for stage in Stage])
    assert cli("archive", archive, orders, *on_kafka).code == 0
    code, report = _audit(cli, orders, *on_kafka)
    assert (code, report["clean"], report["forgotten"]) == (1, True, ["match", "join", "invoke"])
    code, report = _audit(cli, orders, *on_kafka, "--archive", archive)
    assert (code, report["forgotten"], report["not_judged"]) == (0, [], {})


def test_it_follows_a_sensor_and_archives_what_it_audits(
    cli: Command, on_kafka: list[str], bus: Bus, orders: Path, tmp_path: Path
) -> None:
    archive, tables = tmp_path / "archive", tmp_path / "tables"
    done = tables / "hours" / "_SUCCESS"  # the last table of a round
    failures: list[str] = []

    def stop_after_a_round() -> None:
        deadline = Deadline(SystemClock(), PATIENCE)
        while not done.exists() and not deadline.over():
            threading.Event().wait(0.1)
        failures.extend([] if done.exists() else ["no round was finished"])
        os.kill(os.getpid(), signal.SIGTERM)

    watcher = threading.Thread(target=stop_after_a_round)
    watcher.start()
    followed = ["--follow", "--every", "1h", "--archive", archive, "--parquet", tables]
    answer = cli("audit", orders, *on_kafka, *followed, "-o", "json")
    watcher.join()
    assert failures == []
    assert (answer.code, answer.err) == (0, "")
    [report] = [json.loads(line) for line in answer.out.splitlines()]
    assert (report["clean"], report["missing"]) == (True, [])

    admin = AdminClient({"bootstrap.servers": bus.bootstrap_servers})
    for kind in (Kind.TRIGGER, Kind.ACTION):
        ends = [TopicPartition(_topic(bus, kind), each, -1) for each in range(2)]
        for removed in admin.delete_records(ends).values():
            removed.result()
    code, without = _audit(cli, orders, *on_kafka)
    assert code == 1
    assert without["missing"] != []
    code, archived = _audit(cli, orders, *on_kafka, "--archive", archive)
    assert (code, archived["missing"], archived["triggers"]) == (0, [], report["triggers"])


def test_mistakes_are_told_in_one_line(cli: Command, on_kafka: list[str], bus: Bus, orders: Path) -> None:
    unknown = cli("audit", orders, *on_kafka, "--trigger", "nope")
    assert (unknown.code, unknown.out) == (2, "")
    assert "has no trigger `nope`; it has ship, pair, thank" in unknown.err
    follow = cli("audit", orders, *on_kafka, "--follow")
    assert (follow.code, "--follow needs --archive DIR" in follow.err) == (2, True)
    missing = cli("audit", orders, *on_kafka[:2], "--namespace", "elsewhere")
    assert (missing.code, "does not exist" in missing.err) == (2, True)
