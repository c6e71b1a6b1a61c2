"""Contends for a lease, in the background: renews it while we lead, and watches for the others when we do not.

One thread talks to the store. A second one only watches the time: a request may hang for longer than we lead, and who
must stop has to hear of it at once all the same.

    elector = Elector(KubernetesLeases("calendar", "shop"))
    while (term := elector.wait_until_leading(stop)) is not None:
        while elector.leading:
            ...  # one thing at a time
"""

from __future__ import annotations

import os
import random
import socket
import threading
import time
from collections.abc import Callable
from uuid import uuid4

from eventbus.clock import SystemClock
from eventbus.logfields import fields_logger, inheriting
from eventbus.ports import Clock
from eventsources.election.lease import JITTER, Create, Get, Lease, Replace, Request, Timings, Wait
from eventsources.election.ports import Answer, LeaseStore, Stop, Unreachable

log = fields_logger("eventbus.election")

_GLANCE_SECONDS = 0.1
"""How often who waits for leadership looks whether it should stop."""


class WakefulClock(SystemClock):
    """Its monotonic time goes on while the machine sleeps, as that of the others does."""

    def monotonic(self) -> float:
        return time.clock_gettime(_WAKEFUL)


_WAKEFUL = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # only Linux's CLOCK_MONOTONIC stands still meanwhile


class Elector:
    """An `Election` by lease. Contends from the moment it is made until `close`. Thread-safe.

    `on_lost` is told which term has ended, before another one can begin here. It is not called by `close`.
    """

    def __init__(
        self,
        store: LeaseStore,
        timings: Timings | None = None,
        *,
        on_lost: Callable[[int], None] = lambda _term: None,
        clock: Clock | None = None,
    ) -> None:
        self.identity = f"{os.environ.get('POD_NAME') or socket.gethostname()}_{uuid4()}"
        self._store = store
        self._timings = timings or Timings()
        self._on_lost = on_lost
        self._clock = clock or WakefulClock()
        self._lease = Lease(self.identity, self._timings)
        self._announced: int | None = None
        self._holder = ""
        self._trouble = ""
        self._closing = threading.Event()
        self._changed = threading.Condition()
        """Guards the lease, except for a look at its term, and what was announced about it."""
        self._failure: Exception | None = None
        self._threads = [
            threading.Thread(target=inheriting(target), name=f"election {store.name}", daemon=True)
            for target in (self._drive, self._watch)
        ]
        for thread in self._threads:
            thread.start()

    def wait_until_leading(self, stop: Stop) -> int | None:
        """The term that has begun, or that is under way; None when `stop` was set or the election was closed."""
        with self._changed:
            while not (stop.is_set() or self._closing.is_set()):
                if self._failure is not None:
                    raise self._failure
                if self._announced is not None and self._announced == self.term:
                    return self._announced
                self._changed.wait(_GLANCE_SECONDS)
        return None

    @property
    def leading(self) -> bool:
        """Whether nobody else can lead at this moment. Looks at the clock every time."""
        return self.term is not None

    @property
    def term(self) -> int | None:
        """The number of our term while we lead, greater than that of every leader before."""
        return None if self._closing.is_set() else self._lease.term(self._clock.monotonic())

    def close(self) -> None:
        """Lead no more, and tell the others, so that they need not wait. Waits for requests that are under way."""
        self._closing.set()
        with self._changed:
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()
        self._store.close()

    # --- the thread that talks to the store -------------------------------------------------------------------------

    def _drive(self) -> None:
        try:
            while not self._closing.is_set():
                self._take_turn()
            self._release()
        except Exception as error:  # a fault of ours: the lease runs out, and whoever waits for it gets this
            log.exception("the election of %s has failed", self._store.name)
            self._failure = error

    def _take_turn(self) -> None:
        request = self._next()
        if isinstance(request, Wait):
            jitter = random.uniform(0, JITTER) * self._timings.retry  # noqa: S311 - not for secrets
            self._closing.wait(max(0.0, request.until - self._clock.monotonic()) + jitter)
        else:
            self._ask(request, self._timings.renew_deadline / 2)
            self._report_holder()

    def _next(self) -> Request | Wait:
        with self._changed:
            now = self._clock.monotonic()
            self._announce(self._lease.term(now))
            return self._lease.next(now, self._clock.now_ms())

    def _ask(self, request: Request, timeout: float) -> None:
        sent = self._clock.monotonic()
        answer = self._answer(request, timeout)
        with self._changed:
            self._lease.answered(request, answer, sent, self._clock.monotonic())
        self._report_trouble(answer.reason if isinstance(answer, Unreachable) else "")

    def _answer(self, request: Request, timeout: float) -> Answer:
        match request:
            case Get():
                return self._store.get(timeout)
            case Create():
                return self._store.create(request.record, timeout)
            case Replace():
                return self._store.replace(request.record, request.version, timeout)

    def _release(self) -> None:
        self._lease.resign()
        while not isinstance(request := self._lease.next(self._clock.monotonic(), self._clock.now_ms()), Wait):
            self._ask(request, self._timings.retry)
        if self._announced is not None:
            log.info("%s: term %d given up by %s", self._store.name, self._announced, self.identity)

    # --- the thread that watches the time ---------------------------------------------------------------------------

    def _watch(self) -> None:
        with self._changed:
            while not self._closing.is_set():
                now = self._clock.monotonic()
                self._announce(self._lease.term(now))
                self._changed.wait(None if self._announced is None else self._lease.left(now))

    # --- news -------------------------------------------------------------------------------------------------------

    def _announce(self, term: int | None) -> None:
        before, self._announced = self._announced, term
        if term == before:
            return
        if before is not None:
            log.warning("%s: term %d of %s is lost: %s", self._store.name, before, self.identity, self._why_lost())
            self._on_lost(before)
        if term is not None:
            log.info("%s: led by %s (this process) in term %d", self._store.name, self.identity, term)
        self._changed.notify_all()

    def _why_lost(self) -> str:
        holder = self._lease.holder
        if holder != self.identity:
            return f"it is held by {holder}" if holder else "nobody holds it any more"
        late = f"not renewed for {self._timings.renew_deadline:g} s"
        return f"{late}, {self._trouble}" if self._trouble else late

    def _report_holder(self) -> None:
        holder = self._lease.holder
        if holder != self._holder and holder not in ("", self.identity):
            log.info("%s: led by %s", self._store.name, holder)
        self._holder = holder

    def _report_trouble(self, reason: str) -> None:
        """Once, and not with every retry."""
        if reason and reason != self._trouble:
            log.warning("%s: the lease cannot be reached: %s", self._store.name, reason)
        self._trouble = reason
