"""Listeners that are no Kafka at all: what can be told of a broker before it has said a word."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from eventbus.errors import EventBusError, FatalError, RetriableError
from eventbus.kafka import KafkaCluster
from eventbus.kafka.connection import Connection
from tests.security.certificates import Authority

Greet = Callable[[socket.socket], object]


@contextmanager
def _listener(greet: Greet) -> Iterator[str]:
    """Accepts whoever comes, greets him, and hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def serve() -> None:
            with suppress(OSError):  # closed
                while True:
                    guest, _ = server.accept()
                    with guest, suppress(OSError):
                        greet(guest)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"localhost:{port}"
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


def _with_tls(certificate: Path) -> Greet:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)

    def greet(guest: socket.socket) -> None:
        with context.wrap_socket(guest, server_side=True) as secured:
            secured.recv(1024)

    return greet


def _complaint(address: str, **settings: str) -> EventBusError:
    connection = Connection(address, {name.replace("_", "."): value for name, value in settings.items()})
    cluster = KafkaCluster(connection)
    with pytest.raises(EventBusError) as caught:
        cluster.describe(["t"])
    cluster.close()
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "authority")


@pytest.mark.parametrize(
    ("host", "expired", "words"),
    [
        ("localhost", True, "has expired. Renew it on the broker."),
        ("elsewhere.example", False, "is for another host. Reach the broker by a name that is in its certificate"),
    ],
)
def test_a_certificate_that_is_not_good(authority: Authority, host: str, expired: bool, words: str) -> None:
    with _listener(_with_tls(authority.issue(host, expired=expired))) as address:
        error = _complaint(address, security_protocol="ssl", ssl_ca_location=str(authority.file))
    assert isinstance(error, FatalError)
    assert f"Kafka, describing topic t on {address}: the certificate of {address} {words}" in str(error)


def test_an_authority_that_is_not_trusted(authority: Authority, tmp_path: Path) -> None:
    stranger = Authority(tmp_path, "stranger")
    with _listener(_with_tls(authority.issue("localhost"))) as address:
        error = _complaint(address, security_protocol="ssl", ssl_ca_location=str(stranger.file))
    assert isinstance(error, FatalError)
    assert f"the certificate of {address} was issued by an authority that this client does not trust" in str(error)


def test_no_tls_where_the_broker_wants_it(authority: Authority) -> None:
    with _listener(_with_tls(authority.issue("localhost"))) as address:
        error = _complaint(address)
    assert isinstance(error, FatalError)
    assert f"{address} speaks TLS, and this client does not. Set `tls`" in str(error)


@pytest.mark.usefixtures("_hasty")
def test_tls_where_the_broker_has_none(authority: Authority) -> None:
    with _listener(lambda guest: guest.recv(1024)) as address:
        error = _complaint(address, security_protocol="ssl", ssl_ca_location=str(authority.file))
    assert isinstance(error, RetriableError)
    assert f"{address} does not answer as TLS does: is it a listener without TLS?" in str(error)


@pytest.mark.usefixtures("_hasty")
def test_a_name_that_is_not_known() -> None:
    error = _complaint("nowhere.invalid:9092")
    assert isinstance(error, RetriableError)
    assert str(error).endswith("no answer. The name `nowhere.invalid` is not known here.")


@pytest.fixture
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eventbus.kafka.admin.REQUEST_TIMEOUT", 0.5)
