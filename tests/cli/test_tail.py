"""`eventbus tail`: what is on the topics, for people and programs."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from eventbus import Bus, Event
from eventbus.cli.options import View
from eventbus.kafka import KafkaCluster
from eventbus.ports import Output
from tests.cli.conftest import Command
from tests.cli.processes import Program


def _publish(on_kafka: list[str], *events: Event) -> None:
    with Bus.connect(on_kafka[1], namespace=on_kafka[3]) as bus:
        bus.publish(*events)


def _event(id: str) -> Event:
    return Event.new("shop", "order", {"n": 1}, id=id, partitionkey="k")


@pytest.mark.kafka
def test_what_is_there_is_shown_line_by_line(cli: Command, on_kafka: list[str]) -> None:
    _publish(on_kafka, _event("o-1"), _event("o-2"))
    answer = cli("tail", "events", "--no-follow", *on_kafka)
    assert (answer.code, answer.err) == (0, "")
    first, second = answer.out.splitlines()
    assert first.endswith(']@0  shop/order  o-1  key=k  {"n":1}')
    assert second.endswith(']@1  shop/order  o-2  key=k  {"n":1}')


@pytest.mark.kafka
def test_it_follows_until_it_has_enough(cli: Command, on_kafka: list[str]) -> None:
    _publish(on_kafka, _event("o-1"), _event("o-2"), _event("o-3"))
    answer = cli("tail", "events", "--from-beginning", "--max", "2", "--output", "json", *on_kafka)
    assert [json.loads(line)["event"]["id"] for line in answer.out.splitlines()] == ["o-1", "o-2"]


@pytest.mark.kafka
def test_without_more_words_it_begins_with_the_next_record_and_ends_with_ctrl_c(on_kafka: list[str]) -> None:
    _publish(on_kafka, _event("old"))
    with Program("tail", "events", *on_kafka) as tail:
        while not tail.out:  # it begins at a moment that cannot be seen from here
            _publish(on_kafka, _event("new"))
        tail.signal(signal.SIGINT)
        assert tail.end() == 130
    assert tail.err == []
    assert all("  new  " in line for line in tail.out)


@pytest.mark.kafka
def test_a_reader_that_goes_away_is_no_error(on_kafka: list[str]) -> None:
    _publish(on_kafka, *(_event(f"o-{number}") for number in range(3000)))
    for output in ("text", "json"):
        command = [sys.executable, "-m", "eventbus", "tail", "events", "--no-follow", "--output", output, *on_kafka]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as tail:
            assert tail.stdout is not None
            assert tail.stderr is not None
            assert tail.stdout.readline()
            tail.stdout.close()
            assert tail.stderr.read() == b""


@pytest.mark.kafka
def test_rubbish_is_shown_as_such(
    cli: Command, on_kafka: list[str], namespace: str, kafka_cluster: KafkaCluster
) -> None:
    _publish(on_kafka, _event("good"))
    publisher = kafka_cluster.publisher()
    publisher.send(Output(f"{namespace}-default", 0, None, b"\xff\x1b[2J", [("ce_id", b"\xfe")]), lambda *_: None)
    assert publisher.flush(10) == 0
    publisher.close()
    text = cli("tail", "events", "--no-follow", *on_kafka)
    assert text.code == 0
    assert "undecodable  the header `ce_id` is not UTF-8" in text.out
    assert "\x1b" not in text.out
    answer = cli("tail", "events", "--no-follow", "-o", "json", *on_kafka)
    assert sorted(json.loads(line).get("value_base64", "") for line in answer.out.splitlines()) == ["", "/xtbMko="]


@pytest.mark.parametrize("view", [view for view in View if view not in (View.EVENTS, View.DLQ)])
def test_all_but_events_and_dead_letters_need_a_sensor(cli: Command, view: View) -> None:
    assert cli("tail", view) == (2, "", f"error: whose {view}? Name a sensor with --sensor\n")


def test_a_sensor_can_be_named_by_a_manifest_only_if_it_is_there(cli: Command) -> None:
    answer = cli("tail", "dlq", "--sensor", "nowhere.yaml")
    assert answer == (2, "", "error: nowhere.yaml: cannot be read: No such file or directory\n")


@pytest.mark.kafka
def test_a_topic_that_is_not_there_is_named(cli: Command, on_kafka: list[str], namespace: str, orders: Path) -> None:
    message = "does not exist: nothing has been sent or run here under that name"
    assert cli("tail", "events", *on_kafka) == (2, "", f"error: the topic `{namespace}-default` {message}\n")
    for sensor in ("orders", orders):
        answer = cli("tail", "actions", "--sensor", sensor, *on_kafka)
        assert answer == (2, "", f"error: the topic `{namespace}-default-orders-action` {message}\n")
