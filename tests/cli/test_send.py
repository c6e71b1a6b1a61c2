"""`eventbus send`: events on a real Kafka, and what is refused before anything is sent."""

from __future__ import annotations

import io
import json
import os
import sys
import threading
from pathlib import Path

import pytest

from eventbus.cli import send as module
from eventbus.events import Event
from eventbus.jsonl import Line
from eventbus.kafka import KafkaCluster
from tests.cli.conftest import EVENTS, Command

ONE = ["send", "--source", "shop", "--name", "order"]


def _sent(cli: Command, on_kafka: list[str]) -> list[dict[str, object]]:
    answer = cli("tail", "events", "--no-follow", "--output", "json", *on_kafka)
    return [json.loads(line)["event"] for line in answer.out.splitlines()]


@pytest.mark.kafka
def test_one_event_is_sent_as_described(cli: Command, on_kafka: list[str], namespace: str) -> None:
    options = [
        "--data",
        '{"id": 17}',
        "--key",
        "c-3",
        "--id",
        "o-17",
        "--type",
        "t",
        "-a",
        "name=x",
        "-a",
        "tenant=a=b",
    ]
    answer = cli(*ONE, *options, *on_kafka)
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.startswith(f"{namespace}-default[")
    assert answer.out.endswith("]@0  o-17\n")
    assert _sent(cli, on_kafka) == [
        {
            "specversion": "1.0",
            "id": "o-17",
            "source": "shop",
            "type": "t",
            "subject": "order",
            "name": "x",
            "tenant": "a=b",
            "partitionkey": "c-3",
            "datacontenttype": "application/json",
            "data": {"id": 17},
        }
    ]


@pytest.mark.kafka
def test_data_comes_from_a_file_or_the_standard_input(
    cli: Command, on_kafka: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data.txt").write_bytes(b"plain\xff")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'"piped"')))
    key = ["--key", "same"]
    cli(*ONE, "--data", f"@{tmp_path / 'data.txt'}", "-a", "datacontenttype=text/plain", *key, *on_kafka)
    cli(*ONE, "--data", "-", *key, *on_kafka)
    cli(*ONE, *key, *on_kafka)
    from_file, piped, none = _sent(cli, on_kafka)
    assert from_file["data_base64"] == "cGxhaW7/"
    assert piped["data"] == "piped"
    assert "data" not in none


@pytest.mark.kafka
def test_a_file_of_events_is_sent_in_order(cli: Command, on_kafka: list[str], events: Path) -> None:
    events.write_text(EVENTS.replace('"name"', '"partitionkey": "k", "name"'))
    answer = cli("send", "--file", events, "--rate", "1000", "--output", "json", *on_kafka)
    assert answer.code == 0
    lines = [json.loads(line) for line in answer.out.splitlines()]
    assert [(line["id"], line["offset"]) for line in lines] == [("paid-1", 0), ("packed-1", 1), ("paid-2", 2)]
    assert [event["id"] for event in _sent(cli, on_kafka)] == ["paid-1", "packed-1", "paid-2"]


@pytest.mark.kafka
def test_a_file_that_can_be_read_only_once_is_sent_whole(
    cli: Command, on_kafka: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=(EVENTS,))
    writer.start()
    answer = cli("send", "--file", pipe, *on_kafka)
    writer.join()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(EVENTS.encode())))
    again = cli("send", "--file", "-", *on_kafka)
    assert (answer.code, again.code) == (0, 0)
    assert len(_sent(cli, on_kafka)) == 6


