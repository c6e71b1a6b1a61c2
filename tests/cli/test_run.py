"""`eventbus run`: real processes, real signals, a real Kafka and a real HTTP server."""

from __future__ import annotations

import json
import signal
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from urllib3 import request

from eventbus import Bus
from eventbus.cli import run as module
from eventbus.jsonl import read_events
from eventbus.kafka import admin
from tests.cli.conftest import JOIN, Command
from tests.cli.processes import Program


class Target:
    """An HTTP server that answers when it is told to."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.answer = threading.Event()
        target = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                target.asked.set()
                target.answer.wait(60)
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/"
        threading.Thread(target=self.server.serve_forever, args=(0.05,)).start()

    def close(self) -> None:
        self.answer.set()
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def target() -> Iterator[Target]:
    target = Target()
    yield target
    target.close()


@pytest.fixture
def calling(orders: Path, target: Target) -> Path:
    """A manifest: call the target when paid and packed."""
    orders.write_text(JOIN.replace("log: {}", f'http: {{url: "{target.url}", timeout: 60}}'))
    return orders


def _publish(on_kafka: list[str], events: Path) -> None:
    with Bus.connect(on_kafka[1], namespace=on_kafka[3]) as bus:
        for event in read_events(events):
            bus.publish(event)


def _outcomes(cli: Command, on_kafka: list[str]) -> list[str]:
    answer = cli("tail", "invocations", "--sensor", "orders", "--no-follow", "--output", "json", *on_kafka)
    return [json.loads(line)["invocation"]["outcome"] for line in answer.out.splitlines()]


# --- stopping -------------------------------------------------------------------------------------------------------


@pytest.mark.kafka
@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_a_running_action_finish(
    cli: Command, on_kafka: list[str], calling: Path, events: Path, target: Target, *, stop: int
) -> None:
    with Program("run", calling, *on_kafka) as run:
        run.wait_for("orders is ready")
        _publish(on_kafka, events)
        assert target.asked.wait(30)
        run.signal(stop)
        run.wait_for("stopping; actions that run have 20 s to finish")
        assert run.process.poll() is None
        target.answer.set()
        assert run.end() == 0
    assert "stopped" in run.err[-1]
    assert not any("Traceback" in line for line in run.err)
    assert _outcomes(cli, on_kafka) == ["taken", "succeeded"]


@pytest.mark.kafka
def test_an_action_that_outlives_the_drain_time_is_owned_up_to_and_does_not_keep_the_process(
    cli: Command, on_kafka: list[str], calling: Path, events: Path, target: Target
) -> None:
    with Program("run", calling, "--drain-seconds", "0.5", *on_kafka) as run:
        run.wait_for("orders is ready")
        _publish(on_kafka, events)
        assert target.asked.wait(30)
        run.signal(signal.SIGTERM)
        began = time.monotonic()
        assert run.end() == 0
        assert time.monotonic() - began < 15
    assert _outcomes(cli, on_kafka) == ["taken", "lost"]


@pytest.mark.kafka
def test_a_second_ctrl_c_does_not_wait(on_kafka: list[str], calling: Path, events: Path, target: Target) -> None:
    with Program("run", calling, "--drain-seconds", "60", *on_kafka) as run:
        run.wait_for("orders is ready")
        _publish(on_kafka, events)
        assert target.asked.wait(30)
        run.signal(signal.SIGINT)
        run.wait_for("stopping")
        run.signal(signal.SIGINT)
        assert run.end() == 130
    assert "stopped without waiting" in run.err[-1]


# --- what is said ---------------------------------------------------------------------------------------------------


@pytest.mark.kafka
def test_many_sensors_run_in_one_process_and_tell_their_health(
    on_kafka: list[str], orders: Path, tmp_path: Path, namespace: str
) -> None:
    other = JOIN.replace("name: orders", f"name: others\n  namespace: {namespace}-b")
    (tmp_path / "manifests").mkdir()
    (tmp_path / "manifests" / "others.yaml").write_text(other)
    options = ["--health-port", "0", "--log-format", "json", "--slot", "3"]
    with Program("run", orders, tmp_path / "manifests", *options, *on_kafka) as run:
        run.wait_for("orders is ready, slot 3")
        run.wait_for("others is ready, slot 3")
        line = json.loads(run.wait_for("health and metrics"))
        url = line["message"].split()[3].removesuffix("/healthz,")
        ready = json.loads(request("GET", f"{url}/readyz").data)
        run.signal(signal.SIGTERM)
        assert run.end() == 0
    assert ready == {"ok": True, "running": [f"{namespace}/default/orders", f"{namespace}-b/default/others"]}
    lines = [json.loads(line) for line in run.err]
    assert {"time", "level", "logger", "message"} <= set(lines[0])


@pytest.mark.kafka
def test_a_log_action_is_an_object_in_json_logs(on_kafka: list[str], orders: Path, events: Path) -> None:
    with Program("run", orders, "--log-format", "json", *on_kafka) as run:
        run.wait_for("orders is ready")
        _publish(on_kafka, events)
        line = json.loads(run.wait_for("eventbus.action"))
    assert (line["sensor"], line["trigger"]) == ("orders", "ship")
    assert set(line["events"]) == {"packed", "paid"}
    assert line["events"]["packed"] == "packed-1"


# --- what ends it ---------------------------------------------------------------------------------------------------


def _run_and_stop(*arguments: object) -> None:
    with Program("run", *arguments) as run:
        run.wait_for("is ready")
        run.signal(signal.SIGTERM)
        assert run.end() == 0


@pytest.mark.kafka
def test_another_spec_of_the_same_generation_stops_everything(
    on_kafka: list[str], orders: Path, tmp_path: Path, namespace: str
) -> None:
    _run_and_stop(orders, *on_kafka)
    orders.write_text(JOIN.replace("paid && packed", "paid || packed"))
    bystander = tmp_path / "bystander.yaml"
    bystander.write_text(JOIN.replace("name: orders", "name: bystander"))
    with Program("run", bystander, orders, *on_kafka) as refused:
        assert refused.end() == 3
    assert refused.err[-1].startswith(
        f"error: the sensor {namespace}/default/orders has run with another spec under the same generation 1. "
    )
    assert not any("Traceback" in line for line in refused.err)


@pytest.mark.kafka
def test_a_higher_generation_takes_over_and_the_lower_one_ends(
    on_kafka: list[str], orders: Path, namespace: str
) -> None:
    _run_and_stop(orders, "--generation", "2", *on_kafka)
    with Program("run", orders, *on_kafka) as superseded:
        assert superseded.end() == 4
    assert superseded.err[-1] == (
        f"error: generation 2 of the sensor {namespace}/default/orders has taken over; this is generation 1. "
        "Run the newer manifest"
    )


@pytest.mark.kafka
def test_one_sensor_with_the_wrong_partition_count_and_none_runs(
    on_kafka: list[str], orders: Path, tmp_path: Path, namespace: str
) -> None:
    _run_and_stop(orders, "--partitions", "2", *on_kafka)
    bystander = tmp_path / "bystander.yaml"
    bystander.write_text(JOIN.replace("name: orders", "name: bystander"))
    with Program("run", bystander, orders, "--partitions", "3", *on_kafka) as run:
        assert run.end() == 2
    assert (
        f"error: the topic `{namespace}-default-orders-trigger` has 2 partitions and 3 were asked for: "
        "leave the number out to use it as it is, or delete the topic"
    ) in run.err
    assert not any("is ready" in line for line in run.err)


def test_a_broker_that_does_not_answer_ends_the_start(
    cli: Command, orders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_REACH_SECONDS", 0.5)
    monkeypatch.setattr(admin, "REQUEST_TIMEOUT", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        answer = cli("run", orders, "--bootstrap-servers", address)
    assert answer.code == 1
    assert answer.err.splitlines()[-1] == (
        f"error: Kafka, describing topic default-default on {address}: no answer. "
        "Check that the brokers run and can be reached from here."
    )


@pytest.mark.kafka
def test_a_health_port_that_is_taken_is_named(cli: Command, on_kafka: list[str], orders: Path) -> None:
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        answer = cli("run", orders, "--health-port", str(port), *on_kafka)
    assert answer.code == 2
    assert answer.err.splitlines()[-1] == (
        f"error: cannot serve health and metrics on port {port}: Address already in use"
    )


@pytest.mark.parametrize(
    ("one", "other", "message"),
    [
        (
            "name: orders",
            "name: orders",
            "the sensor default/default/orders is declared twice: in {one} and in {other}",
        ),
        (
            "name: b-default-c\n  namespace: a",
            "name: c\n  namespace: a-default-b",
            "the sensors a/default/b-default-c ({one}) and a-default-b/default/c ({other}) would use the same topics",
        ),
    ],
)
def test_sensors_that_would_share_topics_do_not_run_together(
    cli: Command, orders: Path, tmp_path: Path, *, one: str, other: str, message: str
) -> None:
    second = tmp_path / "second.yaml"
    orders.write_text(JOIN.replace("name: orders", one))
    second.write_text(JOIN.replace("name: orders", other))
    answer = cli("run", orders, second)
    assert answer.code == 2
    assert answer.err.startswith("error: " + message.format(one=orders, other=second))


def test_all_problems_of_all_manifests_are_told_at_once(cli: Command, orders: Path, tmp_path: Path) -> None:
    second = tmp_path / "second.yaml"
    orders.write_text("")
    second.write_text("kind: Nothing")
    answer = cli("run", orders, second)
    assert answer.code == 2
    assert f"error: {orders}: the manifest is empty\n{second}:1:" in answer.err
