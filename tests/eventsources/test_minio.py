"""What happens in buckets of MinIO becomes events while somebody listens.

The server here is ours and misbehaves; what is to be had from a real one is in `minio_contract`.
"""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Callable
from typing import Any

import pytest

from eventbus import Bus
from eventsources.base import Identity, SourceError
from eventsources.sources import minio_listener
from eventsources.sources.minio import MinioSource, MinioSpec
from eventsources.sources.minio_listener import Pieces
from sensors import extras
from sensors.spec.problems import ManifestError
from tests.actions.conftest import RawServer, raw_server, unused_port
from tests.eventsources import minio_server
from tests.eventsources.fetching import fetching, running, until
from tests.eventsources.minio_contract import MinioContract, minio
from tests.eventsources.serving import events_on, letters_on, manifest, metric

__all__ = ["minio", "raw_server"]

IDENTITY = Identity("store", "upload", "minio")
CANARY = "canary-6f1d"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
StartRaw = Callable[[Callable[[socket.socket], None]], RawServer]
MakeSecret = Callable[..., dict[str, str]]


def record(key: str, **item: Any) -> dict[str, Any]:
    return {"eventName": "s3:ObjectCreated:Put", "s3": {"bucket": {"name": "pictures"}, "object": {"key": key, **item}}}


def line(*records: Any) -> bytes:
    return json.dumps({"Records": records}).encode() + b"\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def read_head(connection: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        received = connection.recv(65536)
        assert received
        data += received
    return data


def telling(*pieces: bytes, heads: list[bytes] | None = None) -> Callable[[socket.socket], None]:
    """Tells that, and nothing more until the listener goes."""

    def behave(connection: socket.socket) -> None:
        head = read_head(connection)
        if heads is not None:
            heads.append(head)
        connection.sendall(HEAD + b"".join(map(chunk, pieces)))
        connection.settimeout(0.05)
        while True:
            connection.sendall(chunk(b" "))
            try:
                if not connection.recv(1):
                    return
            except TimeoutError:
                continue

    return behave


def spec(endpoint: str, secret: MakeSecret, **fields: Any) -> dict[str, Any]:
    return {
        "endpoint": endpoint.removeprefix("http://").removesuffix("/hook"),
        "insecure": True,
        "region": "eu-west-1",
        "bucket": {"name": "pictures"},
        "accessKey": secret("AKIAEXAMPLE", "access"),
        "secretKey": secret(CANARY, "secret"),
        "events": ["s3:ObjectCreated:*"],
        **fields,
    }


def source(endpoint: str, secret: MakeSecret, **fields: Any) -> MinioSource:
    return MinioSource(MinioSpec.model_validate(spec(endpoint, secret, **fields)))


def failure_at(endpoint: str, bus: Bus, secret: MakeSecret, **fields: Any) -> str:
    with fetching(source(endpoint, secret, **fields), bus, IDENTITY) as fetcher:
        error = fetcher.failure()
    assert isinstance(error, SourceError)
    assert "\n" not in str(error)
    assert CANARY not in str(error)
    return str(error)


# --- what is asked, and what is told --------------------------------------------------------------------------------


def test_what_an_event_looks_like(raw_server: StartRaw, bus: Bus, secret: MakeSecret) -> None:
    told = record("in/a b\n.jpg", versionId="v1", sequencer="17F0", size=3)
    server = raw_server(telling(b"  ", line(told)))
    with fetching(source(server.url, secret, metadata={"shop": "eu"}), bus, IDENTITY) as fetcher:
        [event] = fetcher.wait_for(1)
    assert event.json() == {"notification": [told], "metadata": {"shop": "eu"}}
    assert event.id == "pictures in/a%20b%0A.jpg v1 17F0 s3:ObjectCreated:Put"
    assert (event.source, event.subject, event.type) == ("store", "upload", "minio")


def test_what_is_asked_for(raw_server: StartRaw, bus: Bus, secret: MakeSecret) -> None:
    heads: list[bytes] = []
    server = raw_server(telling(line(record("a")), heads=heads))
    chosen = {"prefix": "in/", "suffix": ".jpg"}
    events = ["s3:ObjectCreated:*", "s3:ObjectRemoved:Delete"]
    with fetching(source(server.url, secret, filter=chosen, events=events), bus, IDENTITY) as fetcher:
        fetcher.wait_for(1)
    [head] = heads
    asked = b"events=s3%3AObjectCreated%3A%2A&events=s3%3AObjectRemoved%3ADelete&prefix=in%2F&suffix=.jpg"
    assert head.startswith(b"GET /pictures?" + asked + b" HTTP/1.1")
    assert b"Credential=AKIAEXAMPLE/" in head
    assert b"/eu-west-1/s3/" in head
    assert CANARY.encode() not in head


