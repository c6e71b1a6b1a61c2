"""An EventSource that runs, somebody to talk to it, and what it has put on the bus."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from threading import Event as Flag
from typing import Any

import urllib3

from eventbus import Bus, Event
from eventbus.cloudevents import from_kafka
from eventbus.errors import LogError, RetriableError
from eventbus.formats import DeadLetter, dead_letter
from eventbus.ports import Output, Position, Record
from eventbus.topics import ensure_reject_topic
from eventsources.base import Deliver, Identity
from eventsources.delivery import ThroughJournal
from eventsources.drafts import Drafts
from eventsources.election.ports import Stop
from eventsources.journal import Journal
from eventsources.runner import SourceRunner
from eventsources.sink import Sieve
from eventsources.spec import EVENT_SOURCES, EventSourceManifest

_POOL = urllib3.PoolManager(retries=False, maxsize=4)


class Alone:
    """An election with one candidate, who can be voted out."""

    def __init__(self) -> None:
        self.leading = True
        self.term: int | None = 1

    def wait_until_leading(self, stop: Stop) -> int | None:
        while not (self.leading or stop.is_set()):
            Flag().wait(0.01)
        return None if stop.is_set() else self.term

    def close(self) -> None:
        """Nobody waits for it."""


def through_journal(bus: Bus, identity: Identity, journal: Journal) -> Deliver:
    """As the runner of a source that runs once delivers."""
    return ThroughJournal(Drafts(bus, identity, Sieve()), lambda *_: None, journal, Alone())


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


def manifest(kind: str, name: str = "shop", **events: Mapping[str, Any]) -> EventSourceManifest:
    return EVENT_SOURCES.make(
        {
            "apiVersion": "eventbus.dev/v1alpha1",
            "kind": "EventSource",
            "metadata": {"name": name},
            "spec": {kind: events},
        }
    )


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


def events_on(bus: Bus) -> list[Event]:
    """In the order of each partition."""
    return [from_kafka(each.headers, each.value) for each in _records(bus, bus.name.event_topic, bus.ensure())]


def letters_on(bus: Bus) -> list[tuple[DeadLetter, bytes | None]]:
    """The dead letters of event sources, and their values."""
    ensure_reject_topic(bus.cluster, bus.name)
    return [(dead_letter(each), each.value) for each in _records(bus, bus.name.reject_topic, 1)]


def _records(bus: Bus, topic: str, partitions: int) -> list[Record]:
    reader = bus.cluster.reader()
    found = []
    try:
        for partition in range(partitions):
            start, end = reader.offsets(topic, partition)
            reader.open(topic, partition, start)
            while reader.position(topic, partition) < end:
                found += reader.read(500, 1.0)
    finally:
        reader.close()
    return found


def metric(runner: SourceRunner, name: str, **labels: str) -> float:
    return runner.metrics.registry.get_sample_value(name, labels) or 0.0
