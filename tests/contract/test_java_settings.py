"""The same connection in the words of Java's clients."""

from __future__ import annotations

from pathlib import Path

import pytest

from eventbus import Bus
from eventbus.errors import ConfigError
from eventbus.kafka.connection import Connection
from eventbus.kafka.java import java_settings


def test_without_security() -> None:
    with Bus.connect("127.0.0.1:1") as bus:
        assert bus.java_settings() == {"bootstrap.servers": "127.0.0.1:1", "security.protocol": "PLAINTEXT"}


def test_tls_and_a_password(tmp_path: Path) -> None:
    authority = tmp_path / "ca.pem"
    authority.write_text("CA")
    settings = {
        "security.protocol": "sasl_ssl",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "me",
        "sasl.password": 'quo"te\\',
        "ssl.ca.location": str(authority),
        "ssl.certificate.pem": "CERT",
        "ssl.key.pem": "KEY",
    }
    assert java_settings(Connection("a:1", settings)) == {
        "bootstrap.servers": "a:1",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required "
            r'username="me" password="quo\"te\\";'
        ),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": "CA",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": "CERT",
        "ssl.keystore.key": "KEY",
    }


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"security.protocol": "sasl_ssl", "sasl.mechanism": "OAUTHBEARER"}, "cannot log in by OAUTHBEARER"),
        ({"security.protocol": "ssl", "enable.ssl.certificate.verification": "false"}, "check the brokers'"),
        ({"security.protocol": "ssl", "ssl.ca.location": "/nowhere"}, "the TLS file `/nowhere` cannot be used"),
    ],
)
def test_what_cannot_be_said_in_java(settings: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        java_settings(Connection("a:1", settings))
