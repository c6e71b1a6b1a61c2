"""An event source that runs, alone or with its runner, and what it has put on the bus: for tests."""

# ruff: noqa: S101 - what is asserted here, tests assert

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Condition, Thread, get_ident
from threading import Event as Flag
from typing import Any

from eventbus import Bus, Event
from eventbus.clock import SystemClock
from eventbus.cloudevents import from_kafka
from eventbus.formats import DeadLetter, dead_letter
from eventbus.ports import Record
from eventbus.topics import ensure_reject_topic
from eventsources.base import Context, Deliver, Identity, Source, Told
from eventsources.delivery import ThroughJournal, ThroughSink
from eventsources.drafts import Drafts
from eventsources.election.ports import Stop
from eventsources.journal import Journal
from eventsources.metrics import SourceMetrics
from eventsources.runner import SourceRunner
from eventsources.sink import Sieve, Sink
from eventsources.sources import SOURCES
from eventsources.spec import EVENT_SOURCES, EventSourceManifest

PATIENCE = 60.0
SOON = 3.0
"""How long a source may take to stop."""
Hook = Callable[[Sequence[Event]], None]


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


class Killed(BaseException):
    """Nothing that comes after it is done, as in a process that is killed."""


def killed(_: Sequence[Event]) -> None:
    raise Killed


def until(condition: Callable[[], object], seconds: float = PATIENCE) -> None:
    clock = SystemClock()
    end = clock.monotonic() + seconds
    while not condition():
        assert clock.monotonic() < end, "it does not happen"
        Flag().wait(0.01)


class Fetcher:
    """Runs a source until it is stopped or fails."""

    def __init__(self, source: Source, bus: Bus, identity: Identity, before: Hook | None, after: Hook | None) -> None:
        self.events: list[Event] = []
        self.portions: list[int] = []
        """How much was told in each delivery, also where that was nothing but something to remember."""
        self.error: BaseException | None = None
        self._source, self._bus, self._identity = source, bus, identity
        self._before, self._after = before, after
        self._changed = Condition()
        self._stop = Flag()
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def wait_for(self, count: int) -> list[Event]:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.events) >= count or self.error, PATIENCE)
        assert self.error is None
        return self.events

    def failure(self) -> BaseException:
        """What has ended it."""
        self._thread.join(PATIENCE)
        assert self.error is not None
        return self.error

    def begin_to_stop(self) -> None:
        self._stop.set()

    def stop(self) -> None:
        self.begin_to_stop()
        self._thread.join(SOON)
        assert not self._thread.is_alive(), "it does not stop"

    def _run(self) -> None:
        try:
            with _way(self._bus, self._identity) as (write, remembered):
                self._source.run(Context(self._identity, SystemClock(), self._deliver(write), remembered), self._stop)
        except BaseException as error:
            self.error = error
        finally:
            with self._changed:
                self._changed.notify_all()

    def _deliver(self, write: Deliver) -> Deliver:
        def deliver(told: Sequence[Told], /, remember: bytes | None = None) -> None:
            events = [each for each in told if isinstance(each, Event)]
            if self._before is not None and events:
                self._before(events)
            write(told, remember)
            with self._changed:
                self.portions.append(len(told))
                self.events += events
                self._changed.notify_all()
            if self._after is not None and events:
                self._after(events)

        return deliver


@contextmanager
def _way(bus: Bus, identity: Identity) -> Iterator[tuple[Deliver, bytes | None]]:
    """To the bus, and what is remembered there. A kind that may run either way goes the way of those that run once."""
    if not SOURCES[identity.kind].once:
        with Sink(bus, SourceMetrics()) as sink:
            yield ThroughSink(Drafts(bus, identity, Sieve()), lambda *_: None, sink), None
        return
    journal = Journal(bus, identity)
    try:
        yield through_journal(bus, identity, journal), journal.remembered
    finally:
        journal.close()


@contextmanager
def fetching(
    source: Source, bus: Bus, identity: Identity, *, before: Hook | None = None, after: Hook | None = None
) -> Iterator[Fetcher]:
    """`before` and `after` are called around every delivery of events."""
    fetcher = Fetcher(source, bus, identity, before, after)
    try:
        yield fetcher
    finally:
        fetcher.stop()


@contextmanager
def running(manifest: EventSourceManifest, bus: Bus) -> Iterator[SourceRunner]:
    runner = SourceRunner(manifest, bus, lambda _: Alone(), drain_seconds=1).start()
    try:
        yield runner
    finally:
        runner.stop()


def manifest(kind: str, name: str = "shop", **events: Mapping[str, Any]) -> EventSourceManifest:
    return EVENT_SOURCES.make(
        {
            "apiVersion": "eventbus.dev/v1alpha1",
            "kind": "EventSource",
            "metadata": {"name": name},
            "spec": {kind: events},
        }
    )


def write_secret(folder: Path, value: str, key: str = "key") -> dict[str, str]:
    """Into a folder of secrets, all at once as Kubernetes does it; returns what a manifest says to refer to it."""
    (folder / "vault").mkdir(exist_ok=True)
    written = folder / f"{key}-{get_ident()}"
    written.write_text(value)
    written.replace(folder / "vault" / key)
    return {"name": "vault", "key": key}


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
