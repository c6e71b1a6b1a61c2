"""Whom an `http` action may call: by the address that is connected to, in whatever form it was written."""

from __future__ import annotations

import socket
from typing import Any
from urllib.parse import urlsplit

import pytest
from pydantic import ValidationError

from eventbus.events import Event
from sensors.actions.addresses import AddressGuard
from sensors.actions.base import ActionError
from sensors.actions.http import HttpAction, HttpSpec
from tests.actions.conftest import CONTEXT, HttpServer, Reply, make_call

FROM_EVENT = [{"src": {"dependencyName": "paid", "dataKey": "url"}, "dest": "url"}]
METADATA_FORMS = [
    "169.254.169.254",
    "2852039166",
    "0xa9fea9fe",
    "0xa9.0xfe.0xa9.0xfe",
    "0251.0376.0251.0376",
    "169.254.43518",
    "[::ffff:169.254.169.254]",
    "[::ffff:a9fe:a9fe]",
    "[::169.254.169.254]",
    "[64:ff9b::a9fe:a9fe]",
    "[2002:a9fe:a9fe::1]",
    "[fe80::1]",
    "[fd00:ec2::254]",
    "[64:ff9b:1::a9fe:a9fe]",
    "[::ffff:0:a9fe:a9fe]",
    "168.63.129.16",
    "192.0.0.192",
    "metadata.test",
    "METADATA.test.",
]
PRIVATE_FORMS = [
    "127.0.0.1",
    "localhost",
    "LOCALHOST",
    "2130706433",
    "0x7f.1",
    "0177.0.0.1",
    "127.1",
    "0.0.0.0",
    "0",
    "[::1]",
    "[::]",
    "[::ffff:127.0.0.1]",
    "[::127.0.0.1]",
    "[64:ff9b::7f00:1]",
    "[2002:7f00:1::]",
    "10.0.0.7",
    "172.16.0.1",
    "192.168.1.1",
    "100.64.0.1",
    "[fc00::1]",
    "[fd12:3456::1]",
    "[fec0::1]",
    "192.0.0.8",
    "224.0.0.1",
    "db.test",
]
NAMES = {"metadata.test": "169.254.169.254", "db.test": "10.1.2.3", "here.test": "127.0.0.1"}
"""What a name server would say."""


@pytest.fixture(autouse=True)
def lookups(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names that exist only here; everything else is asked of the system, as always."""
    asked: list[str] = []
    system = socket.getaddrinfo

    def lookup(host: str, *args: Any, **kwargs: Any) -> Any:
        asked.append(host)
        return system(NAMES.get(host.lower().rstrip("."), host), *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    return asked


def invoke(url: str, event_url: str | None = None, **spec: Any) -> str:
    parameters = [] if event_url is None else FROM_EVENT
    action = HttpAction(HttpSpec.model_validate({"url": url, "parameters": parameters, "timeout": 1, **spec}), CONTEXT)
    try:
        return action.invoke(make_call(events={"paid": Event.new("shop", "paid", {"url": event_url})}))
    finally:
        action.close()


def refused(url: str, event_url: str | None = None, **spec: Any) -> str:
    with pytest.raises(ActionError) as caught:
        invoke(url, event_url, **spec)
    assert not caught.value.sent
    assert not caught.value.retriable
    return str(caught.value)


@pytest.mark.parametrize("host", METADATA_FORMS)
def test_metadata_addresses_are_refused_whoever_names_them(host: str) -> None:
    url = f"http://{host}/latest/meta-data"
    assert "link-local or metadata address" in refused(url)
    assert "link-local or metadata address" in refused("http://public.example/", url)
    bare = host.strip("[]")
    assert "link-local or metadata address" in refused("http://public.example/", url, allowHosts=[bare])


@pytest.mark.parametrize("host", PRIVATE_FORMS)
def test_an_event_cannot_lead_into_the_private_network(host: str) -> None:
    assert "is not on the public Internet" in refused("http://public.example/", f"http://{host}/")


@pytest.mark.parametrize("host", ["8.8.8.8", "2001:4860:4860::8888", "64:ff9b::808:808", "::ffff:8.8.8.8"])
def test_an_event_may_lead_to_the_public_internet(host: str) -> None:
    AddressGuard.of("http://public.example/", ()).check(host, 80, [host])


def test_a_manifest_may_name_a_private_server(http_server: HttpServer) -> None:
    assert invoke(http_server.url) == "200"
    assert invoke(http_server.url.replace("localhost", "here.test")) == "200"


def test_an_event_may_choose_the_path_on_the_server_of_the_manifest_but_not_another_port(
    http_server: HttpServer,
) -> None:
    assert invoke(http_server.url, http_server.url.replace("/hook", "/other")) == "200"
    assert http_server.requests[-1].path == "/other"
    assert "is not on the public Internet" in refused("http://localhost:1/", http_server.url)


@pytest.mark.parametrize("allowed", ["localhost", "LocalHost", "*.test"])
def test_a_host_that_the_manifest_lists_may_come_from_an_event(http_server: HttpServer, allowed: str) -> None:
    url = http_server.url.replace("localhost", "here.test") if allowed == "*.test" else http_server.url
    assert invoke("http://public.example/", url, allowHosts=[allowed]) == "200"


def test_a_wildcard_is_for_what_is_below_it_only() -> None:
    assert "is not on the public Internet" in refused("http://p.example/", "http://db.test/", allowHosts=["*.b.test"])


@pytest.mark.parametrize("entry", ["", "*", "*.", "h:80", "http://h", "a b", "*.*.x"])
def test_what_is_no_host_cannot_be_listed(entry: str) -> None:
    with pytest.raises(ValidationError, match="must be a host name or an address"):
        HttpSpec.model_validate({"url": "http://h", "allowHosts": [entry]})


def test_an_event_cannot_list_hosts() -> None:
    parameters = [{"src": {"dependencyName": "paid", "value": "localhost"}, "dest": "allowHosts.0"}]
    with pytest.raises(ValidationError, match=r"`dest` cannot be `allowHosts\.0`"):
        HttpSpec.model_validate({"url": "http://h", "parameters": parameters})


def test_the_address_that_was_checked_is_the_one_that_is_called(http_server: HttpServer, lookups: list[str]) -> None:
    """A name server that answers the first question harmlessly, and the second one otherwise, is asked once."""
    url = http_server.url.replace("localhost", "here.test")
    assert invoke(url) == "200"
    assert lookups == ["here.test", "127.0.0.1"]
    assert http_server.requests[-1].headers["Host"] == urlsplit(url).netloc


def test_one_bad_address_of_several_is_enough_to_refuse_a_name() -> None:
    guard = AddressGuard.of("http://mixed.test/", ())
    with pytest.raises(ActionError, match="link-local"):
        guard.check("mixed.test", 80, ["8.8.8.8", "169.254.169.254"])


def test_a_redirect_to_the_metadata_service_is_not_followed(http_server: HttpServer) -> None:
    http_server.reply = Reply(302, {"Location": "http://169.254.169.254/"})
    with pytest.raises(ActionError, match="302 Found; redirects are not followed"):
        invoke(http_server.url)
    assert len(http_server.requests) == 1


def test_of_several_addresses_the_first_that_answers_is_called(
    http_server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = socket.getaddrinfo

    def lookup(host: str, port: int, *args: Any, **kwargs: Any) -> Any:
        if host != "two.test":
            return system(host, port, *args, **kwargs)
        return [*system("127.0.0.9", port, *args, **kwargs), *system("127.0.0.1", port, *args, **kwargs)]

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    assert invoke(http_server.url.replace("localhost", "two.test")) == "200"
