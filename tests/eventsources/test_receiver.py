"""The receiver, over real HTTP: what it takes, what it refuses, and that it never says yes to what could be lost."""

from __future__ import annotations

import hashlib
import hmac
import json
import socket
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from urllib3 import BaseHTTPResponse

from eventbus import Bus
from eventbus.errors import LogError, RetriableError
from eventbus.ports import Position
from eventsources.base import Identity
from eventsources.metrics import SourceMetrics
from eventsources.sink import Sieve, Sink, SinkFull
from sensors.spec.problems import ManifestError
from tests.eventsources.serving import Shop, Stuck, manifest, metric, shop


@pytest.fixture
def bus() -> Iterator[Bus]:
    with Bus.memory() as made:
        made.ensure(2)
        yield made


@pytest.fixture
def orders(bus: Bus) -> Iterator[Shop]:
    with shop(bus) as made:
        yield made


@pytest.fixture
def secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    (tmp_path / "hook").mkdir()
    (tmp_path / "hook" / "token").write_text("s3cret\n")
    monkeypatch.setenv("EVENTBUS_SECRETS_DIR", str(tmp_path))
    return {"name": "hook", "key": "token"}


# --- what becomes an event --------------------------------------------------------------------------------------------


def test_json_becomes_an_event_that_a_dependency_finds(orders: Shop) -> None:
    answer = orders.send('{"id": 17}', path="/orders?a=1&a=2", Content_Type="application/json", X_Shop="eu")
    assert answer.status == 202
    [event] = orders.events()
    assert (event.source, event.subject, event.type) == ("shop", "orders", "webhook")
    data = event.json()
    assert data["body"] == {"id": 17}
    assert data["header"]["X-Shop"] == ["eu"]
    assert (data["method"], data["query"]) == ("POST", {"a": ["1", "2"]})


def test_data_is_not_written_anew(orders: Shop) -> None:
    """Numbers stay as they were written."""
    orders.send('{"amount": 1.10, "id": 12345678901234567890123}')
    [event] = orders.events()
    assert b'"body":{"amount": 1.10, "id": 12345678901234567890123}' in (event.data or b"")


@pytest.mark.parametrize(
    ("body", "content_type", "expected"),
    [
        (b"hello", "text/plain", "hello"),
        (b"hello", None, "hello"),
        (b"\xff\x00", "application/octet-stream", {"base64": "/wA="}),
        (b"\xff\x00", None, {"base64": "/wA="}),
        (b"", None, None),
        (b"[1]", "application/vnd.shop+json; charset=utf-8", [1]),
        (b"a=1", "application/x-www-form-urlencoded", "a=1"),
    ],
)
def test_any_body_is_taken(orders: Shop, body: bytes, content_type: str | None, expected: Any) -> None:
    headers = {} if content_type is None else {"Content_Type": content_type}
    assert orders.send(body, **headers).status == 202
    assert orders.events()[0].json()["body"] == expected


def test_who_sent_it_is_not_told(orders: Shop) -> None:
    orders.send(Authorization="Bearer 123456", Cookie="session=abcdef")
    [event] = orders.events()
    assert b"123456" not in (event.data or b"")
    assert b"abcdef" not in (event.data or b"")


def test_a_delivery_keeps_its_id(orders: Shop) -> None:
    orders.send(Idempotency_Key="order-17")
    orders.send(Idempotency_Key="order-17")
    assert [event.id for event in orders.events()] == ["order-17", "order-17"]


def test_only_what_passes_the_filter_is_produced(bus: Bus) -> None:
    with shop(bus, filter={"expression": "body.amount > 100"}) as orders:
        assert [orders.send(f'{{"amount": {amount}}}').status for amount in (50, 150)] == [202, 202]
        [event] = orders.events()
        assert event.json()["body"] == {"amount": 150}
        assert metric(
            orders.runner, "eventbus_source_events_total", eventsource="shop", event="orders", outcome="filtered"
        )


