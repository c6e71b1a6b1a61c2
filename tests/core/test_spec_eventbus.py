"""EventBus manifests: what they say about the connection, and what is wrong with them."""

from __future__ import annotations

import base64
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from eventbus.clock import SystemClock
from eventbus.errors import ConfigError
from eventbus.kafka import KafkaCluster
from eventbus.kafka.config import Settings
from eventbus.kafka.tokens import NoToken, Tokens
from eventbus.names import BusName
from sensors.spec.busloader import load_event_bus
from sensors.spec.problems import ManifestError
from tests.docs.pages import ROOT, blocks

HEAD = """\
apiVersion: argoproj.io/v1alpha1
kind: EventBus
metadata: {name: central, namespace: shop}
spec:
  kafka:
    url: a:9093,b:9093
"""
SCRAM = """\
    tls: {caCertFile: /ca.pem}
    sasl:
      mechanism: SCRAM-SHA-256
      userSecret: {name: kafka, key: user}
      passwordSecret: {name: kafka, key: password}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "bus.yaml"


@pytest.fixture
def secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EVENTBUS_SECRETS_DIR", str(tmp_path))
    (tmp_path / "kafka").mkdir()
    for key in ("user", "password", "id", "secret"):
        (tmp_path / "kafka" / key).write_text(f"the-{key}\n")
    return tmp_path / "kafka"


def _security(file: Path, text: str) -> dict[str, Any]:
    file.write_text(HEAD + text)
    return load_event_bus(file).connection().security()


def test_the_least_manifest(file: Path) -> None:
    file.write_text(HEAD)
    bus = load_event_bus(file)
    assert bus.bus_name == BusName("shop", "central")
    assert bus.connection().bootstrap_servers == "a:9093,b:9093"
    assert bus.connection().security() == {"security.protocol": "plaintext"}


PAGE = [block.text for block in blocks(ROOT / "docs/connection.md") if block.info == "yaml"]


@pytest.mark.parametrize("example", PAGE)
def test_the_manifests_of_the_documentation(file: Path, example: str) -> None:
    file.write_text(example)
    assert load_event_bus(file).bus_name == BusName("shop", "default")


def test_scram_over_tls(file: Path, secrets: Path) -> None:
    assert _security(file, SCRAM) == {
        "security.protocol": "sasl_ssl",
        "ssl.ca.location": "/ca.pem",
        "enable.ssl.certificate.verification": True,
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "the-user",
        "sasl.password": "the-password",
    }


def test_a_secret_is_read_anew_and_does_not_show(file: Path, secrets: Path) -> None:
    file.write_text(HEAD + SCRAM)
    connection = load_event_bus(file).connection()
    (secrets / "password").write_text("another-one")
    assert connection.security()["sasl.password"] == "another-one"
    assert "the-password" not in repr(connection)
    assert "another-one" not in repr(connection)


def test_certificates_from_secrets(file: Path, secrets: Path) -> None:
    found = _security(
        file, "    tls: {clientCertSecret: {name: kafka, key: id}, clientKeySecret: {name: kafka, key: secret}}\n"
    )
    assert found["security.protocol"] == "ssl"
    assert (found["ssl.certificate.pem"], found["ssl.key.pem"]) == ("the-id", "the-secret")


def test_tls_that_is_switched_off_as_in_argo_events(file: Path) -> None:
    assert _security(file, "    tls: {enabled: false}\n") == {"security.protocol": "plaintext"}


def test_client_credentials(file: Path, secrets: Path) -> None:
    found = _security(
        file,
        """\
    tls: {}
    sasl:
      mechanism: OAUTHBEARER
      oauth:
        tokenEndpoint: https://id.example/token
        clientIdSecret: {name: kafka, key: id}
        clientSecretSecret: {name: kafka, key: secret}
        scope: kafka
""",
    )
    assert (found["security.protocol"], found["sasl.mechanism"]) == ("sasl_ssl", "OAUTHBEARER")
    assert "the-secret" not in str(found)


MSK = "    tls: {}\n    sasl: {mechanism: AWS_MSK_IAM, awsMskIam: {region: eu-west-1}}\n"


def _msk_tokens(file: Path) -> Tokens:
    file.write_text(HEAD + MSK)
    connection = load_event_bus(file).connection()
    assert connection.security()["sasl.mechanism"] == "OAUTHBEARER"
    assert connection.tokens is not None
    return connection.tokens


def test_amazon_msk(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def token(region: str) -> tuple[str, int]:
        return f"signed for {region}", 5000

    provider = SimpleNamespace(generate_auth_token=token)
    signer = SimpleNamespace(MSKAuthTokenProvider=provider, __spec__=object())
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", signer)
    assert _msk_tokens(file)("") == ("signed for eu-west-1", 5.0, "", {})


@pytest.fixture
def _signer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Amazon's own, which asks nobody."""
    pytest.importorskip("aws_msk_iam_sasl_signer", reason="kafka-eventbus[msk] is not installed")
    for variable in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.mark.usefixtures("_signer")
