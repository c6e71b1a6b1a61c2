"""What a request gets. 2xx only for what cannot be lost any more; for everything else, a status and the reason.

Bodies that are still coming in are counted as well: many slow clients together may hold no more than `MOST_BUFFERED`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

import msgspec

from eventbus.errors import InvalidEvent, LogError, UnproducibleError
from eventbus.events import Event
from eventsources.base import Endpoint, Identity, Refusal, Reply, Request, Unwanted
from eventsources.metrics import Outcome, SourceMetrics
from eventsources.sink import Sieve, Sink, SinkFull

MOST_BUFFERED = 64 << 20
BODY_SECONDS = 30.0
_RETRY_SECONDS = b"1"
_TEXT = b"text/plain; charset=utf-8"

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

log = logging.getLogger("eventbus.source")


class Route(msgspec.Struct, frozen=True):
    """An endpoint, and whose events it makes."""

    endpoint: Endpoint
    identity: Identity
    sieve: Sieve
    most_bytes: int


class Gone(Exception):
    """The client has hung up: there is nobody to answer."""


class Receiver:
    """An ASGI application: all endpoints of one port, by their path."""

    def __init__(
        self,
        routes: Mapping[str, Route],
        sink: Sink,
        metrics: SourceMetrics,
        *,
        most_buffered: int = MOST_BUFFERED,
        body_seconds: float = BODY_SECONDS,
    ) -> None:
        self._routes = routes
        self._sink = sink
        self._metrics = metrics
        self._body_seconds = body_seconds
        self._room = _Room(most_buffered)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        route = self._routes.get(scope["path"])
        if route is None:
            await _explain(send, 404, "no event source listens to this path")
            return
        headers = [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in scope["headers"]]
        try:
            if scope["method"] not in route.endpoint.methods:
                await self._other_method(route, scope["method"], headers, send)
                return
            buffer = await self._body(route, headers, receive)
            try:
                query = scope["query_string"].decode("latin-1")
                request = Request(scope["method"], scope["path"], query, headers, buffer.content())
                await self._take(route, route.endpoint.events(route.identity, request))
            finally:
                buffer.free()
        except Gone:
            return
        except Refusal as refusal:
            self._metrics.refused(route.identity, refusal.status)
            log.debug("%s: %d %s", route.identity, refusal.status, refusal.reason)
            await _explain(send, refusal.status, refusal.reason)
        except Reply as reply:
            await _answer(send, 200, reply.text)
        except Unwanted:
            self._metrics.count(route.identity, Outcome.FILTERED)
            await _answer(send, route.endpoint.accepted)
        else:
            await _answer(send, route.endpoint.accepted)

    async def _other_method(self, route: Route, method: str, headers: Sequence[tuple[str, str]], send: Send) -> None:
        allowed = ", ".join(sorted({*route.endpoint.methods, "OPTIONS"}))
        extra = {b"allow": allowed.encode()}
        if method != "OPTIONS":
            self._metrics.refused(route.identity, 405)
            await _explain(send, 405, f"use {allowed}", extra)
            return
        # CloudEvents' protection against abuse: whoever is asked whether they want these events says so.
        origin = next((value for name, value in headers if name == "webhook-request-origin"), None)
        if origin is not None:
            extra |= {b"webhook-allowed-origin": origin.encode("latin-1"), b"webhook-allowed-rate": b"*"}
        await _answer(send, 200, "", extra)

    async def _body(self, route: Route, headers: Sequence[tuple[str, str]], receive: Receive) -> _Buffer:
        """All of it, buffered until it is freed. Raises `Refusal`, or `Gone`; then nothing of it is."""
        declared = dict(headers)
        if declared.get("content-encoding", "identity").lower() != "identity":
            raise Refusal(415, "compressed bodies are not supported; send it as it is")
        length = declared.get("content-length", "0")
        if length.isdecimal() and int(length) > route.most_bytes:
            raise _too_large(route)
        buffer = _Buffer(self._room, route)
        try:
            async with asyncio.timeout(self._body_seconds):
                while await buffer.fill(receive):
                    pass
        except TimeoutError:
            buffer.free()
            raise Refusal(408, f"the body did not arrive within {self._body_seconds:g} s") from None
        except BaseException:
            buffer.free()
            raise
        return buffer

    async def _take(self, route: Route, events: Sequence[Event]) -> None:
        """Wait until the brokers have them all. Raises `Refusal`."""
        loop = asyncio.get_running_loop()
        fates = [_Fate(loop) for _ in events]
        for event, fate in zip(events, fates, strict=True):
            try:
                self._sink.offer(route.identity, route.sieve, event, fate.settle)
            except SinkFull:
                raise Refusal(429, "more events are coming in than the brokers take") from None
            except InvalidEvent as error:
                raise Refusal(400, str(error)) from None
            except UnproducibleError as error:
                raise Refusal(413, str(error)) from None
        failures = [
            failure for failure in await asyncio.gather(*(fate.future for fate in fates)) if failure is not None
        ]
        for failure in failures:
            if isinstance(failure, UnproducibleError):
                raise Refusal(413, str(failure))
        if failures:
            log.warning("%s: an event could not be written: %s", route.identity, failures[0])
            raise Refusal(503, "the event could not be written; send it again")


class _Room:
    """For the bodies of all requests together."""

    def __init__(self, size: int) -> None:
        self.left = size


class _Buffer:
    """The body of one request."""

    def __init__(self, room: _Room, route: Route) -> None:
        self._room = room
        self._route = route
        self._chunks: list[bytes] = []
        self._size = 0

    async def fill(self, receive: Receive) -> bool:
        """Whether there is more to come. Raises `Refusal`, or `Gone`."""
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Gone
        chunk: bytes = message.get("body", b"")
        if self._size + len(chunk) > self._route.most_bytes:
            raise _too_large(self._route)
        if len(chunk) > self._room.left:
            raise Refusal(429, "too many requests are coming in at the same time")
        self._room.left -= len(chunk)
        self._size += len(chunk)
        self._chunks.append(chunk)
        return bool(message.get("more_body", False))

    def content(self) -> bytes:
        return b"".join(self._chunks)

    def free(self) -> None:
        self._room.left += self._size
        self._size = 0
        self._chunks.clear()


class _Fate:
    """Of one event; told by another thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.future: asyncio.Future[LogError | None] = loop.create_future()

    def settle(self, error: LogError | None) -> None:
        with suppress(RuntimeError):  # the server was stopped before the brokers answered
            self._loop.call_soon_threadsafe(self._tell, error)

    def _tell(self, error: LogError | None) -> None:
        if not self.future.done():  # nobody may be waiting any more
            self.future.set_result(error)


def _too_large(route: Route) -> Refusal:
    return Refusal(413, f"the body is larger than {route.most_bytes:,} bytes")


async def _explain(send: Send, status: int, reason: str, extra: Mapping[bytes, bytes] | None = None) -> None:
    await _answer(send, status, f"{reason}\n", extra)


async def _answer(send: Send, status: int, text: str = "", extra: Mapping[bytes, bytes] | None = None) -> None:
    body = text.encode("utf-8", "replace")
    headers = {b"content-length": str(len(body)).encode(), **(extra or {})}
    if body:
        headers[b"content-type"] = _TEXT
    if status in (429, 503):
        headers[b"retry-after"] = _RETRY_SECONDS
    if status in (408, 413, 429):
        headers[b"connection"] = b"close"  # what is left of the body is not read
    await send({"type": "http.response.start", "status": status, "headers": list(headers.items())})
    await send({"type": "http.response.body", "body": body})
