"""Bodies that come slowly, not at all, without end, or all at the same time."""

from __future__ import annotations

import asyncio
import gzip
import socket
import tracemalloc
from collections.abc import Iterator, MutableMapping
from contextlib import suppress
from itertools import product
from typing import Any

import pytest

from eventbus import Bus
from eventbus.ports import Position
from eventsources.base import Identity
from eventsources.metrics import SourceMetrics
from eventsources.receiver.app import Receiver, Route
from eventsources.receiver.patience import BoundedProtocol
from eventsources.sink import Sieve, Sink
from eventsources.sources.webhook import WebhookEndpoint, WebhookSpec
from tests.eventsources.serving import Stuck, events_on, shop

Message = MutableMapping[str, Any]


@pytest.fixture
def bus() -> Iterator[Bus]:
    with Bus.memory() as made:
        made.ensure(1)
        yield made


@pytest.fixture
def sink(bus: Bus) -> Iterator[Sink]:
    with Sink(bus, SourceMetrics()) as made:
        yield made


def receiver(sink: Sink, **limits: Any) -> Receiver:
    spec = WebhookSpec(endpoint="/orders")
    route = Route(WebhookEndpoint(spec), Identity("shop", "orders", "webhook"), Sieve.of(spec), spec.maxPayloadSize)
    return Receiver({"/orders": route}, sink, SourceMetrics(), **limits)


class Client:
    """A request whose body is a test's to send, and its answer."""

    def __init__(self, app: Receiver) -> None:
        self._messages: asyncio.Queue[Message] = asyncio.Queue()
        self.status: int | None = None
        scope = {"type": "http", "method": "POST", "path": "/orders", "query_string": b"", "headers": []}
        self.done = asyncio.ensure_future(app(scope, self._messages.get, self._answered))

    def send(self, body: bytes, *, more: bool) -> None:
        self._messages.put_nowait({"type": "http.request", "body": body, "more_body": more})

    def hang_up(self) -> None:
        self._messages.put_nowait({"type": "http.disconnect"})

    async def taken(self) -> None:
        """Wait until all that was sent has been read."""
        while not self._messages.empty():
            await asyncio.sleep(0)
        await asyncio.sleep(0)

    async def _answered(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]


def test_a_body_that_does_not_come_is_not_waited_for(bus: Bus, sink: Sink) -> None:
    async def scene() -> int | None:
        client = Client(receiver(sink, body_seconds=0.05))
        client.send(b"{", more=True)
        await client.done
        return client.status

    assert asyncio.run(scene()) == 408
    assert events_on(bus) == []


def test_a_body_that_trickles_in_has_no_more_time(bus: Bus, sink: Sink) -> None:
    """It is all of it that has to come in time, and not the next byte."""

    async def scene() -> int | None:
        client = Client(receiver(sink, body_seconds=0.2))
        while not client.done.done():
            client.send(b" ", more=True)
            await asyncio.wait({client.done}, timeout=0.01)
        return client.status

    assert asyncio.run(asyncio.wait_for(scene(), 10)) == 408
    assert events_on(bus) == []


def test_who_hangs_up_leaves_nothing_behind(bus: Bus, sink: Sink) -> None:
    async def scene() -> tuple[int | None, int | None]:
        app = receiver(sink, most_buffered=100)
        gone, next_one = Client(app), Client(app)
        gone.send(b"x" * 100, more=True)
        await gone.taken()
        gone.hang_up()
        await gone.done
        next_one.send(b"x" * 100, more=False)
        await next_one.done
        return gone.status, next_one.status

    assert asyncio.run(scene()) == (None, 202)
    assert len(events_on(bus)) == 1


def test_all_bodies_together_have_one_limit(sink: Sink) -> None:
    async def scene() -> list[int | None]:
        app = receiver(sink, most_buffered=100)
        slow = [Client(app) for _ in range(3)]
        for client in slow:
            client.send(b"x" * 30, more=True)
            await client.taken()
        refused = Client(app)
        refused.send(b"x" * 30, more=True)
        await refused.done
        for client in slow:
            client.send(b"", more=False)
            await client.done
        later = Client(app)
        later.send(b"x" * 100, more=False)
        await later.done
        return [client.status for client in (refused, *slow, later)]

    assert asyncio.run(scene()) == [429, 202, 202, 202, 202]


