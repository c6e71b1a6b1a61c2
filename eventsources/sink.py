"""Where all sources of a process put their events: filtered, keyed, counted, and acknowledged by the brokers.

What is on its way is bounded, in events and in bytes. Beyond that nobody gets in: an HTTP server answers 429, and
whoever fetches waits. So it is the outside that has to wait, and not memory that has to grow.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from threading import Condition, Thread
from types import TracebackType
from typing import Self, TypeAlias

import msgspec

from eventbus.bus import Bus
from eventbus.errors import EventBusError, LogError, RetriableError, UnproducibleError
from eventbus.events import Event
from eventbus.logfields import inheriting
from eventbus.ports import Output, Position
from eventsources.base import Identity, SourceSpec
from eventsources.metrics import Outcome, SourceMetrics
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
        if spec.filter is not None and spec.filter.expression:
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
        """Raises `SinkFull`, or `EventBusError`, such as `InvalidEvent`; then `done` is never called."""
        wanted = sieve.keyed(event)
        if wanted is None:
            self._metrics.count(identity, Outcome.FILTERED)
            done(None)
            return

        def told(error: LogError | None) -> None:
            self._metrics.count(identity, Outcome.PUBLISHED if error is None else Outcome.FAILED)
            done(error)

        self._put(self._bus.output(wanted), told)

    def deliver(self, outputs: Sequence[Output]) -> list[LogError | None]:
        """Wait until it is known what became of each of them. Raises `EventBusError`."""
        fates = _Fates(len(outputs))
        for index, output in enumerate(outputs):
            self._insist(output, partial(fates.settle, index))
        return fates.wait()

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

    def _insist(self, output: Output, done: Done) -> None:
        while True:
            try:
                self._put(output, done)
            except SinkFull:
                with self._changed:
                    self._changed.wait(_SERVE_SECONDS)
            except UnproducibleError as error:
                done(error)
                return
            else:
                return

    def _put(self, output: Output, done: Done) -> None:
        """Raises `SinkFull`, or `EventBusError`; then `done` is never called."""
        size = output.size()
        self._enter(size)

        def told(error: LogError | None, _: Position | None) -> None:
            self._leave(size)
            done(error)

        try:
            self._publisher.send(output, told)
        except RetriableError:
            self._leave(size)
            raise SinkFull from None
        except EventBusError:
            self._leave(size)
            raise

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
    """What becomes of several records."""

    def __init__(self, count: int) -> None:
        self._errors: list[LogError | None] = [None] * count
        self._open = count
        self._changed = Condition()

    def settle(self, index: int, error: LogError | None) -> None:
        with self._changed:
            self._errors[index] = error
            self._open -= 1
            self._changed.notify_all()

    def wait(self) -> list[LogError | None]:
        with self._changed:
            while self._open:
                self._changed.wait()
            return self._errors
