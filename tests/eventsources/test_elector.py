"""The threads around the rules of a lease, with a store in memory that can fail, hang and come back."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue

import pytest

from eventbus.clock import ManualClock
from eventsources.election.elector import Elector, WakefulClock
from eventsources.election.lease import Create, Get, Replace, Request, Timings
from eventsources.election.ports import Answer, Conflict, Election, Gone, Record, Seen, Unreachable
from tests.eventsources.lease_simulation import Server

QUICK = Timings(lease=1, renew_deadline=0.5, retry=0.05)
STEADY = Timings(lease=600, renew_deadline=400, retry=0.05)
"""For tests in which nothing must run out by itself, on however slow a machine."""
PATIENCE = 30
NEVER = threading.Event()

MakeElector = Callable[..., Elector]


class SharedRecord:
    """What all stores of a test look at."""

    def __init__(self) -> None:
        self.server = Server()
        self.lock = threading.Lock()

    def record(self) -> Record:
        with self.lock:
            assert isinstance(self.server.state, Seen)
            return self.server.state.record


class MemoryStore:
    name = "shop/eventsource-calendar"

    def __init__(self, shared: SharedRecord) -> None:
        self.failure: Exception | None = None
        self.down = ""
        self.open = threading.Event()
        """Requests hang while it is not set."""
        self.open.set()
        self.during_request: Callable[[], None] = lambda: None
        self.closed = False
        self._shared = shared
        self._requests: SimpleQueue[Request] = SimpleQueue()

    def get(self, timeout: float) -> Seen | Gone | Unreachable:
        answer = self._ask(Get())
        assert not isinstance(answer, Conflict)
        return answer

    def create(self, record: Record, timeout: float) -> Seen | Conflict | Unreachable:
        answer = self._ask(Create(record))
        assert not isinstance(answer, Gone)
        return answer

    def replace(self, record: Record, version: str, timeout: float) -> Seen | Gone | Conflict | Unreachable:
        return self._ask(Replace(record, version))

    def close(self) -> None:
        self.closed = True

    def wait_for_requests(self, number: int) -> None:
        """Whatever comes of each of them has been done when the next one is made."""
        while not self._requests.empty():
            self._requests.get()
        for _ in range(number):
            self._requests.get(timeout=PATIENCE)

    def _ask(self, request: Request) -> Answer:
        self._requests.put(request)
        self.open.wait()
        self.during_request()
        if self.failure is not None:
            raise self.failure
        with self._shared.lock:
            return Unreachable(self.down) if self.down else self._shared.server.apply(request)


@pytest.fixture
def shared() -> SharedRecord:
    return SharedRecord()


@pytest.fixture
def store(shared: SharedRecord) -> MemoryStore:
    return MemoryStore(shared)


@pytest.fixture
def elector_of() -> Iterator[MakeElector]:
    """Makes electors, and closes them after the test."""
    made: list[tuple[Elector, MemoryStore]] = []

    def make(store: MemoryStore, timings: Timings = STEADY, **options: object) -> Elector:
        elector = Elector(store, timings, **options)  # type: ignore[arg-type]
        made.append((elector, store))
        return elector

    yield make
    for elector, store in made:
        store.open.set()
        elector.close()


def test_one_leads_and_hands_over_when_it_leaves(shared: SharedRecord, elector_of: MakeElector) -> None:
    first: Election = elector_of(MemoryStore(shared))
    assert first.wait_until_leading(NEVER) == 1
    assert (first.leading, first.term) == (True, 1)
    second = elector_of(MemoryStore(shared))
    assert not second.leading
    first.close()
    assert (first.leading, first.term) == (False, None)
    assert second.wait_until_leading(NEVER) == 2
    assert shared.record().holder == second.identity


def test_leaving_frees_the_lease_and_closes_the_store(
    shared: SharedRecord, store: MemoryStore, elector_of: MakeElector
) -> None:
    elector = elector_of(store)
    elector.wait_until_leading(NEVER)
    elector.close()
    assert (shared.record().holder, store.closed) == ("", True)
    assert elector.wait_until_leading(NEVER) is None


def test_who_waits_can_be_stopped(shared: SharedRecord, elector_of: MakeElector) -> None:
    elector_of(MemoryStore(shared)).wait_until_leading(NEVER)
    stop = threading.Event()
    threading.Timer(0.05, stop.set).start()
    assert elector_of(MemoryStore(shared)).wait_until_leading(stop) is None


def test_who_slept_knows_at_once_that_it_no_longer_leads(store: MemoryStore, elector_of: MakeElector) -> None:
    """No thread has run since then, and none needs to."""
    clock = ManualClock()
    elector = elector_of(store, clock=clock)
    elector.wait_until_leading(NEVER)
    store.open.clear()
    clock.advance(399)
    assert elector.leading
    clock.advance(600)
    assert (elector.leading, elector.term) == (False, None)


def test_the_time_that_a_request_takes_is_part_of_the_term(store: MemoryStore, elector_of: MakeElector) -> None:
    """Others may have seen the record since its very beginning."""
    clock = ManualClock()
    store.during_request = lambda: clock.advance(150)
    elector = elector_of(store, Timings(lease=600, renew_deadline=400, retry=300), clock=clock)
    elector.wait_until_leading(NEVER)
    clock.advance(400 - 150)
    assert not elector.leading


def test_every_elector_is_somebody_else(shared: SharedRecord, elector_of: MakeElector) -> None:
    assert len({elector_of(MemoryStore(shared)).identity for _ in range(3)}) == 3


def test_a_loss_is_told_while_a_request_hangs(store: MemoryStore, elector_of: MakeElector) -> None:
    lost: SimpleQueue[int] = SimpleQueue()
    elector = elector_of(store, QUICK, on_lost=lost.put)
    term = elector.wait_until_leading(NEVER)
    store.open.clear()
    assert lost.get(timeout=PATIENCE) == term
    assert not elector.leading


def test_after_an_outage_a_new_term_begins_when_the_old_one_has_been_told(
    store: MemoryStore, elector_of: MakeElector, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "eventbus.election")
    clock = ManualClock()
    lost: SimpleQueue[int] = SimpleQueue()
    elector = elector_of(store, clock=clock, on_lost=lost.put)
    assert elector.wait_until_leading(NEVER) == 1
    store.down = "no route to host"
    store.wait_for_requests(2)
    clock.advance(400)
    assert lost.get(timeout=PATIENCE) == 1
    store.down = ""
    assert elector.wait_until_leading(NEVER) == 2
    name, who = store.name, elector.identity
    assert caplog.messages == [
        f"{name}: led by {who} (this process) in term 1",
        f"{name}: the lease cannot be reached: no route to host",
        f"{name}: term 1 of {who} is lost: not renewed for 400 s, no route to host",
        f"{name}: led by {who} (this process) in term 2",
    ]


def test_others_say_by_whom_they_are_led(
    shared: SharedRecord, store: MemoryStore, elector_of: MakeElector, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "eventbus.election")
    leader = elector_of(MemoryStore(shared))
    leader.wait_until_leading(NEVER)
    elector_of(store)
    store.wait_for_requests(2)
    leader.close()
    assert caplog.messages[1:3] == [
        f"{store.name}: led by {leader.identity}",
        f"{store.name}: term 1 given up by {leader.identity}",
    ]


def test_a_fault_of_the_store_reaches_who_waits(store: MemoryStore, elector_of: MakeElector) -> None:
    store.failure = RuntimeError("a bug")
    with pytest.raises(RuntimeError, match="a bug"):
        elector_of(store).wait_until_leading(NEVER)


def test_the_clock_counts_while_the_machine_sleeps_and_never_goes_back() -> None:
    clock = WakefulClock()
    assert clock.monotonic() <= clock.monotonic()