def test_of_a_flood_some_wait_and_the_others_are_told_to_come_again(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the brokers are away. When they are back, it is taken."""
    stuck = Stuck()
    monkeypatch.setattr(bus.cluster, "publisher", lambda: stuck)

    async def scene(sink: Sink) -> tuple[list[int | None], list[int | None], int | None]:
        app = receiver(sink)
        flood = [Client(app) for _ in range(100)]
        for client in flood:
            client.send(b"{}", more=False)
        async with asyncio.timeout(10):
            while len(stuck.waiting) + sum(client.done.done() for client in flood) < len(flood):
                await asyncio.sleep(0)
        told = [client.status for client in flood if client.done.done()]
        waiting = [client for client in flood if not client.done.done()]
        while stuck.waiting:
            stuck.waiting.pop()(None, Position("t", 0, 0))
        await asyncio.gather(*(client.done for client in waiting))
        taken = [client.status for client in waiting]
        later = Client(app)
        later.send(b"{}", more=False)
        await later.taken()
        stuck.waiting.pop()(None, Position("t", 0, 0))
        await later.done
        return told, taken, later.status

    with Sink(bus, SourceMetrics(), most_events=10) as sink:
        assert asyncio.run(scene(sink)) == ([429] * 90, [202] * 10, 202)


# --- without end ------------------------------------------------------------------------------------------------------

GIGABYTE = 1 << 30
MEGABYTE = 1 << 20


def test_a_gigabyte_is_refused_when_it_has_hardly_begun(bus: Bus) -> None:
    """Whoever sends on nevertheless talks to nobody; others are served all the same."""
    chunk = b"100000\r\n" + b"x" * MEGABYTE + b"\r\n"
    with shop(bus) as orders, socket.create_connection(("127.0.0.1", orders.runner.ports[0]), timeout=10) as wire:
        tracemalloc.start()
        wire.sendall(b"POST /orders HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        sent = 0
        with suppress(ConnectionError):
            while sent < GIGABYTE:
                wire.sendall(chunk)
                sent += MEGABYTE
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert wire.recv(100).startswith(b"HTTP/1.1 413")
        assert sent < GIGABYTE / 10
        assert peak < 8 * MEGABYTE
        assert orders.send().status == 202
        assert len(orders.events()) == 1


def test_a_gigabyte_that_is_announced_is_refused_before_it_comes(bus: Bus) -> None:
    with shop(bus) as orders, socket.create_connection(("127.0.0.1", orders.runner.ports[0]), timeout=10) as wire:
        wire.sendall(f"POST /orders HTTP/1.1\r\nHost: x\r\nContent-Length: {GIGABYTE}\r\n\r\n".encode())
        assert wire.recv(100).startswith(b"HTTP/1.1 413")


def test_a_bomb_is_not_unpacked(bus: Bus) -> None:
    bomb = gzip.compress(b'"' + b" " * 50 * MEGABYTE + b'"', 1)
    encodings = ("gzip", "GZIP", "x-gzip", "deflate", "br", "gzip, identity", "identity, gzip")
    with shop(bus) as orders:
        tracemalloc.start()
        for encoding, content_type in product(encodings, ("application/json", "application/cloudevents+json")):
            answer = orders.send(bomb, Content_Encoding=encoding, Content_Type=content_type)
            assert (answer.status, answer.data) == (415, b"compressed bodies are not supported; send it as it is\n")
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 8 * MEGABYTE
        assert orders.events() == []


@pytest.mark.parametrize("depth", [100_000, 400_000])
@pytest.mark.parametrize("closed", [True, False])
def test_json_that_is_nested_without_end_harms_nobody(bus: Bus, *, depth: int, closed: bool) -> None:
    """As JSON it is refused. As the data of a CloudEvent it is the sender's own, and not looked into."""
    deep = b"[" * depth + (b"]" * depth if closed else b"")
    document = b'{"specversion":"1.0","id":"7","source":"/eu","type":"paid","data":' + deep + b"}"
    binary = {"ce-specversion": "1.0", "ce-id": "7", "ce-source": "/eu", "ce-type": "paid"}
    with shop(bus, filter={"expression": "a.b == 1 || true"}, partitionKey="data.a.b") as orders:
        for body, content_type in (
            (deep, "application/json"),
            (document, "application/cloudevents+json"),
            (b"[" + document + b"]", "application/cloudevents-batch+json"),
        ):
            answer = orders.send(body, Content_Type=content_type)
            assert (answer.status, answer.data.count(b"\n")) == (400, 1)
        assert orders.events() == []
        assert orders.send(deep, **binary, Content_Type="application/json").status == 202
        assert orders.send(b"{}").status == 202


# --- heads ------------------------------------------------------------------------------------------------------------


def _hung_up(wire: socket.socket) -> bool:
    wire.settimeout(10)
    try:
        return wire.recv(100) == b""
    except ConnectionError:
        return True


def test_a_head_that_does_not_end_is_not_read(bus: Bus) -> None:
    with shop(bus) as orders, socket.create_connection(("127.0.0.1", orders.runner.ports[0])) as wire:
        wire.sendall(b"POST /orders HTTP/1.1\r\nX-Endless: ")
        with suppress(ConnectionError):
            for _ in range(1000):
                wire.sendall(b"x" * 10_000)
        assert _hung_up(wire)
        assert orders.send().status == 202


@pytest.mark.parametrize("beginning", [b"", b"POST /orders HTTP/1.1\r\nHost: "])
def test_a_head_that_does_not_come_is_not_waited_for(
    bus: Bus, monkeypatch: pytest.MonkeyPatch, beginning: bytes
) -> None:
    monkeypatch.setattr(BoundedProtocol, "head_seconds", 0.1)
    with shop(bus) as orders, socket.create_connection(("127.0.0.1", orders.runner.ports[0])) as wire:
        wire.sendall(beginning)
        assert _hung_up(wire)


def test_a_long_body_is_no_long_head(bus: Bus) -> None:
    """Also where it follows another request on the same connection."""
    with shop(bus) as orders:
        large = b'"' + b"x" * 500_000 + b'"'
        assert [orders.send(body).status for body in (large, b"{}", large)] == [202, 202, 202]
