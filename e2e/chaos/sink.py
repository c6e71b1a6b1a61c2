"""The target of all actions: a real HTTP server that keeps a ledger, and that can answer 500, hang or die."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from enum import StrEnum

from e2e.chaos.evidence import now_ms
from eventbus.broker.ports import HOST, free_ports
from sensors.audit.invocations import Call

CALLER = "X-Replica"
"""The header with the slot of the replica that calls. Whoever sends none is known by the address."""
HANG_SECONDS = 30.0
"""Longer than any action waits for its answer."""


class Mood(StrEnum):
    """How the sink treats requests."""

    OK = "ok"
    ERROR = "answers 500"
    HANG = "hangs"
    DEAD = "is dead"


class Sink:
    """Runs in the event loop of the storm."""

    def __init__(self, host: str = HOST) -> None:
        self.calls: list[Call] = []
        # Outside the range of outgoing connections, one of which could take it while the sink is dead.
        [self._port] = free_ports(1)
        self._host = host
        self.url = f"http://{host}:{self._port}"
        self._mood = Mood.OK
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.StreamWriter] = set()

    async def become(self, mood: Mood) -> None:
        self._mood = mood
        if mood is Mood.DEAD:
            self._die()
        elif self._server is None:
            self._server = await asyncio.start_server(self._serve, self._host, self._port)

    def is_quiet(self, seconds: float) -> bool:
        """Whether nobody has called for that long."""
        return not self.calls or now_ms() - self.calls[-1].ended > seconds * 1000

    async def close(self) -> None:
        """Returns when the last call is in the ledger."""
        self._die()
        while self._connections:
            await asyncio.sleep(0.01)

    def _die(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for connection in self._connections:
            connection.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                while True:
                    headers = await _request(reader)
                    action, began = headers["idempotency-key"], now_ms()
                    replica = headers.get(CALLER.lower()) or writer.get_extra_info("peername")[0]
                    succeeded = await self._answer(reader, writer)
                    self.calls.append(Call(action, replica, began, now_ms(), succeeded))
        finally:
            self._connections.discard(writer)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Returns whether what was asked for is done."""
        if self._mood in (Mood.HANG, Mood.DEAD):
            with suppress(TimeoutError, ConnectionError):
                await asyncio.wait_for(reader.read(1), HANG_SECONDS)  # until the caller gives up
            writer.close()
            return False
        succeeds = self._mood is Mood.OK
        status = b"200 OK" if succeeds else b"500 Internal Server Error"
        writer.write(b"HTTP/1.1 " + status + b"\r\nContent-Length: 0\r\n\r\n")
        return succeeds


async def _request(reader: asyncio.StreamReader) -> dict[str, str]:
    """The headers of a request that has arrived in full."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    _start, *lines = head.rstrip().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    await reader.readexactly(int(headers["content-length"]))
    return headers
