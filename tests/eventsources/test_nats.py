"""Messages of NATS become events while somebody listens."""

from __future__ import annotations

import asyncio
import json
import ssl
from base64 import b64decode
from collections.abc import Callable, Sequence
from threading import Event as Flag
from typing import Any

import nats
import pytest

from eventbus import Bus, Event
from eventsources.base import Identity, SourceError
from eventsources.sources import nats_listener
from eventsources.sources.nats import NatsSource, NatsSourceSpec
from sensors import extras
from sensors.spec.problems import ManifestError
from tests.actions.conftest import Certificate, NatsServer, StartNats
from tests.eventsources.fetching import PATIENCE, Fetcher, fetching, running, until
from tests.eventsources.serving import events_on, letters_on, manifest

IDENTITY = Identity("news", "item", "nats")
READY = "are-you-there"


@pytest.fixture(scope="module")
def server(start_nats: StartNats) -> NatsServer:
    return start_nats()


def source(server: NatsServer, **spec: Any) -> NatsSource:
    return NatsSource(NatsSourceSpec.model_validate({"url": server.url, "subject": "news.>", **spec}))


def publish(server: NatsServer, *messages: tuple[str, bytes, dict[str, str] | None], **options: Any) -> None:
    async def send() -> None:
        client = await nats.connect(server.url, **options)
        for subject, payload, headers in messages:
            await client.publish(subject, payload, headers=headers)
        await client.flush()
        await client.close()

    asyncio.run(send())


def listens(server: NatsServer, events: Callable[[], Sequence[Event]], **options: Any) -> None:
    """Returns when the source hears what is published."""

    def heard() -> bool:
        publish(server, (f"news.{READY}", b"{}", None), **options)
        return any(event.json()["subject"] == f"news.{READY}" for event in events())

    until(heard)


def told(fetcher: Fetcher, count: int) -> list[Event]:
    """The events but for those that were asked for with `listens`."""

    def others() -> list[Event]:
        return [event for event in list(fetcher.events) if event.json()["subject"] != f"news.{READY}"]

    until(lambda: len(others()) >= count)
    return others()


def test_what_an_event_looks_like(server: NatsServer, bus: Bus) -> None:
    with fetching(source(server, metadata={"shop": "eu"}), bus, IDENTITY) as fetcher:
        listens(server, lambda: fetcher.events)
        publish(server, ("news.eu", b"\xff{}", {"Nats-Msg-Id": "17", "trace": "x"}), ("news.us", b"", None))
        first, second = told(fetcher, 2)
    assert first.id == "news.eu 17"
    data = first.json()
    assert b64decode(data.pop("body")) == b"\xff{}"
    assert data == {
        "subject": "news.eu",
        "headers": {"Nats-Msg-Id": ["17"], "trace": ["x"]},
        "metadata": {"shop": "eu"},
    }
    assert second.json() == {"subject": "news.us", "headers": {}, "body": "", "metadata": {"shop": "eu"}}


def test_a_json_body_and_what_is_none(server: NatsServer, bus: Bus) -> None:
    with fetching(source(server, jsonBody=True), bus, IDENTITY) as fetcher:
        listens(server, lambda: fetcher.events)
        publish(server, ("news.eu", b"{", None), ("news.eu", b"\xff", None), ("news.eu", b'{"n": 1.10}', None))
        [event] = told(fetcher, 1)
    assert b'"body":{"n": 1.10}' in (event.data or b"")
    assert [(letter.reason, value) for letter, value in letters_on(bus)] == [("no-event", b"{"), ("no-event", b"\xff")]


def test_who_listens_with_the_same_queue_shares_the_messages(server: NatsServer, bus: Bus) -> None:
    with (
        fetching(source(server, queue="q"), bus, IDENTITY) as one,
        fetching(source(server, queue="q"), bus, Identity("news", "other", "nats")) as other,
    ):
        listens(server, lambda: one.events)
        listens(server, lambda: other.events)
        publish(server, *((f"news.{number}", b"", None) for number in range(50)))
        until(lambda: len([each for each in one.events + other.events if READY not in each.json()["subject"]]) == 50)


def test_more_than_can_be_taken_is_lost_and_told(
    server: NatsServer, bus: Bus, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nats_listener, "MOST_WAITING", 10)
    sizes: list[int] = []
    go_on = Flag()
    on_error = nats_listener.NatsListener._on_error

    def lost(listener: nats_listener.NatsListener, error: Exception) -> None:
        on_error(listener, error)
        go_on.set()

    monkeypatch.setattr(nats_listener.NatsListener, "_on_error", lost)

    def slow(events: Sequence[Event]) -> None:
        sizes.append(len(events))
        if any(event.json()["subject"] == "news.slow" for event in events):
            assert go_on.wait(PATIENCE)

    with fetching(source(server), bus, IDENTITY, before=slow) as fetcher:
        listens(server, lambda: fetcher.events)
        publish(server, ("news.slow", b"", None))
        publish(server, *((f"news.{number}", b"", None) for number in range(100)))
        until(lambda: "messages of `news.>` came faster than they could be taken" in caplog.text)
    assert max(sizes) <= 11


