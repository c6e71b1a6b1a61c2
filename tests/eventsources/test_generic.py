"""What a gRPC server of argo-events' protocol sends becomes events while somebody listens."""

from __future__ import annotations

import tracemalloc
from base64 import b64decode
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from threading import Event as Flag
from typing import Any

import grpc
import pytest

from eventbus import Bus, Event
from eventbus.errors import ConfigError
from eventsources.base import Identity, SourceError
from eventsources.sources import grpc_stream
from eventsources.sources.generic import GenericSource, GenericSpec
from eventsources.spec import EVENT_SOURCES
from sensors import extras
from sensors.actions.grpc_channel import open_channel
from sensors.spec.problems import ManifestError
from tests.actions.conftest import Certificate, unused_port
from tests.eventsources.fetching import PATIENCE, fetching, running, until
from tests.eventsources.grpc_server import EventingServer
from tests.eventsources.relay import Relay
from tests.eventsources.serving import events_on, letters_on, manifest, metric

IDENTITY = Identity("own", "item", "generic")
CANARY = "canary-6f1d"
CORPUS = Path(__file__).parents[2].parent / "shared" / "corpus" / "argo-examples"
Serve = Callable[..., EventingServer]


@pytest.fixture
def serve() -> Iterator[Serve]:
    servers: list[EventingServer] = []

    def start(credentials: grpc.ServerCredentials | None = None) -> EventingServer:
        servers.append(EventingServer(credentials))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


@pytest.fixture
def server(serve: Serve) -> EventingServer:
    return serve()


def spec(address: str, **changes: Any) -> dict[str, Any]:
    return {"url": address, "config": "key: ü", "insecure": True, **changes}


def source(address: str, **changes: Any) -> GenericSource:
    return GenericSource(GenericSpec.model_validate(spec(address, **changes)))


def bodies(events: Sequence[Event]) -> list[Any]:
    return [event.json()["body"] for event in events]


# --- what becomes an event --------------------------------------------------------------------------------------------


def test_the_messages_have_argo_events_field_numbers() -> None:
    messages: dict[str, Any] = grpc_stream.MESSAGES
    assert messages["EventSource"](name="a", config=b"b").SerializeToString() == b"\x0a\x01a\x12\x01b"
    assert messages["Event"](name="a", payload=b"b").SerializeToString() == b"\x0a\x01a\x12\x01b"


def test_what_an_event_looks_like(server: EventingServer, bus: Bus) -> None:
    server.send(b"\xff{}", b"")
    with fetching(source(server.address, metadata={"shop": "eu"}), bus, IDENTITY) as fetcher:
        first, second = fetcher.wait_for(2)
    data = first.json()
    assert b64decode(data.pop("body")) == b"\xff{}"
    assert data == {"metadata": {"shop": "eu"}}
    assert second.json() == {"body": "", "metadata": {"shop": "eu"}}
    [(request, metadata)] = server.asked
    assert (request.name, request.config) == ("item", "key: ü".encode())
    assert "authorization" not in metadata


def test_payloads_that_are_equal_are_two_events(server: EventingServer, bus: Bus) -> None:
    server.send(b"tick", b"tick")
    with fetching(source(server.address), bus, IDENTITY) as fetcher:
        first, second = fetcher.wait_for(2)
    assert first.id != second.id


def test_a_json_body_and_what_is_none(server: EventingServer, bus: Bus) -> None:
    poison = [b"{", b"\xff", b"", b"[" * 100_000, b"[" * 100_000 + b"]" * 100_000]
    server.send(*poison, b'{"n": 1.10}')
    with fetching(source(server.address, jsonBody=True), bus, IDENTITY) as fetcher:
        [event] = fetcher.wait_for(1)
    assert b'"body":{"n": 1.10}' in (event.data or b"")
    assert [value for _, value in letters_on(bus)] == poison


def test_a_message_that_is_no_event_does_not_stop_those_behind_it(server: EventingServer, bus: Bus) -> None:
    server.send_raw(b"\x12\x7fcut off")
    server.send(b'"behind"')
    with fetching(source(server.address, jsonBody=True), bus, IDENTITY) as fetcher:
        assert bodies(fetcher.wait_for(1)) == ["behind"]
    assert [letter.detail.partition(": ")[2] for letter, _ in letters_on(bus)] == ["the message is no `generic.Event`"]


