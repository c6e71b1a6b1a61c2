"""`eventbus replay`: past events once more, for one sensor, on a real Kafka."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import Any

import pytest

from eventbus import Bus, Event
from eventbus.cli import replay as module
from eventbus.clock import SystemClock
from eventbus.errors import UnproducibleError
from eventbus.moments import exactly
from sensors.sensor import Sensor
from tests.cli.conftest import JOIN, Command

PAST = [
    Event.new("shop", "paid", {"order": 1}, id="paid-1", partitionkey="1", time="2020-01-01T00:00:00Z"),
    Event.new("warehouse", "packed", {"order": 1}, id="packed-1", partitionkey="1"),
    Event.new("shop", "refunded", id="refunded-1"),
    Event.new("shop", "paid", {"order": 2}, id="paid-2", partitionkey="2"),
]


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """Another sensor that wants the same events."""
    file = tmp_path / "other.yaml"
    file.write_text(JOIN.replace("name: orders", "name: other"))
    return file


@pytest.fixture
def bus(on_kafka: list[str]) -> Iterator[Bus]:
    with Bus.connect(on_kafka[1], namespace=on_kafka[3]) as bus:
        bus.ensure(2)
        yield bus


def _run(bus: Bus, *manifests: Path, publish: list[Event] | None = None) -> None:
    """Let sensors do what there is to do."""
    for manifest in manifests:
        with Sensor.load(manifest).start(bus) as replica:
            replica.wait_ready()
            for event in publish or []:
                bus.publish(event)
                _let_a_millisecond_pass()
            replica.settle()


def _let_a_millisecond_pass() -> None:
    """By `--since` no two events can be told apart that came in the same one."""
    clock = SystemClock()
    now = clock.now_ms()
    while clock.now_ms() == now:
        pass


def _events(cli: Command, on_kafka: list[str]) -> list[dict[str, Any]]:
    answer = cli("tail", "events", "--no-follow", "-o", "json", *on_kafka)
    return [json.loads(line) for line in answer.out.splitlines()]


def _actions(cli: Command, on_kafka: list[str], sensor: str) -> list[dict[str, Any]]:
    answer = cli("tail", "actions", "--sensor", sensor, "--no-follow", "-o", "json", *on_kafka)
    return [json.loads(line) for line in answer.out.splitlines()]


@pytest.mark.kafka
def test_one_sensor_gets_what_it_asks_for_again_and_others_do_not(
    cli: Command, on_kafka: list[str], bus: Bus, orders: Path, other: Path
) -> None:
    _run(bus, other)
    _run(bus, orders, publish=PAST)
    _run(bus, other)
    before = _events(cli, on_kafka)
    rehearsed = cli("replay", orders, "--since", "1h", "--dry-run", *on_kafka)
    assert (rehearsed.code, rehearsed.err) == (0, "")
    assert [line.split() for line in rehearsed.out.splitlines()][:6] == [
        ["DEPENDENCY", "EVENTS", "FILTERED"],
        ["packed", "1", "0"],
        ["paid", "2", "0"],
        [],
        ["TRIGGER", "WOULD", "FIRE"],
        ["ship", "1"],
    ]
    assert "3 events would be replayed" in rehearsed.out
    assert _events(cli, on_kafka) == before

    assert cli("replay", orders, "--since", "1h", "--yes", *on_kafka) == (0, "3 events replayed\n", "")
    copies = _events(cli, on_kafka)
    originals = {each["event"]["id"]: each for each in before}
    copies = [each for each in copies if "replayof" in each["event"]]
    for copy in copies:
        original = originals[copy["event"]["id"]]
        place = f"{original['partition']}:{original['offset']}"
        marks = {"replayfor": f"{bus.name.namespace}/default/orders", "replayof": place}
        assert copy["event"] == original["event"] | marks
        assert (copy["partition"], copy["key"]) == (original["partition"], original["key"])
    assert [each["event"]["id"] for each in copies if each["key"] == "1"] == ["paid-1", "packed-1"]

    _run(bus, orders, other)
    assert len(_actions(cli, on_kafka, "orders")) == 2
    assert len(_actions(cli, on_kafka, "other")) == 1
    again = cli("replay", orders, "--since", "1h", "--dry-run", "-o", "json", *on_kafka)
    assert json.loads(again.out)["events"] == 3  # copies are not copied


@pytest.mark.kafka
def test_the_time_says_which_events(cli: Command, on_kafka: list[str], bus: Bus, orders: Path) -> None:
    _run(bus, orders, publish=PAST)
    times = {each["event"]["id"]: each["timestamp"] for each in _events(cli, on_kafka)}
    del times["refunded-1"]  # no trigger wants it

    def chosen(*options: str) -> int:
        answer = cli("replay", orders, *options, "--dry-run", "-o", "json", *on_kafka)
        return int(json.loads(answer.out)["events"])

    def between(since: int, until: float = inf) -> int:
        """Events that are published together may be of the same millisecond."""
        return sum(since <= time < until for time in times.values())

    first, middle, last = times["paid-1"], times["packed-1"], times["paid-2"]
    assert between(first) == len(times) == len(PAST) - 1
    assert chosen("--since", exactly(middle)) == between(middle)
    assert chosen("--since", exactly(first), "--until", exactly(middle)) == between(first, middle)
    assert chosen("--since", exactly(last + 1)) == 0


@pytest.mark.kafka
def test_a_sensor_that_never_ran_is_not_fed(cli: Command, on_kafka: list[str], bus: Bus, orders: Path) -> None:
    bus.publish(*PAST)
    answer = cli("replay", orders, "--since", "1h", "--yes", *on_kafka)
    assert answer.code == 2
    assert "has never run here" in answer.err
    assert len(_events(cli, on_kafka)) == len(PAST)


@pytest.mark.kafka
@pytest.mark.parametrize("agreed", [True, False])
def test_on_a_terminal_it_asks_once(cli: Command, on_kafka: list[str], bus: Bus, orders: Path, agreed: bool) -> None:
    _run(bus, orders, publish=PAST)
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "eventbus", "replay", str(orders), "--since", "1h", *on_kafka]
    os.write(ours, b"y\n" if agreed else b"n\n")
    try:
        ran = subprocess.run(command, stdin=theirs, capture_output=True, check=False, timeout=60)
    finally:
        os.close(ours)
        os.close(theirs)
    assert ran.returncode == (0 if agreed else 1), ran.stderr
    assert b"Replay 3 events for" in ran.stderr
    assert len(_events(cli, on_kafka)) == len(PAST) + (3 if agreed else 0)


@pytest.mark.kafka
def test_where_nobody_can_be_asked_it_wants_a_yes(
    cli: Command, on_kafka: list[str], bus: Bus, orders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _run(bus, orders, publish=PAST)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    answer = cli("replay", orders, "--since", "1h", *on_kafka)
    assert answer.code == 2
    assert answer.err.endswith("and nobody can be asked here: say --yes\n")


@pytest.mark.kafka
def test_an_interrupted_replay_says_where_to_go_on(
    cli: Command, on_kafka: list[str], bus: Bus, orders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sensors.replay.BATCH", 1)
    _run(bus, orders, publish=PAST)
    times = {each["event"]["id"]: each["timestamp"] for each in _events(cli, on_kafka)}
    write = Bus.write

    def interrupted(bus: Bus, outputs: Any, **options: Any) -> Any:
        outputs = list(outputs)
        if ("ce_id", b"paid-2") in outputs[0].headers:
            raise KeyboardInterrupt
        return write(bus, outputs, **options)

    with monkeypatch.context() as patched:
        patched.setattr(Bus, "write", interrupted)
        answer = cli("replay", orders, "--since", "1h", "--yes", *on_kafka)
    since = exactly(times["paid-2"])
    assert answer.code == 130
    assert f"2 of 3 events are replayed, perhaps some more. To go on, use --since {since};" in answer.err
    monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal: with a bar, which leaves nothing behind on stdout
    assert cli("replay", orders, "--since", since, "--yes", *on_kafka).out == "1 event replayed\n"


@pytest.mark.kafka
def test_what_the_log_refuses_is_named_and_the_rest_goes_on(
    cli: Command, on_kafka: list[str], bus: Bus, orders: Path
) -> None:
    _run(bus, orders, publish=PAST)
    _publish_largest(bus)
    answer = cli("replay", orders, "--since", "1h", "--yes", *on_kafka)
    assert (answer.code, answer.out) == (1, "3 events replayed, 1 refused\n")
    assert "(event large) was refused: " in answer.err


def _publish_largest(bus: Bus) -> None:
    """An event that fits into the topic just so, and not with two attributes more."""
    noise = os.urandom(1 << 20)
    for size in range(len(noise), 0, -10):
        with suppress(UnproducibleError):
            bus.publish(Event.new("shop", "paid", noise[:size], id="large", datacontenttype="application/noise"))
            return


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--since", "yesterday"], "--since yesterday: write how long ago, such as 90m or 24h, or a time such as "),
        (["--since", "1h", "--until", "-1h"], "--until -1h: write how long ago"),
        (["--since", "1h", "--until", "2h"], "--until must be later than --since"),
    ],
)
def test_times_that_make_no_sense_are_refused(cli: Command, orders: Path, options: list[str], message: str) -> None:
    answer = cli("replay", orders, *options)
    assert answer.code == 2
    assert message in answer.err
    assert module.replay.__doc__ is not None
    assert "`dedupe`" in module.replay.__doc__
