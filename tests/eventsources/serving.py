"""An EventSource that runs, somebody to talk to it, and what it has put on the bus."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event as Flag
from typing import Any

import urllib3

from eventbus import Bus, Event
from eventbus.errors import LogError, RetriableError
from eventbus.ports import Output, Position
from eventsources.runner import SourceRunner
from eventsources.spec import EventSourceManifest
from eventsources.testing.harness import Alone, events_on, letters_on, manifest, metric, through_journal

__all__ = [
    "Alone",
    "Shop",
    "Stuck",
    "events_on",
    "letters_on",
    "manifest",
    "metric",
    "serving",
    "shop",
    "through_journal",
]

_POOL = urllib3.PoolManager(retries=False, maxsize=4)


class Stuck:
    """A publisher whose answers are a test's to give."""

    def __init__(self, *, full: bool = False) -> None:
        self.full = full
        self.waiting: list[Callable[[LogError | None, Position | None], None]] = []

    def send(self, output: Output, done: Callable[[LogError | None, Position | None], None]) -> None:
        if self.full:
            raise RetriableError("the queue of unsent records is full")
        self.waiting.append(done)

    def serve(self, timeout: float) -> None:
        Flag().wait(timeout)

    def flush(self, timeout: float) -> int:
        return len(self.waiting)

    def close(self) -> None:
        """Nothing is held here."""


class Shop:
    """An endpoint that runs, and the way to it."""

    def __init__(self, bus: Bus, runner: SourceRunner) -> None:
        self.bus = bus
        self.runner = runner
        self.url = f"http://127.0.0.1:{runner.ports[0]}"

    def send(
        self, body: bytes | str = b"{}", path: str = "/orders", method: str = "POST", **headers: str
    ) -> urllib3.BaseHTTPResponse:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return _POOL.request(method, self.url + path, body=body, headers=named, timeout=10)

    def events(self) -> list[Event]:
        return events_on(self.bus)


@contextmanager
def shop(bus: Bus, **spec: Any) -> Iterator[Shop]:
    """Its only event is `orders`."""
    with serving(bus, manifest("webhook", orders={"endpoint": "/orders", "port": 0, **spec})) as made:
        yield made


@contextmanager
def serving(bus: Bus, made: EventSourceManifest) -> Iterator[Shop]:
    runner = SourceRunner(made, bus, lambda _: Alone(), drain_seconds=2)
    runner.start()
    try:
        yield Shop(bus, runner)
    finally:
        runner.stop()