def test_an_event_that_the_log_does_not_take_does_not_stop_those_behind_it(server: EventingServer, bus: Bus) -> None:
    large = b"x" * (5 << 20)
    server.send(large, b"behind")
    with running(manifest("generic", "own", item=spec(server.address)), bus):
        until(lambda: [b64decode(body) for body in bodies(events_on(bus))] == [b"behind"])
    assert [letter.reason for letter, _ in letters_on(bus)] == ["too-large"]


# --- more than can be taken -------------------------------------------------------------------------------------------


def test_a_flood_waits_at_the_server_while_delivery_is_slow(server: EventingServer, bus: Bus) -> None:
    """So many bytes that memory would show it: they stay where they are, and nothing is lost."""
    payload, count = b"x" * 10_000, 5_000
    held, go_on, sizes = Flag(), Flag(), []

    def slow(events: Sequence[Event]) -> None:
        sizes.append(len(events))
        held.set()
        assert go_on.wait(PATIENCE)

    server.send(*[payload] * count)
    tracemalloc.start()
    with fetching(source(server.address), bus, IDENTITY, before=slow) as fetcher:
        assert held.wait(PATIENCE)
        before, _ = tracemalloc.get_traced_memory()
        until(lambda: _settled(server))
        after, _ = tracemalloc.get_traced_memory()
        waiting = server.sent
        go_on.set()
        fetcher.wait_for(count)
    tracemalloc.stop()
    assert waiting < count / 10
    assert after - before < 4 * grpc_stream.MOST_WAITING * len(payload)
    assert max(sizes) <= grpc_stream.MOST_WAITING


def _settled(server: EventingServer) -> bool:
    """Whether nothing more leaves the server."""
    before = server.sent
    Flag().wait(0.3)
    return server.sent == before


def test_large_messages_are_counted_by_their_bytes(
    server: EventingServer, bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grpc_stream, "MOST_BYTES", 100_000)
    sizes: list[int] = []
    server.send(*[b"x" * 60_000] * 20)
    with fetching(source(server.address), bus, IDENTITY, before=lambda events: sizes.append(len(events))) as fetcher:
        fetcher.wait_for(20)
    assert max(sizes) <= 2


# --- servers that go away ---------------------------------------------------------------------------------------------


def test_it_goes_on_when_the_server_has_been_away(server: EventingServer, bus: Bus) -> None:
    with running(manifest("generic", "own", item=spec(server.address, jsonBody=True)), bus) as runner:
        server.send(b'"before"')
        until(lambda: bodies(events_on(bus)) == ["before"])
        server.stop()
        until(lambda: metric(runner, "eventbus_source_restarts_total", eventsource="own", event="item") >= 2)
        server.start()
        server.send(b'"after"')
        until(lambda: bodies(events_on(bus)) == ["before", "after"])
    assert len(server.asked) == 2


def test_a_server_that_dies_in_the_middle_of_a_message(server: EventingServer, bus: Bus) -> None:
    """What was complete becomes events, what was not does not, and then there is another stream."""
    relay = Relay("127.0.0.1", server.port)
    relay.swallow_after = 200_000
    with running(manifest("generic", "own", item=spec(f"localhost:{relay.port}")), bus):
        server.send(*[b"x" * 60_000] * 4)
        until(lambda: len(events_on(bus)) == 3)
        relay.cut()
        relay.swallow_after = None
        relay.mend()

        def goes_on() -> bool:
            server.send(b"after")  # the old stream may take it, as long as the server does not know that it is gone
            return len(events_on(bus)) > 3

        until(goes_on)
    relay.cut()
    contents = [b64decode(body) for body in bodies(events_on(bus))]
    assert contents[:3] == [b"x" * 60_000] * 3
    assert set(contents[3:]) == {b"after"}


