"""Logging in by a token that a provider issues for client credentials."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from eventbus.errors import EventBusError, FatalError, RetriableError
from eventbus.kafka import KafkaCluster
from eventbus.kafka.connection import Connection
from tests.security.broker import SecureBroker, wait_until
from tests.security.conftest import NewSettings, complaint, is_let_in
from tests.security.manifests import Settings
from tests.security.provider import Provider

pytestmark = pytest.mark.kafka
CLIENT = "orders-service"

Connect = Callable[..., Connection]


@pytest.fixture
def provider(secure_broker: SecureBroker) -> Iterator[Provider]:
    made = Provider(secure_broker.signer, CLIENT)
    with made.serving(secure_broker.issuer.issue("localhost")):
        yield made


@pytest.fixture
def settings(new_settings: NewSettings) -> Settings:
    return new_settings()


@pytest.fixture
def connect(secure_broker: SecureBroker, provider: Provider, settings: Settings) -> Connect:
    def make(secret: str = provider.secret, **fields: Any) -> Connection:
        oauth = {
            "tokenEndpoint": provider.url,
            "clientIdSecret": settings.write("client", CLIENT),
            "clientSecretSecret": settings.write("secret", secret),
            "tls": {"caCertFile": str(secure_broker.authority)},
            **fields,
        }
        return settings.connection({"mechanism": "OAUTHBEARER", "oauth": oauth})

    return make


def test_a_token_lets_in(connect: Connect, provider: Provider) -> None:
    assert "Topic authorization failed" in str(complaint(connect(scope="kafka")))
    assert provider.scopes == ["kafka"], "one token is enough for all clients"


def test_a_wrong_secret(connect: Connect, provider: Provider) -> None:
    error = complaint(connect("a-wrong-guess"))
    assert isinstance(error, FatalError)
    assert f"{provider.url} issues no token: it answers `invalid_client` (status 401). Check the cl" in str(error)


def test_a_provider_that_is_away(connect: Connect) -> None:
    error = complaint(connect(tokenEndpoint="https://localhost:1/token"))
    assert isinstance(error, RetriableError)
    assert "https://localhost:1/token issues no token: no connection: " in str(error)


def test_a_provider_that_is_not_trusted(connect: Connect, secure_broker: SecureBroker) -> None:
    error = complaint(connect(tls={"caCertFile": str(secure_broker.stranger)}))
    assert isinstance(error, FatalError)
    assert str(error).endswith(". Name its authority in `oauth.tls` (docs/connection.md).")


def test_a_url_that_is_no_token_endpoint(connect: Connect, provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider, "answer", lambda *_: (200, {"hello": "world"}))
    error = complaint(connect())
    assert isinstance(error, FatalError)
    assert str(error).endswith("answers without `access_token` and `expires_in`: is this the right URL?")


def test_a_token_that_the_broker_does_not_accept(
    connect: Connect, provider: Provider, secure_broker: SecureBroker
) -> None:
    provider.audience = "another-cluster"
    error = complaint(connect())
    assert isinstance(error, FatalError)
    assert f"{secure_broker.address()} does not let this client in: " in str(error)
    assert str(error).endswith("Check what the broker asks of a token: its issuer, audience and scope.")


def test_no_secret_in_the_log(
    connect: Connect, provider: Provider, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    complaint(connect())
    complaint(connect("a-wrong-guess"))
    out, err = capfd.readouterr()
    for text in (caplog.text, out, err):
        assert provider.secret not in text
        assert "a-wrong-guess" not in text


def test_a_client_gets_new_tokens_and_a_new_secret_in_time(
    connect: Connect, provider: Provider, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    provider.seconds = 4
    cluster = KafkaCluster(connect())
    assert is_let_in(cluster)
    provider.secret = "abracadabra"
    settings.write("secret", provider.secret)
    wait_until(lambda: is_let_in(cluster) and len(provider.scopes) >= 3)
    cluster.close()
    assert "no new token" not in caplog.text


def test_a_client_waits_for_a_provider_that_is_away_for_longer_than_its_token_is_good(
    connect: Connect, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eventbus.kafka.admin.REQUEST_TIMEOUT", 0.5)
    provider.seconds = 3
    cluster = KafkaCluster(connect())
    assert is_let_in(cluster)
    with monkeypatch.context() as patch:
        patch.setattr(provider, "answer", lambda *_: (503, {}))
        wait_until(lambda: "it answers with status 503" in _reason(cluster))
    provider.seconds = 3600
    wait_until(lambda: "authorization failed" in _reason(cluster))
    cluster.close()


def _reason(cluster: KafkaCluster) -> str:
    """Why the client may not do what it wants: nothing that would end a process."""
    with pytest.raises(EventBusError) as caught:
        cluster.describe(["shop-default"])
    assert isinstance(caught.value, RetriableError) or "authorization failed" in str(caught.value)
    return str(caught.value)
