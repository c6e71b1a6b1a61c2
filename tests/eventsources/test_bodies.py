"""Bodies that come slowly, not at all, or all at the same time: the receiver without a server around it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator, MutableMapping
from contextlib import suppress
from typing import Any

import pytest

from eventbus import Bus
from eventsources.base import Identity
from eventsources.metrics import SourceMetrics
from eventsources.receiver.app import Receiver, Route
from eventsources.receiver.patience import BoundedProtocol
from eventsources.sink import Sieve, Sink
from eventsources.sources.webhook import WebhookEndpoint, WebhookSpec
from tests.eventsources.serving import events_on, shop

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