def test_events_that_share_a_key_stay_in_order(bus: Bus) -> None:
    with shop(bus, partitionKey="data.body.customer") as orders:
        for number in range(20):
            orders.send(f'{{"customer": "c{number % 3}", "number": {number}}}')
        events = orders.events()
    assert len(events) == 20
    for customer in ("c0", "c1", "c2"):
        own = [event for event in events if event.key == customer.encode()]
        assert [event.json()["body"]["number"] for event in own] == sorted(range(int(customer[1]), 20, 3))


# --- CloudEvents ------------------------------------------------------------------------------------------------------

_BINARY = {"ce_specversion": "1.0", "ce_id": "7", "ce_source": "/eu", "ce_type": "paid", "ce_region": "north"}


def test_a_binary_cloud_event_keeps_its_attributes(orders: Shop) -> None:
    assert orders.send('{"id": 17}', **_BINARY, Content_Type="application/json").status == 202
    [event] = orders.events()
    assert event.data == b'{"id": 17}'
    wanted = {
        "id": "7",
        "type": "paid",
        "region": "north",
        "originsource": "/eu",
        "source": "shop",
        "subject": "orders",
    }
    assert wanted.items() <= event.attributes.items()


def test_its_context_can_be_left_alone(bus: Bus) -> None:
    with shop(bus, keepContext=True) as orders:
        orders.send(b"x", **_BINARY | {"ce_specversion": "0.3"}, Content_Type="text/plain")
        [event] = orders.events()
    assert (event.source, event.subject, event.attributes["specversion"]) == ("/eu", None, "0.3")


def test_structured_and_batched_ones(orders: Shop) -> None:
    one = {"specversion": "1.0", "id": "1", "source": "/eu", "type": "paid", "data": {"id": 1}}
    many = [one | {"id": str(number)} for number in range(2, 5)]
    assert orders.send(json.dumps(one), Content_Type="application/cloudevents+json; charset=utf-8").status == 202
    assert orders.send(json.dumps(many), Content_Type="application/cloudevents-batch+json").status == 202
    assert orders.send("[]", Content_Type="application/cloudevents-batch+json").status == 202
    assert sorted(event.id for event in orders.events()) == ["1", "2", "3", "4"]


def test_the_content_type_has_the_say(orders: Shop) -> None:
    orders.send("x", **_BINARY, ce_datacontenttype="application/json", Content_Type="text/plain")
    assert orders.events()[0].attributes["datacontenttype"] == "text/plain"


_STRUCTURED = "application/cloudevents+json"


@pytest.mark.parametrize(
    ("headers", "body", "status", "reason"),
    [
        ({"ce_specversion": "1.0"}, "{}", 400, "the required attribute `id` is missing"),
        (_BINARY | {"ce_specversion": "9"}, "{}", 400, "specversion `9` is not known"),
        (_BINARY | {"ce_region": "%ff"}, "{}", 400, "`ce-region` is not UTF-8"),
        (_BINARY | {"ce_Sub.Region": "x"}, "{}", 400, "`sub.region` is not allowed"),
        ({"Content_Type": _STRUCTURED}, "{", 400, "JSON"),
        ({"Content_Type": _STRUCTURED}, "[" * 100_000, 400, "JSON"),
        ({"Content_Type": "application/cloudevents-batch+json"}, "{}", 400, "not a JSON array"),
        (
            {"Content_Type": "application/cloudevents+avro"},
            "{}",
            415,
            "`application/cloudevents+avro` is not supported",
        ),
        ({"Content_Type": _STRUCTURED + "; charset=latin-1"}, "{}", 415, "charset `latin-1`"),
        ({"Content_Type": "application/json"}, "{", 400, "the body is not JSON"),
        ({"Content_Type": "application/json"}, "[" * 100_000, 400, "the body is not JSON"),
        ({"Content_Type": "application/json"}, b"\xff", 400, "not UTF-8"),
        ({"Content_Encoding": "gzip"}, b"\x1f\x8b", 415, "compressed bodies are not supported"),
    ],
)
def test_what_is_wrong_is_told(
    orders: Shop, headers: dict[str, str], body: bytes | str, status: int, reason: str
) -> None:
    answer = orders.send(body, **headers)
    assert answer.status == status
    assert reason in answer.data.decode()
    assert answer.data.count(b"\n") == 1
    assert orders.events() == []


