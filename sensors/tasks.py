"""Tasks: action records on their way to be invoked, in lanes that keep their order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import Enum, auto
from itertools import islice
from math import inf
from typing import TYPE_CHECKING

import msgspec

from eventbus.formats import ActionFact
from eventbus.ports import Output, Record
from sensors.actionrecords import events_by_dependency
from sensors.actions.base import ActionCall
from sensors.dlqactions import with_failure
from sensors.ledger import Ledger
from sensors.retry import RetryPolicy

if TYPE_CHECKING:
    from sensors.pace import Pace

AT_MOST_ONCE, AT_LEAST_ONCE, EXACTLY_ONCE = "atMostOnce", "atLeastOnce", "exactlyOnce"
"""The modes, as invocation records name them."""


class RateLimit(msgspec.Struct, frozen=True):
    """So many attempts may begin in so many seconds, evenly spaced."""

    requests: int
    seconds: float


class Delivery(msgspec.Struct, frozen=True):
    """How a trigger wants its action to be invoked."""

    at_least_once: bool
    retry: RetryPolicy = RetryPolicy()
    exactly_once: bool = False
    """What the action writes is in the transaction that marks it as done: neither lost nor repeated."""
    limit: RateLimit | None = None

    @property
    def mode(self) -> str:
        if self.exactly_once:
            return EXACTLY_ONCE
        return AT_LEAST_ONCE if self.at_least_once else AT_MOST_ONCE

    @property
    def marked_first(self) -> bool:
        """Whether it is marked as done before it is invoked, so that nothing can invoke it again."""
        return not (self.at_least_once or self.exactly_once)


class State(Enum):
    QUEUED = auto()
    TAKING = auto()
    READY = auto()
    RUNNING = auto()
    WAITING = auto()


class Task(msgspec.Struct, eq=False):
    """One action on its way to be invoked."""

    record: Record
    fact: ActionFact
    lane: Lane
    state: State = State.QUEUED
    attempt: int = 0
    first_attempt: float = 0.0
    started_ms: int = 0

    def call(self, sensor: str) -> ActionCall:
        """What the action gets. Raises `FormatError` or `InvalidEvent` when the record is corrupt."""
        trace = self.fact.trace
        events = events_by_dependency(self.fact, self.record.value)
        return ActionCall(
            id=self.fact.id,
            sensor=sensor,
            trigger=self.fact.trigger,
            key=self.fact.key,
            events=with_failure(self.fact, {name: several[-1] for name, several in events.items()}),
            batches={name: tuple(events[name]) for name in self.fact.counted if name in events},
            attempt=self.attempt,
            traceparent=trace.parent if trace else None,
            tracestate=(trace.state or None) if trace else None,
        )


class Lane:
    """The tasks of one trigger and key, in order. The first `taken` of them are marked as taken."""

    def __init__(self, home: TaskPartition, key: bytes, delivery: Delivery, pace: Pace | None = None) -> None:
        self.home = home
        self.key = key
        self.place = (home.number, key)
        """The same for every assignment of the partition."""
        self.delivery = delivery
        self.pace = pace
        self.tasks: deque[Task] = deque()
        self.taken = 0

    def take_out(self, unwanted: Callable[[Task], bool]) -> list[Task]:
        """The unwanted tasks, of those that are neither begun nor taken."""
        head = self.tasks[0]
        kept = max(self.taken, 1) if self.taken or head.attempt else 0
        gone = [task for task in islice(self.tasks, kept, None) if unwanted(task)]
        if gone:
            removed = set(gone)
            self.tasks = deque(task for task in self.tasks if task not in removed)
        if self.tasks and self.tasks[0] is not head:
            self.tasks[0].state = head.state  # its turn has come, as that of the one before had
        return gone


class TaskPartition:
    """One assigned partition: a new object for every assignment, so that what belongs to an old one is recognised."""

    def __init__(self, number: int, ledger: Ledger) -> None:
        self.number = number
        self.ledger = ledger
        self.backlog: deque[Record] = deque()
        self.lanes: dict[bytes, Lane] = {}
        self.outputs: list[Output] = []
        self.changed = False
        self.closing = False
        """Nothing more is begun."""
        self.since = inf
        """Since when it is known to be ours, for rate limits."""