def test_a_server_that_falls_silent_is_noticed(
    server: EventingServer, bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one whose machine was switched off: no connection is closed, and no answer comes."""
    monkeypatch.setattr(grpc_stream, "SILENT_SECONDS", 0.2)
    monkeypatch.setattr(grpc_stream, "ANSWER_SECONDS", 0.5)
    relay = Relay("127.0.0.1", server.port)
    with fetching(source(f"localhost:{relay.port}"), bus, IDENTITY) as fetcher:
        server.send(b"before")
        fetcher.wait_for(1)
        relay.swallow_after = 0
        error = fetcher.failure()
    relay.cut()
    assert isinstance(error, SourceError)
    assert "UNAVAILABLE" in str(error)


def test_a_stream_that_ends_is_begun_again(server: EventingServer, bus: Bus, caplog: pytest.LogCaptureFixture) -> None:
    with running(manifest("generic", "own", item=spec(server.address, jsonBody=True)), bus):
        server.send(b"1")
        server.end_stream()
        until(lambda: len(server.asked) == 2)
        server.send(b"2")
        until(lambda: bodies(events_on(bus)) == [1, 2])
    assert f"own/item: the gRPC server {server.address}: the stream has ended; it begins again in about" in caplog.text


def test_what_was_received_when_it_is_stopped_is_delivered(server: EventingServer, bus: Bus) -> None:
    """Nobody else would ever get it."""
    held, go_on = Flag(), Flag()

    def slow(_: Sequence[Event]) -> None:
        held.set()
        assert go_on.wait(PATIENCE)

    with fetching(source(server.address), bus, IDENTITY, before=slow) as fetcher:
        server.send(b"first")
        assert held.wait(PATIENCE)
        server.send(b"second", b"third")
        until(lambda: server.sent == 3 and _settled(server))
        fetcher.begin_to_stop()
        go_on.set()
    assert [b64decode(body) for body in bodies(fetcher.events)] == [b"first", b"second", b"third"]
    assert fetcher.error is None


def test_a_delivery_that_fails_ends_the_stream(server: EventingServer, bus: Bus) -> None:
    """And leaves nothing behind, however much was waiting."""

    def refused(_: Sequence[Event]) -> None:
        raise SourceError("no broker")

    server.send(*[b"x"] * (3 * grpc_stream.MOST_WAITING))
    with fetching(source(server.address), bus, IDENTITY, before=refused) as fetcher:
        assert str(fetcher.failure()) == "no broker"
    until(lambda: _settled(server))


def test_a_server_that_is_not_there(bus: Bus) -> None:
    address = f"localhost:{unused_port()}"
    with fetching(source(address), bus, IDENTITY) as fetcher:
        error = fetcher.failure()
    assert isinstance(error, SourceError)
    assert str(error).startswith(f"the gRPC server {address}: UNAVAILABLE: ")
    assert "\n" not in str(error)


def test_what_others_have_met_with_does_not_keep_it_waiting(bus: Bus) -> None:
    """Channels to one address share their connections, and the pauses between attempts, unless told not to."""
    port = unused_port()
    with open_channel(f"localhost:{port}", None, grpc_stream._options()) as other:
        call: Any = other.unary_stream(f"/{grpc_stream.SERVICE}/{grpc_stream.METHOD}")
        with pytest.raises(grpc.RpcError):
            call(b"").result(PATIENCE)
        server = EventingServer(port=port)
        server.send(b"in")
        with fetching(source(server.address), bus, IDENTITY) as fetcher:
            fetcher.wait_for(1)
        server.stop()


# --- who we are, and whom we trust ------------------------------------------------------------------------------------


def test_a_wrong_token_is_told_in_one_line_without_it(
    server: EventingServer, bus: Bus, secret: Any, caplog: pytest.LogCaptureFixture
) -> None:
    server.token = "right-5b1c"
    with fetching(source(server.address, authSecret=secret(CANARY)), bus, IDENTITY) as fetcher:
        error = fetcher.failure()
    assert isinstance(error, SourceError)
    assert str(error) == f"the gRPC server {server.address}: UNAUTHENTICATED: not with Bearer <secret>"
    assert CANARY not in caplog.text
    with fetching(source(server.address, authSecret=secret("right-5b1c")), bus, IDENTITY) as fetcher:
        server.send(b"in")
        fetcher.wait_for(1)


def test_a_token_that_is_put_right_is_used_at_the_next_attempt(server: EventingServer, bus: Bus, secret: Any) -> None:
    server.token = "right-5b1c"
    server.send(b"in")
    with running(manifest("generic", "own", item=spec(server.address, authSecret=secret(CANARY))), bus) as runner:
        until(lambda: metric(runner, "eventbus_source_restarts_total", eventsource="own", event="item"))
        secret("right-5b1c")
        until(lambda: len(events_on(bus)) == 1)


@pytest.mark.parametrize("token", [f"{CANARY}\nx", f"{CANARY}ü"])
def test_a_token_that_cannot_be_sent_is_not_shown(server: EventingServer, bus: Bus, secret: Any, token: str) -> None:
    with fetching(source(server.address, authSecret=secret(token)), bus, IDENTITY) as fetcher:
        error = fetcher.failure()
    assert isinstance(error, SourceError)
    assert str(error).startswith("the token of `authSecret` has characters that cannot be sent")
    assert CANARY not in str(error)


def _credentials(certificate: Certificate) -> grpc.ServerCredentials:
    return grpc.ssl_server_credentials([(certificate.key.read_bytes(), certificate.cert.read_bytes())])


def test_tls(serve: Serve, bus: Bus, certificate: Certificate, secret: Any) -> None:
    server = serve(_credentials(certificate))
    server.token = "right-5b1c"
    server.send(b"in")
    trusted = {"certSecret": secret(certificate.cert.read_text(), "ca"), "authSecret": secret("right-5b1c")}
    with fetching(source(server.address, insecure=False, **trusted), bus, IDENTITY) as fetcher:
        fetcher.wait_for(1)


@pytest.mark.parametrize("trust", ["system", "other", "none"])
def test_a_server_that_cannot_be_trusted_gets_no_token(
    serve: Serve, bus: Bus, certificate: Certificate, foreign_certificate: Certificate, *, secret: Any, trust: str
) -> None:
    """Whether its authority is not known, or it does not even speak TLS."""
    server = serve() if trust == "none" else serve(_credentials(certificate))
    changes = {"certSecret": secret(foreign_certificate.cert.read_text(), "ca")} if trust == "other" else {}
    changed = source(server.address, insecure=False, authSecret=secret(CANARY), **changes)
    with fetching(changed, bus, IDENTITY) as fetcher:
        error = fetcher.failure()
    assert isinstance(error, SourceError)
    assert str(error).startswith(f"the gRPC server {server.address}: UNAVAILABLE: ")
    assert CANARY not in str(error)
    assert server.asked == []


def test_a_certificate_that_is_none_is_told_and_not_shown(bus: Bus, secret: Any) -> None:
    with fetching(source("h:1", insecure=False, certSecret=secret(CANARY)), bus, IDENTITY) as fetcher:
        error = fetcher.failure()
    assert isinstance(error, ConfigError)
    assert str(error) == "the TLS secret `vault` cannot be used: it is not a usable PEM file"


# --- manifests --------------------------------------------------------------------------------------------------------

_SELECTOR = {"name": "own", "key": "token"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"url": "http://h:1"}, "must be a server as `host:port`"),
        ({"url": ""}, "must be a server as `host:port`"),
        ({"config": ""}, "config"),
        ({"config": None}, "config"),
        ({"certSecret": _SELECTOR}, "`certSecret` does nothing without TLS; leave `insecure` out"),
        ({"jsonbody": True}, "jsonBody"),
    ],
)
def test_what_is_wrong_is_told(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ManifestError) as error:
        manifest("generic", item=spec("h:1", **changes))
    assert message in str(error.value)


def test_a_token_in_the_clear_is_warned_of() -> None:
    [warning] = manifest("generic", item=spec("h:1", authSecret=_SELECTOR)).warnings
    assert "whoever is in between can read the token" in str(warning)
    assert manifest("generic", item=spec("h:1", authSecret=_SELECTOR, insecure=False)).warnings == ()


def test_a_client_that_is_not_installed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda _: None)
    with pytest.raises(ManifestError) as error:
        manifest("generic", item=spec("h:1"))
    assert "this needs packages that are not installed: install `kafka-eventbus[grpc]`" in str(error.value)


@pytest.mark.skipif(not CORPUS.exists(), reason="the corpus ../shared/corpus is not there")
def test_argo_events_own_example_loads() -> None:
    [made] = EVENT_SOURCES.load(CORPUS / "event-sources_generic.yaml")
    assert made.warnings == ()
