"""The settings of a connection as Java clients know them: Spark reads Kafka with one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from eventbus.errors import ConfigError
from eventbus.kafka.connection import Connection

_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_PEM = {
    "ssl.ca": ("ssl.truststore", "ssl.truststore.certificates"),
    "ssl.certificate": ("ssl.keystore", "ssl.keystore.certificate.chain"),
    "ssl.key": ("ssl.keystore", "ssl.keystore.key"),
}
"""What librdkafka calls `….pem` or `….location`, and Java's names of the store and of what is in it."""


def java_settings(connection: Connection) -> dict[str, str]:
    """Raises `ConfigError` where Java would have to be told in another way."""
    security = connection.security()
    protocol = str(security.get("security.protocol", "plaintext")).upper()
    settings = {"bootstrap.servers": connection.bootstrap_servers, "security.protocol": protocol}
    if "SASL" in protocol:
        settings |= _login(security)
    if "SSL" in protocol:
        settings |= _certificates(security)
    return settings


def _login(security: dict[str, Any]) -> dict[str, str]:
    mechanism = str(security.get("sasl.mechanism", security.get("sasl.mechanisms", "GSSAPI")))
    if mechanism not in _LOGIN_MODULES:
        known = ", ".join(_LOGIN_MODULES)
        raise ConfigError(f"commands that use Spark cannot log in by {mechanism}, only by {known}")
    user, password = (_quoted(security.get(f"sasl.{name}", "")) for name in ("username", "password"))
    login = f"{_LOGIN_MODULES[mechanism]} required username={user} password={password};"
    return {"sasl.mechanism": mechanism, "sasl.jaas.config": login}


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _certificates(security: dict[str, Any]) -> dict[str, str]:
    if str(security.get("enable.ssl.certificate.verification", True)).lower() == "false":
        raise ConfigError(
            "commands that use Spark check the brokers' certificates: `insecureSkipVerify` is not possible"
        )
    settings: dict[str, str] = {}
    for name, (store, content) in _PEM.items():
        pem = security.get(f"{name}.pem") or _read(security.get(f"{name}.location"))
        if pem:
            settings |= {f"{store}.type": "PEM", content: pem}
    return settings


def _read(file: str | None) -> str | None:
    try:
        return None if file is None else Path(file).read_text()
    except OSError as error:
        raise ConfigError(f"the TLS file `{file}` cannot be used: {error.strerror}") from None