def test_a_filter_may_have_an_expression_too(raw_server: StartRaw, bus: Bus, secret: MakeSecret) -> None:
    server = raw_server(telling(line(record("small", size=1)), line(record("large", size=2_000))))
    fields = spec(server.url, secret, filter={"expression": "notification.0.s3.object.size > 1000"})
    with running(manifest("minio", "store", upload=fields), bus):
        until(lambda: events_on(bus))
    assert [event.json()["notification"][0]["s3"]["object"]["key"] for event in events_on(bus)] == ["large"]


def test_it_stops_while_nothing_happens(raw_server: StartRaw, bus: Bus, secret: MakeSecret) -> None:
    server = raw_server(telling(line(record("a"))))
    with fetching(source(server.url, secret), bus, IDENTITY) as fetcher:
        fetcher.wait_for(1)
    assert fetcher.error is None


@pytest.fixture(scope="module")
def program() -> str | None:
    return minio_server.installed()


@pytest.mark.skipif(
    minio_server.installed() is None, reason="there is no `minio` on the PATH, and `make e2e` has not made one"
)
class TestReal(MinioContract):
    """With a server that is on this machine already: to make one takes minutes, which `make e2e` has."""


# --- what cannot be read --------------------------------------------------------------------------------------------


def test_what_cannot_be_read_holds_nobody_up(raw_server: StartRaw, bus: Bus, secret: MakeSecret) -> None:
    bad = [b"{\n", b"[]\n", b'{"Records": [{"eventName": 1}]}\n', b"\xff\n", b'{"Records": null}\n', b"{}\n"]
    server = raw_server(telling(*bad, line(record("a"))))
    with fetching(source(server.url, secret), bus, IDENTITY) as fetcher:
        [event] = fetcher.wait_for(1)
    assert event.id.startswith("pictures a ")
    assert len(letters_on(bus)) == 4


def test_lines_come_in_pieces_and_together() -> None:
    pieces = Pieces("pictures")
    assert [pieces.add(each) for each in (b" ", b' {"a"', b":1}", b'\n{"b":2}\n {', b" ", b"}\n")] == [
        [],
        [],
        [],
        [b'{"a":1}', b'{"b":2}'],
        [],
        [b"{ }"],
    ]


def test_blanks_take_no_memory() -> None:
    pieces = Pieces("pictures")
    for _ in range(1000):
        pieces.add(b" ")
    assert pieces._rest == b""