@pytest.mark.kafka
def test_on_a_terminal_every_event_still_has_its_line(
    cli: Command, on_kafka: list[str], events: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    answer = cli("send", "--file", events, *on_kafka)
    assert answer.code == 0
    assert all(id in answer.out for id in ("paid-1", "packed-1", "paid-2"))
    assert "sending" in answer.out


@pytest.mark.kafka
def test_an_event_that_is_too_large_is_refused_with_the_limit(
    cli: Command, on_kafka: list[str], tmp_path: Path, namespace: str
) -> None:
    large = tmp_path / "large.json"
    large.write_text(json.dumps("x" * 5_000_000))
    answer = cli(*ONE, "--data", f"@{large}", "--id", "big", *on_kafka)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err == (
        f"error: the event takes 5,000,268 bytes, and the topic `{namespace}-default` takes at most 1,048,576 per "
        "event (its max.message.bytes): nothing was sent. Send a reference to the data instead\n"
    )
    many = tmp_path / "many.jsonl"
    many.write_text(EVENTS + json.dumps({"source": "shop", "name": "order", "data": "x" * 5_000_000}))
    refused = cli("send", "--file", many, *on_kafka)
    assert refused.err.startswith(f"error: {many}:4 takes 5,0")
    assert _sent(cli, on_kafka) == []


@pytest.mark.kafka
def test_one_bad_line_and_nothing_is_sent(
    cli: Command, on_kafka: list[str], events: Path, namespace: str, kafka_cluster: KafkaCluster
) -> None:
    events.write_text(EVENTS + '{"source": "shop"')
    answer = cli("send", "--file", events, *on_kafka)
    assert answer.code == 2
    assert answer.err == f"error: {events}:4: not a JSON object: Input data was truncated\n"
    assert kafka_cluster.describe([f"{namespace}-default"]) == {f"{namespace}-default": None}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["send"], "say what to send: --source and --name for one event, or --file for many"),
        (["send", "--source", "shop"], "say what to send: --source and --name for one event, or --file for many"),
        ([*ONE, "--file", "x"], "--file brings whole events: leave out the options that describe a single one"),
        ([*ONE, "--rate", "5"], "--rate needs --file: a single event has no rate"),
        ([*ONE, "-a", "tenant"], "--attribute tenant: write it as NAME=VALUE"),
        ([*ONE, "-a", "id=1"], "--attribute id=1: use --id"),
        ([*ONE, "-a", "subject=1"], "--attribute subject=1: use --name"),
        (
            [*ONE, "-a", "Tenant=a"],
            "the attribute name `Tenant` is not allowed: use lower-case letters and digits only",
        ),
        ([*ONE, "-a", "specversion=7"], "specversion `7` is not known; 1.0 and 0.3 are"),
        ([*ONE, "--id", ""], "the attribute `id` must be a non-empty string"),
        ([*ONE, "--data", "@nowhere"], "--data @nowhere: cannot be read: No such file or directory"),
        (["send", "--file", "nowhere"], "nowhere: cannot be read: No such file or directory"),
        (["send", "--file", "/dev/null"], "there is no event in the file"),
    ],
)
def test_bad_input_is_refused_before_a_broker_is_needed(cli: Command, arguments: list[str], message: str) -> None:
    assert cli(*arguments) == (2, "", f"error: {message}\n")


def test_text_that_is_no_json_gets_advice(cli: Command) -> None:
    answer = cli(*ONE, "--data", "hello", "--id", "e")
    assert answer.code == 2
    assert answer.err.startswith("error: --data: the data of event `e` is not JSON: ")
    assert answer.err.endswith(
        "Text needs quotes of its own ('\"text\"'); "
        "for anything but JSON say what it is, as in --attribute datacontenttype=text/plain\n"
    )


def test_a_rate_is_kept_by_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    now, sleeps = [100.0], []

    def sleep(seconds: float) -> None:
        sleeps.append(seconds)
        now[0] += seconds

    monkeypatch.setattr("time.monotonic", lambda: now[0])
    monkeypatch.setattr("time.sleep", sleep)
    lines = [Line(Event.new("shop", "order"), "f:1")] * 50
    assert [len(batch) for batch in module._paced(lines, 400)] == [20, 20, 10]
    assert sleeps == pytest.approx([0.0, 0.05, 0.05])
    assert [len(batch) for batch in module._paced(lines, 2)] == [1] * 50
    assert now[0] == pytest.approx(100.1 + 24.5)