def test_it_goes_on_when_the_server_has_been_away(start_nats: StartNats, bus: Bus) -> None:
    server = start_nats()
    spec = {"url": server.url, "subject": "news.>", "connectionBackoff": {"duration": "1s", "steps": 5}}
    with running(manifest("nats", "news", item=spec), bus):
        listens(server, lambda: events_on(bus))
        server.stop()
        server.start()
        before = len(events_on(bus))
        listens(server, lambda: events_on(bus)[before:])


def test_a_wrong_password_is_told_in_one_line_without_it(start_nats: StartNats, bus: Bus, secret: Any) -> None:
    server = start_nats("authorization: {user: jane, password: right-5b1c}")
    basic = {"username": secret("jane", "user"), "password": secret("wrong-7c2e", "password")}
    with fetching(source(server, auth={"basic": basic}), bus, IDENTITY) as fetcher:
        error = fetcher.failure()
    assert isinstance(error, SourceError)
    assert str(error).lower() == "nats: no connection: authorization violation"
    secret("right-5b1c", "password")
    with fetching(source(server, auth={"basic": basic}), bus, IDENTITY) as fetcher:
        listens(server, lambda: fetcher.events, user="jane", password="right-5b1c")


def test_a_token(start_nats: StartNats, bus: Bus, secret: Any) -> None:
    server = start_nats("authorization: {token: t-1}")
    with fetching(source(server, auth={"token": secret("t-1")}), bus, IDENTITY) as fetcher:
        listens(server, lambda: fetcher.events, token="t-1")


def test_a_subject_that_we_may_not_listen_to(start_nats: StartNats, bus: Bus, secret: Any) -> None:
    users = '{user: jane, password: right-5b1c, permissions: {subscribe: {deny: ["news.>"]}}}'
    server = start_nats(f"authorization: {{users: [{users}]}}")
    basic = {"username": secret("jane", "user"), "password": secret("right-5b1c", "password")}
    with fetching(source(server, auth={"basic": basic}), bus, IDENTITY) as fetcher:
        error = fetcher.failure()
    assert isinstance(error, SourceError)
    assert "permissions violation" in str(error)


def test_tls(start_nats: StartNats, bus: Bus, certificate: Certificate) -> None:
    files = json.dumps({"cert_file": str(certificate.cert), "key_file": str(certificate.key)})
    server = start_nats(f"tls: {files}")
    with fetching(source(server, tls={}), bus, IDENTITY) as fetcher:
        assert "TLS" in str(fetcher.failure())
    trusted = ssl.create_default_context(cafile=str(certificate.cert))
    with fetching(source(server, tls={"caCertFile": str(certificate.cert)}), bus, IDENTITY) as fetcher:
        listens(server, lambda: fetcher.events, tls=trusted)


def test_a_server_that_is_not_there(start_nats: StartNats, bus: Bus) -> None:
    server = start_nats()
    server.stop()
    with fetching(source(server), bus, IDENTITY) as fetcher:
        error = fetcher.failure()
    assert isinstance(error, SourceError)
    assert str(error).startswith("NATS: no connection: ")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"url": "nats://u:p@h:1", "subject": "s"}, "must not contain a user name, password or token"),
        ({"url": "nats://h:1", "subject": "a b"}, "must be words or `*`"),
        ({"url": "nats://h:1", "subject": "a.>.b"}, "must be words or `*`"),
        ({"url": "nats://h:1", "subject": "s", "queue": "a b"}, "must not contain white space"),
        ({"url": "nats://h:1", "subject": "s", "auth": {}}, "must have exactly one of `basic`"),
        ({"url": "nats://h:1", "subject": "s", "jsonbody": True}, "jsonBody"),
    ],
)
def test_what_is_wrong_is_told(spec: dict[str, Any], message: str) -> None:
    with pytest.raises(ManifestError) as error:
        manifest("nats", item=spec)
    assert message in str(error.value)


def test_a_client_that_is_not_installed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda _: None)
    with pytest.raises(ManifestError) as error:
        manifest("nats", item={"url": "h:1", "subject": "s"})
    assert "this needs packages that are not installed: install `kafka-eventbus[nats]`" in str(error.value)
