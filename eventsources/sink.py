"""Where all sources of a process put their events: filtered, keyed, counted, and acknowledged by the brokers.

What is on its way is bounded, in events and in bytes. Beyond that nobody gets in: an HTTP server answers 429, and
whoever fetches waits. So it is the outside that has to wait, and not memory that has to grow.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from threading import Condition, Thread
from types import TracebackType
from typing import Self, TypeAlias

import msgspec

from eventbus.bus import Bus
from eventbus.errors import EventBusError, InvalidEvent, LogError, RetriableError
from eventbus.events import Event
from eventbus.logfields import inheriting
from eventbus.ports import Output, Position
from eventsources.base import Identity, SourceError, SourceSpec
from eventsources.metrics import SourceMetrics
from sensors.expressions import parse
from sensors.filters.candidate import Candidate, Check
from sensors.filters.expr import check_of
from sensors.selectors import Select, compile_selector

MOST_EVENTS = 50_000
MOST_BYTES = 64 << 20
_SERVE_SECONDS = 0.1

Done: TypeAlias = Callable[[LogError | None], None]
"""Called once, from another thread: None when all in-sync replicas have the event."""

log = logging.getLogger("eventbus.source")


class SinkFull(Exception):
    """So much is on its way to the brokers that nothing more is taken for now."""


class Sieve(msgspec.Struct, frozen=True):
    """What one source's spec says about its events."""

    check: Check | None = None
    select: Select | None = None

    @classmethod
    def of(cls, spec: SourceSpec) -> Sieve:
        check = None
        if spec.filter is not None:
            expression = parse(spec.filter.expression, reaching=True)
            check = check_of(expression, {name: name for name in expression.names})
        return cls(check, None if spec.partitionKey is None else compile_selector(spec.partitionKey))

    def keyed(self, event: Event) -> Event | None:
        """The event as it is to be written; None where it is not wanted."""
        if self.check is None and self.select is None:
            return event
        candidate = Candidate(event, 0)
        if self.check is not None and self.check(candidate) is not None:
            return None
        key = None if self.select is None else self.select(candidate)
        return event if key is None else Event({**event.attributes, "partitionkey": key}, event.data)


class Sink:
    """One per process and bus. Thread-safe."""

    def __init__(
        self, bus: Bus, metrics: SourceMetrics, *, most_events: int = MOST_EVENTS, most_bytes: int = MOST_BYTES
    ) -> None:
        bus.ensure()
        self._bus = bus
        self._metrics = metrics
        self._publisher = bus.cluster.publisher()
        self._most_events, self._most_bytes = most_events, most_bytes
        self._events = self._bytes = 0
        self._changed = Condition()
        self._closed = False
        self._thread = Thread(target=inheriting(self._serve), name="eventbus-sink", daemon=True)
        self._thread.start()

    def offer(self, identity: Identity, sieve: Sieve, event: Event, done: Done) -> None:
        """Raises `SinkFull`, or `InvalidEvent`; then `done` is never called."""
        wanted = sieve.keyed(event)
        if wanted is None:
            self._metrics.count(identity, "filtered")
            done(None)
            return
        output = self._bus.output(wanted)
        size = output.size()
        self._enter(size)

        def told(error: LogError | None, _: Position | None) -> None:
            self._leave(size)
            self._metrics.count(identity, "published" if error is None else "failed")
            done(error)

        try:
            self._send(output, told)
        except (SinkFull, EventBusError):
            self._leave(size)
            raise

    def deliver(self, identity: Identity, sieve: Sieve, events: Sequence[Event]) -> None:
        """Wait until all of them are acknowledged. Raises `SourceError` where one of them is not."""
        fates = _Fates()
        for event in events:
            fates.expect()
            try:
                self._insist(identity, sieve, event, fates.settle)
            except InvalidEvent as error:
                raise SourceError(f"an event that CloudEvents does not allow: {error}") from None
            except EventBusError as error:
                raise SourceError(str(error)) from None
        failure = fates.wait()
        if failure is not None:
            raise SourceError(str(failure))

    def close(self) -> None:
        """Wait for what is on its way, as long as the client itself tries."""
        with self._changed:
            while self._events:
                self._changed.wait()
            self._closed = True
        self._thread.join()
        self._publisher.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _insist(self, identity: Identity, sieve: Sieve, event: Event, done: Done) -> None:
        while True:
            try:
                self.offer(identity, sieve, event, done)
            except SinkFull:
                with self._changed:
                    self._changed.wait(_SERVE_SECONDS)
            else:
                return

    def _send(self, output: Output, told: Callable[[LogError | None, Position | None], None]) -> None:
        try:
            self._publisher.send(output, told)
        except RetriableError:
            raise SinkFull from None

    def _enter(self, size: int) -> None:
        with self._changed:
            full = self._events >= self._most_events or self._bytes + size > self._most_bytes
            if full and self._events:  # a single one that is larger than the limit is the log's to refuse
                raise SinkFull
            self._events += 1
            self._bytes += size

    def _leave(self, size: int) -> None:
        with self._changed:
            self._events -= 1
            self._bytes -= size
            self._changed.notify_all()

    def _serve(self) -> None:
        while not self._closed:
            self._publisher.serve(_SERVE_SECONDS)


class _Fates:
    """What becomes of several events."""

    def __init__(self) -> None:
        self._open = 0
        self._error: LogError | None = None
        self._changed = Condition()

    def expect(self) -> None:
        with self._changed:
            self._open += 1

    def settle(self, error: LogError | None) -> None:
        with self._changed:
            self._open -= 1
            self._error = self._error or error
            self._changed.notify_all()

    def wait(self) -> LogError | None:
        with self._changed:
            while self._open:
                self._changed.wait()
            return self._error
