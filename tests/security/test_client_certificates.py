"""A listener that wants a certificate of its clients."""

from __future__ import annotations

from pathlib import Path

import pytest

from eventbus.errors import FatalError
from eventbus.kafka import KafkaCluster
from eventbus.kafka.connection import Connection
from tests.security.broker import MUTUAL, SecureBroker
from tests.security.certificates import Authority
from tests.security.conftest import NewSettings, complaint, is_let_in
from tests.security.manifests import Settings

pytestmark = pytest.mark.kafka


@pytest.fixture
def settings(new_settings: NewSettings) -> Settings:
    return new_settings(MUTUAL)


def _with(settings: Settings, certificate: Path) -> Connection:
    """Key and certificate are in one file, and so they may be in one secret."""
    return settings.connection(clientCertSecret=settings.write("client.pem", certificate.read_text()))


def test_a_good_one(secure_broker: SecureBroker, settings: Settings) -> None:
    error = complaint(_with(settings, secure_broker.issuer.issue("ann")))
    assert "Topic authorization failed" in str(error)


def test_a_good_one_in_files(secure_broker: SecureBroker, settings: Settings) -> None:
    file = str(secure_broker.issuer.issue("ann"))
    error = complaint(settings.connection(clientCertFile=file, clientKeyFile=file))
    assert "Topic authorization failed" in str(error)


def test_none(secure_broker: SecureBroker, settings: Settings) -> None:
    error = complaint(settings.connection())
    address = secure_broker.address(MUTUAL)
    assert isinstance(error, FatalError)
    assert str(error) == (
        f"Kafka, describing topic shop-default on {address}: {address} wants a certificate of this client, and there "
        "is none. Set `tls.clientCertSecret` and `tls.clientKeySecret` (docs/connection.md)."
    )


def test_one_that_has_expired(secure_broker: SecureBroker, settings: Settings) -> None:
    error = complaint(_with(settings, secure_broker.issuer.issue("ann", expired=True)))
    assert isinstance(error, FatalError)
    assert f"{secure_broker.address(MUTUAL)} refuses this client's certificate: it has expired on 20" in str(error)
    assert str(error).endswith(". Renew it.")


def test_one_of_an_authority_that_the_broker_does_not_know(
    secure_broker: SecureBroker, settings: Settings, tmp_path: Path
) -> None:
    error = complaint(_with(settings, Authority(tmp_path, "stranger").issue("ann")))
    assert isinstance(error, FatalError)
    assert "refuses this client's certificate: it must be issued for clients, by an authority that" in str(error)


def test_one_that_is_no_certificate(settings: Settings) -> None:
    secret = settings.write("client.pem", "my-very-private-key")
    error = complaint(settings.connection(clientCertSecret=secret))
    assert str(error).startswith("Kafka settings: ")
    assert "private" not in str(error)


def test_a_new_one_is_taken_by_the_next_client(secure_broker: SecureBroker, settings: Settings) -> None:
    """One that runs keeps what it has read."""
    connection = _with(settings, secure_broker.issuer.issue("ann"))
    running = KafkaCluster(connection)
    assert is_let_in(running)
    settings.write("client.pem", secure_broker.issuer.issue("ann", expired=True).read_text())
    assert "has expired" in str(complaint(connection))
    assert is_let_in(running)
    running.close()