def test_a_line_that_is_too_long_is_left_out_and_takes_no_memory(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(minio_listener, "MOST_BYTES", 10)
    pieces = Pieces("pictures")
    caplog.set_level(logging.WARNING)
    assert pieces.add(b"0123456789") == []
    assert pieces.add(b"0") == []
    assert pieces.add(b"1" * 50) == []
    assert pieces._rest == b""
    assert pieces.add(b"2\n{}\n{") == [b"{}"]
    assert pieces.add(b"}\n") == [b"{}"]
    assert caplog.text.count("a notification of `pictures` that is longer than 10 bytes is left out") == 1


# --- what goes wrong ------------------------------------------------------------------------------------------------


def test_a_server_that_closes_in_the_middle_is_listened_to_again(
    raw_server: StartRaw, bus: Bus, secret: MakeSecret, caplog: pytest.LogCaptureFixture
) -> None:
    times = iter(range(100))

    def break_off(connection: socket.socket) -> None:
        read_head(connection)
        told = line(record(f"object-{next(times)}"))
        connection.sendall(HEAD + chunk(told) + chunk(told[:10])[:8])

    server = raw_server(break_off)
    with running(manifest("minio", "store", upload=spec(server.url, secret)), bus) as runner:
        until(lambda: len(events_on(bus)) >= 2)
        until(lambda: metric(runner, "eventbus_source_restarts_total", eventsource="store", event="upload") >= 2)
    keys = [event.json()["notification"][0]["s3"]["object"]["key"] for event in events_on(bus)]
    assert keys[:2] == ["object-0", "object-1"]
    assert "store/upload: MinIO at 127.0.0.1:" in caplog.text


def test_a_server_that_ends_the_stream(raw_server: StartRaw, bus: Bus, secret: MakeSecret) -> None:
    def end(connection: socket.socket) -> None:
        read_head(connection)
        connection.sendall(HEAD + chunk(b" ") + chunk(b""))

    assert failure_at(raw_server(end).url, bus, secret).endswith(": the server has closed the connection")


def test_a_server_that_falls_silent(
    raw_server: StartRaw, bus: Bus, secret: MakeSecret, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fall_silent(connection: socket.socket) -> None:
        read_head(connection)
        connection.sendall(HEAD + chunk(b" "))
        connection.recv(1)

    monkeypatch.setattr(minio_listener, "SILENCE_SECONDS", 0.2)
    assert ": nothing came for 0.2 s; versions since October 2025 may" in failure_at(
        raw_server(fall_silent).url, bus, secret
    )


@pytest.mark.parametrize(
    ("status", "code"),
    [(403, "InvalidAccessKeyId"), (403, "SignatureDoesNotMatch"), (404, "NoSuchBucket"), (503, "SlowDown")],
)
def test_the_server_says_no(raw_server: StartRaw, bus: Bus, secret: MakeSecret, status: int, code: str) -> None:
    body = f"<Error><Code>{code}</Code><Message>You {CANARY}\nmay not.</Message></Error>".encode()

    def refuse(connection: socket.socket) -> None:
        read_head(connection)
        head = f"HTTP/1.1 {status} No\r\nContent-Type: application/xml\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body)

    server = raw_server(refuse)
    place = server.url.removeprefix("http://").removesuffix("/hook")
    assert failure_at(server.url, bus, secret) == f"MinIO at {place}: {code}: You <secret> may not"


@pytest.mark.parametrize("region", ["", "eu-west-1"])
@pytest.mark.parametrize("status", ["200 OK", "500 No"])
def test_a_server_that_is_no_minio(
    raw_server: StartRaw, bus: Bus, secret: MakeSecret, region: str, status: str
) -> None:
    def greet(connection: socket.socket) -> None:
        read_head(connection)
        connection.sendall(f"HTTP/1.1 {status}\r\nContent-Type: text/html\r\nContent-Length: 6\r\n\r\n<html>".encode())

    server = raw_server(greet)
    assert failure_at(server.url, bus, secret, region=region).startswith("MinIO at 127.0.0.1:")


def test_a_server_that_is_not_there(bus: Bus, secret: MakeSecret) -> None:
    port = unused_port()
    said = failure_at(f"127.0.0.1:{port}", bus, secret)
    assert said.startswith(f"MinIO at 127.0.0.1:{port}: ")
    assert "Connection refused" in said


# --- mistakes that the manifest's reader finds ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"endpoint": "http://minio:9000"}, "must be the server as `host:port`, without `https://`"),
        ({"endpoint": "s3.eu-west-1.amazonaws.com"}, "Amazon's S3 has no listeners"),
        ({"bucket": {"name": "No"}}, "must be the name of a bucket"),
        ({"bucket": "pictures"}, "bucket"),
        ({"events": []}, "must be one or more of MinIO's events"),
        ({"events": ["put"]}, "must be one or more of MinIO's events"),
        ({"filter": {"expression": ""}}, "expression"),
        ({"filter": {"expression": "1 +"}}, "expression"),
        ({"filter": {"prefixes": "a"}}, "prefix"),
        ({"accessKey": None}, "accessKey"),
    ],
)
def test_what_is_wrong_is_told(secret: MakeSecret, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ManifestError) as error:
        manifest("minio", upload={**spec("minio:9000", secret), **fields})
    assert message in str(error.value)


def test_what_is_not_used_is_told(secret: MakeSecret) -> None:
    fields = {"bucket": {"name": "pictures", "key": "a"}, "caCertificate": {"name": "tls", "key": "ca"}}
    key, authorities = manifest("minio", upload=spec("minio:9000", secret, **fields)).advice()
    assert key.path == ("spec", "minio", "upload", "bucket", "key")
    assert key.message == "`key` is not used: `filter.prefix` chooses objects"
    assert authorities.path == ("spec", "minio", "upload", "caCertificate")
    assert authorities.message == "`caCertificate` is not used with `insecure`, which is plain HTTP"


def test_one_replica_listens(secret: MakeSecret) -> None:
    assert manifest("minio", upload=spec("minio:9000", secret)).once


def test_a_client_that_is_not_installed_is_told(secret: MakeSecret, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda _: None)
    with pytest.raises(ManifestError) as error:
        manifest("minio", upload=spec("minio:9000", secret))
    assert "this needs packages that are not installed: install `kafka-eventbus[minio]`" in str(error.value)