def test_amazons_own_signer(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-a-real-one")
    token = _msk_tokens(file).get()
    url = base64.urlsafe_b64decode(token.text + "==").decode()
    assert url.startswith("https://kafka.eu-west-1.amazonaws.com/?Action=kafka-cluster%3AConnect&")
    assert 600_000 < token.expires_ms - SystemClock().now_ms() <= 900_000


@pytest.mark.usefixtures("_signer")
def test_no_credentials_for_amazons_own_signer(file: Path) -> None:
    with pytest.raises(NoToken, match="there are no AWS credentials to sign a token with") as caught:
        _msk_tokens(file).get()
    assert not caught.value.passing


def test_kerberos_is_passed_through(file: Path) -> None:
    file.write_text(HEAD + "    sasl: {mechanism: GSSAPI}\n    config: {sasl.kerberos.service.name: kafka}\n")
    connection = load_event_bus(file).connection()
    assert connection.security() == {
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
    }
    for config in (Settings(connection, "me").admin(), Settings(connection, "me").member("group")):
        assert (config["sasl.mechanism"], config["sasl.kerberos.service.name"]) == ("GSSAPI", "kafka")


def test_the_librdkafka_of_the_package_has_no_kerberos_and_says_so(file: Path) -> None:
    file.write_text(HEAD + "    sasl: {mechanism: GSSAPI}\n    config: {sasl.kerberos.service.name: kafka}\n")
    with pytest.raises(ConfigError, match="No provider for SASL mechanism GSSAPI") as caught:
        KafkaCluster(load_event_bus(file).connection())
    assert "\n" not in str(caught.value)


def test_settings_of_clients_and_topics(file: Path) -> None:
    file.write_text(
        HEAD
        + "    producer: {linger.ms: '20'}\n    consumer: {fetch.min.bytes: '2'}\n    topics: {retention.ms: '1'}\n"
    )
    connection = load_event_bus(file).connection()
    assert (connection.producer, connection.consumer) == ({"linger.ms": "20"}, {"fetch.min.bytes": "2"})
    assert connection.topics == {"retention.ms": "1"}


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("    tsl: {}\n", "7:5", "unknown field `tsl`; did you mean `tls`?"),
        ("    topic: events\n", "7:12", "events are in the topic `shop-central`; leave it out"),
        ("    producer: {acks: '1'}\n", "7:16", "`acks` is chosen by the event bus"),
        ("    producer: {linger.mss: '1'}\n", "7:28", 'No such configuration property: "linger.mss"'),
        ("    consumer: {fetch.min.bytes: many}\n", "7:33", "Invalid value for configuration property"),
        ("    producer: {linger.ms: 5}\n", "7:27", "YAML reads `5` as a number; put it in quotes"),
        ("    topics: {cleanup.policy: compact}\n", "7:14", "`cleanup.policy` is chosen by the event bus"),
        ("    config: {sasl.password: geheim}\n", "7:14", "name a secret in `sasl.passwordSecret`"),
        ("    sasl: {mechanism: SCRAM-SHA-256}\n", "7:5", "the mechanism `SCRAM-SHA-256` needs `userSecret`"),
        ("    sasl: {mechanism: MD5}\n", "7:23", "`mechanism` must be"),
        ("    sasl: {mechanism: GSSAPI, oauth: {}}\n", "7:31", "the mechanism `GSSAPI` has no `oauth`"),
        ("  jetstream: {}\n", "7:3", "this bus is on Kafka"),
    ],
)
def test_every_mistake_has_its_place(file: Path, text: str, place: str, message: str) -> None:
    file.write_text(HEAD + text)
    with pytest.raises(ManifestError) as caught:
        load_event_bus(file)
    assert f"{file}:{place}: " in str(caught.value)
    assert message in str(caught.value)


def test_what_argo_events_has_and_nobody_needs_here_is_told(file: Path) -> None:
    fields = "    version: 2.5.0\n    consumerGroup: {groupName: g, oldest: true}\n    partitioner: hash\n"
    file.write_text(HEAD + "    topic: shop-central\n" + fields + "    consumerBatchMaxWait: '0'\n")
    warnings = [str(each) for each in load_event_bus(file).warnings]
    assert len(warnings) == 4
    assert warnings[0].startswith(f"{file}:8:5: `version` does nothing here: the client asks the brokers")


def test_what_amazon_needs_and_is_not_installed(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sensors.spec.eventbus.find_spec", lambda _: None)
    file.write_text(HEAD + MSK)
    with pytest.raises(ManifestError, match=r":8:23: .*install `kafka-eventbus\[msk\]`"):
        load_event_bus(file)


def test_a_secret_that_is_not_there_is_told_at_once(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVENTBUS_SECRETS_DIR", str(tmp_path))
    file.write_text(HEAD + SCRAM)
    with pytest.raises(ConfigError, match="the key `user` of the secret `kafka` is not there: mount it as"):
        load_event_bus(file).connection()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kind: Sensor\n", "`kind` cannot be `Sensor`; write `EventBus`"),
        (f"{HEAD}---\n{HEAD}", "two buses of this file are named `central`"),
        (f"{HEAD}---\n{HEAD.replace('central', 'other')}", "this file has 2 EventBuses, and one is expected"),
        ("a: 1\n---\nb: 2\n", "`kind` is missing; write `EventBus`"),
        ("kind: ConfigMap\napiVersion: v1\n---\nkind: Pod\napiVersion: v1\n", "this file has no EventBus"),
        ("a: [\n", "bus.yaml:"),
    ],
)
def test_one_bus_is_expected(file: Path, text: str, message: str) -> None:
    file.write_text(text)
    with pytest.raises(ManifestError) as caught:
        load_event_bus(file)
    assert message in str(caught.value)


def test_documents_of_other_kinds_may_stand_beside_it(file: Path) -> None:
    file.write_text(f"{HEAD}---\nkind: ConfigMap\napiVersion: v1\n")
    assert load_event_bus(file).bus_name.bus == "central"
