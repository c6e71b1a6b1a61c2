"""TLS: who the receiver is, and who may talk to it."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import urllib3

from eventbus import Bus
from eventbus.errors import ConfigError
from tests.eventsources.serving import Shop, shop
from tests.security.certificates import Authority


@pytest.fixture
def bus() -> Iterator[Bus]:
    with Bus.memory() as made:
        made.ensure(1)
        yield made


@pytest.fixture
def authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Authority:
    monkeypatch.setenv("EVENTBUS_SECRETS_DIR", str(tmp_path))
    return Authority(tmp_path, "authority")


@pytest.fixture
def certificates(tmp_path: Path, authority: Authority) -> dict[str, Any]:
    """The receiver's own, as its spec names them."""
    (tmp_path / "tls").mkdir()
    (tmp_path / "tls" / "server").write_bytes(authority.issue("localhost").read_bytes())
    (tmp_path / "tls" / "ca").write_bytes(authority.file.read_bytes())
    own = {"name": "tls", "key": "server"}
    return {"serverCertSecret": own, "serverKeySecret": own}


def _send(to: Shop, context: ssl.SSLContext) -> int:
    pool = urllib3.PoolManager(ssl_context=context, retries=False)
    url = f"https://localhost:{to.runner.ports[0]}/orders"
    try:
        return pool.request("POST", url, body=b"{}", timeout=10).status
    finally:
        pool.clear()


def test_the_port_speaks_tls(bus: Bus, authority: Authority, certificates: dict[str, Any]) -> None:
    with shop(bus, **certificates) as orders:
        assert _send(orders, ssl.create_default_context(cafile=str(authority.file))) == 202
        with pytest.raises(urllib3.exceptions.SSLError):
            _send(orders, ssl.create_default_context())
        with pytest.raises(urllib3.exceptions.ProtocolError):
            orders.send()
        assert len(orders.events()) == 1


def test_only_clients_with_a_certificate_are_let_in(
    bus: Bus, authority: Authority, certificates: dict[str, Any], tmp_path: Path
) -> None:
    stranger = Authority(tmp_path, "stranger")
    with shop(bus, **certificates, clientCaSecret={"name": "tls", "key": "ca"}) as orders:
        for issuer, status in ((authority, 202), (stranger, None), (None, None)):
            context = ssl.create_default_context(cafile=str(authority.file))
            if issuer is not None:
                context.load_cert_chain(issuer.issue("client"))
            if status is None:
                with pytest.raises((urllib3.exceptions.SSLError, urllib3.exceptions.ProtocolError)):
                    _send(orders, context)
            else:
                assert _send(orders, context) == status
        assert len(orders.events()) == 1


def test_a_certificate_that_cannot_be_used_is_one_clear_line(
    bus: Bus, certificates: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "tls" / "server").write_text("nonsense")
    message = "the TLS secret `tls` cannot be used: it is not a usable PEM file"
    with pytest.raises(ConfigError, match=message), shop(bus, **certificates):
        pass
    assert not [thread for thread in threading.enumerate() if thread.name == "eventbus-sink"]
