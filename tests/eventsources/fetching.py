"""A source that runs in a thread of its own, and what it has delivered; servers for it to listen to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Condition, Thread
from threading import Event as Flag

from eventbus import Bus, Event
from eventbus.clock import SystemClock
from eventsources.base import Context, Deliver, Identity, Source, Told
from eventsources.delivery import ThroughSink
from eventsources.drafts import Drafts
from eventsources.journal import Journal
from eventsources.metrics import SourceMetrics
from eventsources.runner import SourceRunner
from eventsources.sink import Sieve, Sink
from eventsources.sources import SOURCES
from eventsources.spec import EventSourceManifest
from tests.eventsources.serving import Alone, through_journal

PATIENCE = 60.0
SOON = 3.0
"""How long a source may take to stop."""
Hook = Callable[[Sequence[Event]], None]


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
                self.events += events
                self._changed.notify_all()
            if self._after is not None and events:
                self._after(events)

        return deliver


@contextmanager
def _way(bus: Bus, identity: Identity) -> Iterator[tuple[Deliver, bytes | None]]:
    """To the bus, as the runner would choose it; and what is remembered there."""
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
