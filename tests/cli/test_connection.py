"""How commands find Kafka: by a manifest, by the environment, by an option."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

import pytest

from eventbus.bus import Bus
from eventbus.cli.connection import connect
from eventbus.errors import ConfigError
from eventbus.kafka.connection import Connection, from_environment
from tests.cli.conftest import Command

BUS = """\
apiVersion: eventbus.dev/v1alpha1
kind: EventBus
metadata: {name: central, namespace: shop}
spec:
  kafka:
    url: "127.0.0.1:1"
    sasl:
      userSecret: {name: kafka, key: user}
      passwordSecret: {name: kafka, key: password}
"""


@pytest.fixture
def bus_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for key in ("USER", "PASSWORD"):
        monkeypatch.setenv(f"EVENTBUS_SECRET_KAFKA_{key}", f"top-secret-{key}")
    file = tmp_path / "bus.yaml"
    file.write_text(BUS)
    return file


@pytest.fixture(autouse=True)
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eventbus.kafka.admin.REQUEST_TIMEOUT", 0.3)


@pytest.mark.parametrize("by", ["option", "variable"])
def test_a_manifest_names_the_brokers_and_the_bus(
    cli: Command, bus_file: Path, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ["--bus-file", str(bus_file)] if by == "option" else []
    if by == "variable":
        monkeypatch.setenv("EVENTBUS_BUS_FILE", str(bus_file))
    answer = cli("send", "--source", "s", "--name", "n", *options)
    assert answer.code == 1
    assert "describing topic shop-central on 127.0.0.1:1: no answer" in answer.err
    assert "top-secret" not in answer.err


@pytest.mark.parametrize("field", ["caCertSecret", "clientCertSecret"])
def test_a_secret_that_is_no_certificate_is_in_no_traceback(bus_file: Path, field: str) -> None:
    bus_file.write_text(f"{BUS}    tls: {{{field}: {{name: kafka, key: password}}}}\n")
    with pytest.raises(ConfigError) as caught:
        connect(None, bus_file, "default", "default", verbose=False)
    shown = "".join(traceback.format_exception(caught.value))
    assert "ConfigError: Kafka settings: " in shown
    assert "top-secret" not in shown


def test_options_go_before_the_manifest(cli: Command, bus_file: Path) -> None:
    options = ["--bootstrap-servers", "127.0.0.1:2", "--namespace", "other"]
    answer = cli("send", "--source", "s", "--name", "n", "--bus-file", bus_file, *options)
    assert "describing topic other-central on 127.0.0.1:2: no answer" in answer.err


def test_a_mistake_in_the_manifest_has_its_place(cli: Command, bus_file: Path) -> None:
    bus_file.write_text(BUS.replace("sasl:", "salt:"))
    answer = cli("tail", "events", "--bus-file", bus_file)
    assert answer.code == 2
    assert f"error: {bus_file}:7:5: unknown field `salt`" in answer.err


def test_a_bus_file_that_is_not_there(cli: Command) -> None:
    answer = cli("tail", "events", "--bus-file", "nowhere.yaml")
    assert (answer.code, answer.err) == (2, "error: nowhere.yaml: cannot be read: No such file or directory\n")


def test_a_manifest_and_the_environment_exclude_each_other(bus_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVENTBUS_KAFKA_SASL_USERNAME", "me")
    with pytest.raises(ConfigError, match="EVENTBUS_KAFKA_SASL_USERNAME both say how to reach Kafka: drop one"):
        connect(None, bus_file, "default", "default", verbose=False)


def test_the_environment_sets_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    password = tmp_path / "password"
    password.write_text("one\n")
    monkeypatch.setenv("EVENTBUS_KAFKA_SECURITY_PROTOCOL", "sasl_plaintext")
    monkeypatch.setenv("EVENTBUS_KAFKA_SASL_PASSWORD_FILE", str(password))
    connection = from_environment("a:9092", {"sasl.username": "me"})
    assert connection.security() == {
        "security.protocol": "sasl_plaintext",
        "sasl.password": "one",
        "sasl.username": "me",
    }
    password.write_text("two")
    assert connection.security()["sasl.password"] == "two"
    assert "two" not in repr(connection)


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("EVENTBUS_KAFKA_GROUP_ID", "mine", "the Kafka setting `group.id` is chosen by the event bus"),
        ("EVENTBUS_KAFKA_SASL_PASSWORD_FILE", "/nowhere", "/nowhere, which EVENTBUS_KAFKA_SASL_PASSWORD_FILE names"),
        ("EVENTBUS_KAFKA_SASL_PASSWORT", "geheim", 'No such configuration property: "sasl.passwort"'),
    ],
)
def test_mistakes_in_the_environment(variable: str, value: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigError) as caught:
        Bus.connect("127.0.0.1:1")
    assert message in str(caught.value)
    assert "geheim" not in str(caught.value)


@pytest.mark.parametrize(
    "settings", [{"clients": {"acks": "1"}}, {"consumer": {"group.id": "g"}}, {"topics": {"cleanup.policy": "compact"}}]
)
def test_what_carries_the_guarantees_cannot_be_changed(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="is chosen by the event bus and cannot be changed"):
        Connection("a:9092", **settings)
