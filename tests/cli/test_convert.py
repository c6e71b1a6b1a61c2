"""`eventbus convert`: the group changes and nothing else does, and what will be different is told."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from tests.cli.conftest import JOIN, Command

ARGO = """\
# our sensor
"apiVersion":   'argoproj.io/v1alpha1'  # of argo
kind: Sensor
metadata: {name: orders}
spec:
  dependencies:
    - {name: paid, eventSourceName: shop, eventName: paid}
    - {name: packed, eventSourceName: warehouse, eventName: packed}

  triggers:
    -   template:
            name: ship
            http: {url: "http://h/argoproj.io/v1alpha1"}
"""
OTHER = "apiVersion: argoproj.io/v1alpha1\nkind: Workflow\n"


def test_only_the_group_changes(cli: Command, orders: Path) -> None:
    orders.write_bytes(f"{OTHER}---\n{ARGO}---\n{ARGO.replace('orders', 'others')}".replace("\n", "\r\n").encode())
    before = orders.read_bytes()
    answer = cli("convert", orders, "--write")
    assert (answer.code, answer.out) == (0, "")
    assert orders.read_bytes() == before.replace(b"'argoproj.io", b"'eventbus.dev")
    assert "2 manifests converted, 6 differences, 0 errors\n" in answer.err
    assert cli("validate", orders).code == 0


def test_without_write_the_result_goes_to_stdout(cli: Command, orders: Path, tmp_path: Path) -> None:
    orders.write_text(ARGO)
    mine = tmp_path / "mine.yaml"
    mine.write_text(JOIN)
    answer = cli("convert", orders, mine)
    assert answer.out == ARGO.replace("'argoproj.io", "'eventbus.dev") + "---\n" + JOIN
    assert orders.read_text() == ARGO


def test_the_standard_input(cli: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(ARGO.encode())))
    answer = cli("convert", "-")
    assert answer.out == ARGO.replace("'argoproj.io", "'eventbus.dev")
    assert "differs: <stdin>:13:13: argo-events takes every answer for success" in answer.err
    assert cli("convert", "-", "--write").code == 2


def test_a_sensor_that_is_ours_already_stays_and_has_no_differences(cli: Command, orders: Path) -> None:
    answer = cli("convert", orders)
    assert answer == (0, JOIN, "0 manifests converted, 0 differences, 0 errors\n")


def test_the_report_for_programs(cli: Command, orders: Path) -> None:
    orders.write_text(ARGO)
    report = json.loads(cli("convert", orders, "--output", "json").err)
    assert (report["converted"], report["problems"]) == (1, [])
    found = [(each["difference"], each["file"], each["line"], each["column"]) for each in report["differences"]]
    assert found == [
        ("joined-events", str(orders), 12, 13),
        ("at-most-once", str(orders), 12, 13),
        ("http-status", str(orders), 13, 13),
    ]


def test_what_cannot_be_loaded_is_told_and_converted_nevertheless(cli: Command, orders: Path) -> None:
    orders.write_text(ARGO.replace("name: ship", "name: ship\n            pulsar: {}"))
    answer = cli("convert", orders)
    assert answer.code == 1
    assert f"error: {orders}:13:13: " in answer.err
    assert "'eventbus.dev/v1alpha1'" in answer.out


SOURCE = """\
apiVersion: argoproj.io/v1alpha1
kind: EventSource
metadata: {name: clock}
spec:
  calendar:
    tick: {interval: 10s}   # often
"""
BUS = """\
apiVersion: argoproj.io/v1alpha1
kind: EventBus
metadata: {name: default, namespace: shop}
spec:
  kafka:
    url: kafka:9092
    topic: shop-default
    version: 2.5.0
    tls: {caCertSecret: {name: kafka, key: ca}}
    sasl: {mechanism: SCRAM-SHA-512, userSecret: {name: kafka, key: u}, passwordSecret: {name: kafka, key: p}}
    consumerGroup: {groupName: mine, oldest: true}
"""


def test_event_sources_and_buses_are_converted_too(cli: Command, orders: Path) -> None:
    orders.write_text(f"{SOURCE}---\n{BUS}---\n{OTHER}")
    answer = cli("convert", orders, "--write")
    assert answer.code == 0
    assert orders.read_text() == f"{SOURCE}---\n{BUS}".replace("argoproj.io", "eventbus.dev") + f"---\n{OTHER}"
    assert [line.partition(": ")[2].split(": ")[0] for line in answer.err.splitlines()[:-1]] == [
        f"{orders}:{place}" for place in ("6:5", "6:12", "15:5", "18:5", "18:38")
    ]
    assert answer.err.splitlines()[-1] == "2 manifests converted, 5 differences, 0 errors"
    assert cli("validate", orders).code == 0


@pytest.mark.parametrize(
    ("text", "place", "reason"),
    [
        (BUS.replace("shop-default", "events"), "7:12", "events are in the topic `shop-default`; leave it out"),
        (BUS.partition("  kafka")[0] + "  jetstream: {version: 2.9.0}\n", "5:3", "this bus is on Kafka"),
        (SOURCE.replace("calendar", "hdfs"), "5:3", "event sources of the kind `hdfs` are not supported"),
    ],
)
def test_what_cannot_be_had_here_is_refused_with_its_reason(
    cli: Command, orders: Path, text: str, place: str, reason: str
) -> None:
    orders.write_text(text)
    answer = cli("convert", orders)
    assert answer.code == 1
    assert f"error: {orders}:{place}: " in answer.err
    assert reason in answer.err


@pytest.mark.parametrize("text", ["kind: [\n", ARGO + "---\nkind: [\n"])
def test_a_malformed_file_is_left_alone(cli: Command, orders: Path, text: str) -> None:
    orders.write_text(text)
    answer = cli("convert", orders, "--write")
    assert (answer.code, orders.read_text()) == (1, text)
    assert "malformed YAML" in answer.err


@pytest.mark.parametrize(
    ("version", "more"),
    [
        (r'"argoproj.io\/v1alpha1"', ""),
        ("&v argoproj.io/v1alpha1", "metadata: {name: x, labels: {a: *v}}\n"),
    ],
)
def test_a_version_that_is_not_simply_written_is_left_to_the_user(
    cli: Command, orders: Path, version: str, more: str
) -> None:
    text = f"apiVersion: {version}\nkind: Sensor\n{more}"
    orders.write_text(text)
    answer = cli("convert", orders, "--write")
    assert (answer.code, orders.read_text()) == (1, text)
    assert (
        f"{orders}:1:1: `apiVersion` is not simply written here; write `apiVersion: eventbus.dev/v1alpha1`"
        in answer.err
    )


def test_a_file_that_cannot_be_written_is_named(cli: Command, orders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    orders.write_text(ARGO)

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "write_text", refuse)
    assert cli("convert", orders, "-w") == (2, "", f"error: {orders}: cannot be written: Permission denied\n")


def test_what_is_knatives_stays_and_is_told(cli: Command, orders: Path) -> None:
    knative = "apiVersion: eventing.knative.dev/v1\nkind: Trigger\nmetadata: {name: ship}\n"
    orders.write_text(knative)
    answer = cli("convert", orders)
    assert (answer.code, answer.out) == (0, knative)
    assert f"differs: {orders}:1:1: a `Trigger` of Knative stays as it is: write a Sensor" in answer.err
