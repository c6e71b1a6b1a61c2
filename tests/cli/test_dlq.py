"""`eventbus dlq`: from a failed action to a second chance, on a real Kafka."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eventbus import Bus
from eventbus.kafka import KafkaCluster
from eventbus.names import BusName, Kind, SensorName, Stage
from eventbus.ports import Output, Record
from eventbus.topics import ensure_sensor_topics
from eventsources.base import Identity, Unusable
from eventsources.journal import Journal
from sensors.deadletters import ACTION_FAILED, SPEC_CHANGED, DeadLetters
from tests.cli.conftest import Command
from tests.eventsources.serving import through_journal


class Letters:
    """Writes dead letters of the sensor `orders`."""

    def __init__(self, cluster: KafkaCluster, namespace: str) -> None:
        self.name = SensorName(BusName(namespace), "orders")
        self.topology = ensure_sensor_topics(cluster, self.name, 2)
        self._cluster = cluster
        self._letters = DeadLetters.of_stage(self.name, Stage.INVOKE, self.topology, "0")

    def action(self, partition: int, reason: str = ACTION_FAILED) -> None:
        topic = self.name.topic(Kind.ACTION)
        record = Record(topic, partition, 7, 5, b"ship\0", b"[]", [("eb_action", b"{}")])
        self.write(self._letters.of(record, reason, "no\nanswer", trigger="ship", action="a-1", attempts=3))

    def refused(self) -> None:
        self.write(self._letters.of_refused(Output(self.name.topic(Kind.ACTION), 0, b"k", b"v"), "too large"))

    def write(self, output: Output) -> None:
        publisher = self._cluster.publisher()
        publisher.send(output, lambda *_: None)
        assert publisher.flush(10) == 0
        publisher.close()


@pytest.fixture
def letters(kafka_cluster: KafkaCluster, namespace: str) -> Letters:
    return Letters(kafka_cluster, namespace)


@pytest.mark.kafka
def test_a_letter_is_listed_driven_back_and_listed_no_more(
    cli: Command, on_kafka: list[str], letters: Letters, orders: Path, namespace: str
) -> None:
    letters.action(partition=1)
    listed = cli("dlq", "list", orders, *on_kafka)
    assert (listed.code, listed.err) == (0, "")
    header, row = listed.out.splitlines()
    assert header.split() == ["PLACE", "TIME", "REASON", "TRIGGER", "FROM", "ATTEMPTS", "REDRIVEN", "DETAIL"]
    action_topic = f"{namespace}-default-orders-action"
    assert row.startswith("1:0  ")
    assert row.endswith(f"action-failed  ship     {action_topic}[1]@7  3         -         no answer")

    rehearsed = cli("dlq", "redrive", "orders", "--all", "--dry-run", *on_kafka)
    assert rehearsed == (0, f"1:0 → {action_topic}[1]  action-failed  a-1\n1 would be driven back, 0 not\n", "")
    assert cli("tail", "actions", "--sensor", "orders", "--no-follow", *on_kafka).out == ""

    done = cli("dlq", "redrive", "orders", "--offset", "1:0", *on_kafka)
    assert done == (0, f"1:0 → {action_topic}[1]  action-failed  a-1\n1 driven back, 0 not\n", "")
    assert cli("dlq", "list", "orders", *on_kafka).out == "no dead letters\n"
    assert "1:0" in cli("dlq", "list", "orders", "--all", *on_kafka).out
    assert len(cli("tail", "actions", "--sensor", "orders", "--no-follow", *on_kafka).out.splitlines()) == 1
    assert "redriven  1:0" in cli("tail", "dlq", "--sensor", "orders", "--no-follow", *on_kafka).out

    again = cli("dlq", "redrive", "orders", "--offset", "1:0", *on_kafka)
    assert again == (1, "0 driven back, 1 not\n", "warning: 1:0 stays: it was driven back already\n")


@pytest.mark.kafka
def test_programs_get_a_line_per_letter(cli: Command, on_kafka: list[str], letters: Letters) -> None:
    letters.action(partition=0, reason=SPEC_CHANGED)
    letters.action(partition=1)
    answer = cli("dlq", "list", "orders", "--reason", SPEC_CHANGED, "--output", "json", *on_kafka)
    [line] = map(json.loads, answer.out.splitlines())
    assert (line["partition"], line["offset"], line["redriven_at"]) == (0, 0, None)
    assert line["dead_letter"]["detail"] == "no\nanswer"
    answer = cli("dlq", "redrive", "orders", "--trigger", "ship", "--output", "json", *on_kafka)
    assert answer.code == 0
    lines = [json.loads(line) for line in answer.out.splitlines()]
    assert [(line["partition"], line["done"], line["refused"]) for line in lines] == [(0, True, None), (1, True, None)]


@pytest.mark.kafka
def test_what_cannot_be_driven_back_makes_the_command_fail(cli: Command, on_kafka: list[str], letters: Letters) -> None:
    letters.refused()
    letters.action(partition=1)
    answer = cli("dlq", "redrive", "orders", "--all", *on_kafka)
    assert answer.code == 1
    assert answer.out.endswith("1 driven back, 1 not\n")
    assert answer.err == "warning: 0:0 stays: the log would refuse it again: too large\n"
    missing = cli("dlq", "redrive", "orders", "--offset", "1:99", *on_kafka)
    assert missing == (1, "0 driven back, 1 not\n", "warning: there is no dead letter at 1:99\n")


@pytest.mark.kafka
def test_a_sensor_that_never_ran_is_named(cli: Command, on_kafka: list[str], namespace: str) -> None:
    for command in (["list", "orders"], ["redrive", "orders", "--all"]):
        answer = cli("dlq", *command, *on_kafka)
        assert answer.code == 2
        assert answer.err == (
            f"error: the topic `{namespace}-default-orders-dlq` does not exist: "
            f"the sensor {namespace}/default/orders has never run here\n"
        )


@pytest.mark.kafka
def test_those_of_event_sources_are_listed_and_driven_back_without_a_sensor(
    cli: Command, on_kafka: list[str], kafka_cluster: KafkaCluster, namespace: str
) -> None:
    never = cli("dlq", "list", *on_kafka)
    assert never.code == 2
    assert f"an event source of the bus {namespace}/default that fetches has never run here" in never.err

    bus = Bus(kafka_cluster, BusName(namespace))
    identity = Identity("news", "item", "nats")
    journal = Journal(bus, identity)
    through_journal(bus, identity, journal)([Unusable("7", "torn", b"{")])
    journal.close()
    assert "no-event" in cli("tail", "dlq", "--no-follow", *on_kafka).out
    listed = cli("dlq", "list", *on_kafka)
    assert "no-event  -        news/item" in listed.out
    driven = cli("dlq", "redrive", "--all", *on_kafka)
    assert driven == (1, "0 driven back, 1 not\n", "warning: 0:0 stays: it never was an event: `7`: torn\n")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "say which: --offset, --reason, --trigger or --all"),
        (["--all", "--reason", "x"], "--offset, --all, and --reason with --trigger exclude each other"),
        (["--all", "--offset", "0:1"], "--offset, --all, and --reason with --trigger exclude each other"),
        (["--offset", "17"], "--offset 17: write it as PARTITION:OFFSET, for instance 0:17"),
        (["--offset", "0:-1"], "--offset 0:-1: write it as PARTITION:OFFSET, for instance 0:17"),
    ],
)
def test_a_redrive_must_say_clearly_what_it_means(cli: Command, options: list[str], message: str) -> None:
    assert cli("dlq", "redrive", "orders", *options) == (2, "", f"error: {message}\n")


def test_a_sensor_name_that_cannot_be_is_refused(cli: Command) -> None:
    answer = cli("dlq", "list", "Orders")
    assert answer.code == 2
    assert answer.err.startswith("error: the sensor name `Orders` is not allowed")