def test_of_a_batch_with_a_bad_event_nothing_is_taken(orders: Shop) -> None:
    good = {"specversion": "1.0", "id": "1", "source": "/eu", "type": "paid"}
    answer = orders.send(json.dumps([good, {"id": "2"}]), Content_Type="application/cloudevents-batch+json")
    assert answer.status == 400
    assert orders.events() == []


# --- methods, paths, sizes --------------------------------------------------------------------------------------------


def test_other_paths_and_methods(orders: Shop) -> None:
    assert orders.send(path="/other").status == 404
    refused = orders.send(method="GET")
    assert (refused.status, refused.headers["Allow"]) == (405, "OPTIONS, POST")
    asked = orders.send(method="OPTIONS", WebHook_Request_Origin="eu.example")
    assert (asked.status, asked.headers["Allow"]) == (200, "OPTIONS, POST")
    assert asked.headers["WebHook-Allowed-Origin"] == "eu.example"
    assert orders.events() == []


def test_a_large_body_is_refused_before_it_is_read(bus: Bus) -> None:
    with shop(bus, maxPayloadSize=1000) as orders:
        assert orders.send(b" " * 1001).status == 413
        assert orders.send(b'"' + b" " * 998 + b'"').status == 202


def test_a_large_body_of_unknown_length_is_refused_while_it_comes(bus: Bus) -> None:
    with (
        shop(bus, maxPayloadSize=1000) as orders,
        socket.create_connection(("127.0.0.1", orders.runner.ports[0])) as wire,
    ):
        wire.sendall(b"POST /orders HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        wire.settimeout(10)
        wire.sendall(b"400\r\n" + b"x" * 1024 + b"\r\n")
        assert wire.recv(100).startswith(b"HTTP/1.1 413")


def test_what_the_topic_does_not_take_is_too_large(bus: Bus) -> None:
    with shop(bus, maxPayloadSize=8 << 20) as orders:
        answer = orders.send(b'"' + b"x" * (7 << 20) + b'"')
        assert answer.status == 413
        assert orders.send().status == 202


# --- who may send -----------------------------------------------------------------------------------------------------


def test_a_bearer_token(bus: Bus, secret: dict[str, str]) -> None:
    with shop(bus, authSecret=secret) as orders:
        given = (
            "Bearer s3cret",
            "bearer s3cret",
            "Bearer wrong",
            "Bearer ",
            "Basic s3cret",
            "s3cret",
            "Bearer s3cret2",
        )
        assert [orders.send(Authorization=each).status for each in given] == [202, 202, 401, 401, 401, 401, 401]
        assert orders.send().status == 401
        assert len(orders.events()) == 2


def test_a_name_and_a_password(bus: Bus, secret: dict[str, str]) -> None:
    def basic(text: str) -> str:
        return b64encode(text.encode()).decode()

    right = basic("s3cret:s3cret")
    with shop(bus, basicAuth={"username": secret, "password": secret}) as orders:
        given = (
            f"Basic {right}",
            f"basic {right}",
            f"Basic {basic('s3cret:')}",
            "Basic s3cret:s3cret",
            f"Bearer {right}",
        )
        assert [orders.send(Authorization=each).status for each in given] == [202, 202, 401, 401, 401]
        assert orders.send().status == 401


def test_basic_and_bearer_exclude_each_other() -> None:
    selector = {"name": "a", "key": "b"}
    both = {"authSecret": selector, "basicAuth": {"username": selector, "password": selector}}
    with pytest.raises(ManifestError, match="exclude each other: a request has one `Authorization`"):
        manifest("webhook", orders={"endpoint": "/orders", **both})


def _signed(body: bytes, key: bytes = b"s3cret", algorithm: Any = hashlib.sha256) -> str:
    return hmac.new(key, body, algorithm).hexdigest()


@pytest.mark.parametrize("algorithm", ["sha1", "sha256", "sha512"])
@pytest.mark.parametrize("encoding", ["hex", "base64"])
def test_a_signature_as_the_sender_makes_it(bus: Bus, secret: dict[str, str], *, algorithm: str, encoding: str) -> None:
    """Of the algorithm and in the encoding that the manifest names, and of no other."""
    body = b'{ "id":  17 }'
    with shop(
        bus,
        signature={"secret": secret, "header": "X-Sign", "prefix": "", "algorithm": algorithm, "encoding": encoding},
    ) as orders:
        for made in ("sha1", "sha256", "sha512"):
            digest = hmac.new(b"s3cret", body, made).digest()
            for written, text in (("hex", digest.hex()), ("base64", b64encode(digest).decode())):
                right = (made, written) == (algorithm, encoding)
                assert orders.send(body, X_Sign=text).status == (202 if right else 401), (made, written)
                assert orders.send(body, X_Sign=text[:-1]).status == 401
        assert len(orders.events()) == 1


def test_a_signature_over_the_raw_bytes(bus: Bus, secret: dict[str, str]) -> None:
    body = b'{ "id":  17 }'
    right = _signed(body)
    with shop(bus, signature={"secret": secret}) as orders:
        given = {
            f"sha256={right}": 202,
            right: 401,
            f"sha256={right[:-1]}": 401,
            f"sha256={_signed(body, b'other')}": 401,
            f"sha1={_signed(body, algorithm=hashlib.sha1)}": 401,
            "sha256=": 401,
            "": 401,
            f"sha256={right}\u00ff": 401,
        }
        for signature, status in given.items():
            assert orders.send(body, X_Hub_Signature_256=signature).status == status, signature
        assert orders.send(body).status == 401
        assert orders.send(b'{"id":17}', X_Hub_Signature_256=f"sha256={right}").status == 401
        assert len(orders.events()) == 1


def test_who_cannot_check_lets_nobody_in(bus: Bus, secret: dict[str, str], tmp_path: Path) -> None:
    with shop(bus, authSecret=secret) as orders:
        (tmp_path / "hook" / "token").write_text("")
        assert orders.send(Authorization="Bearer ").status == 503
        (tmp_path / "hook" / "token").unlink()
        answer = orders.send(Authorization="Bearer s3cret")
        assert answer.status == 503
        assert b"s3cret" not in answer.data
        (tmp_path / "hook" / "token").write_text("new")
        assert orders.send(Authorization="Bearer new").status == 202


# --- when the brokers are away ----------------------------------------------------------------------------------------


def test_there_is_no_yes_before_the_brokers_have_it(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    stuck = Stuck()
    monkeypatch.setattr(bus.cluster, "publisher", lambda: stuck)
    answers: list[BaseHTTPResponse] = []
    with shop(bus) as orders:
        client = Thread(target=lambda: answers.append(orders.send()))
        client.start()
        while not stuck.waiting:
            client.join(0.01)
        assert answers == []
        stuck.waiting.pop()(RetriableError("no broker answers"), None)
        client.join()
        [answer] = answers
        assert (answer.status, answer.headers["Retry-After"]) == (503, "1")


def test_when_too_much_is_on_its_way_others_have_to_wait(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    stuck = Stuck(full=True)
    monkeypatch.setattr(bus.cluster, "publisher", lambda: stuck)
    with shop(bus) as orders:
        answer = orders.send()
        assert (answer.status, answer.headers["Retry-After"]) == (429, "1")


@pytest.mark.parametrize("limit", ["most_events", "most_bytes"])
def test_what_is_on_its_way_is_bounded(bus: Bus, monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    stuck = Stuck()
    monkeypatch.setattr(bus.cluster, "publisher", lambda: stuck)
    identity = Identity("shop", "orders", "webhook")
    event = identity.event("1", "x" * 200)
    told: list[LogError | None] = []
    most = 2 if limit == "most_events" else 2 * bus.output(event).size()
    with Sink(bus, SourceMetrics(), **{limit: most}) as sink:
        sink.offer(identity, Sieve(), event, told.append)
        sink.offer(identity, Sieve(), event, told.append)
        with pytest.raises(SinkFull):
            sink.offer(identity, Sieve(), event, told.append)
        stuck.waiting.pop()(None, Position("t", 0, 0))
        sink.offer(identity, Sieve(), event, told.append)
        assert told == [None]
        while stuck.waiting:
            stuck.waiting.pop()(None, Position("t", 0, 0))
    assert told == [None, None, None]
