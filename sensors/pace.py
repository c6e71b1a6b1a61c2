"""Rate limits: when the next attempt of a trigger may begin, so that all replicas together keep to the limit.

Theory of operation
-------------------
Replicas do not talk to each other. They share the limit by time: it is divided into *turns*, and turn number n belongs
to whoever owns partition n modulo the number of partitions of the action topic. Within its turns a replica may begin
attempts, each no earlier than one interval (unit / requestsPerUnit) after the one before; a turn is as long as an
interval, or as the fewest intervals that make 0.2 s. A replica that owns all partitions has all turns.

Nothing needs to be remembered or handed over. A partition that was just assigned counts from its next turn on, as the
turn that is under way may have been used by its former owner. So however often partitions change hands and whoever is
killed, no turn is used twice, and any time that is a whole number of intervals long sees at most one attempt more than
the limit: of two neighbouring turns with different owners, one may be used at its end and the other at its beginning.

Turns are counted by the wall clock, so the replicas' clocks should agree; spacing within a replica is not affected by
a clock that jumps. Everything here is told the time and tells when it wants to be asked again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from itertools import islice
from math import ceil

from sensors.tasks import Lane, RateLimit, Task, TaskPartition

TURN_SECONDS = 0.2
"""Shorter turns would be missed: a loop looks around every few milliseconds only."""
SOON_SECONDS = 1.0
"""At most once: what can begin within this time may be taken."""


class Pace:
    """One rate-limited trigger on one replica."""

    def __init__(self, limit: RateLimit, partitions: int) -> None:
        self._interval = limit.seconds / limit.requests
        self._turn = self._interval * max(1, ceil(TURN_SECONDS / self._interval))
        self._partitions = partitions
        self._not_before = 0.0
        self.lanes: deque[Lane] = deque()
        """Lanes whose heads could begin, were it not for the limit."""
        self.due: float | None = None
        """When the next attempt may begin here; None while no partition is owned."""
        self.unbegun = 0
        """How many tasks are taken and not begun."""
        self._may_take = 0

    def look(self, now: float, now_ms: int, homes: Mapping[int, TaskPartition]) -> None:
        """Find out when the next attempt may begin."""
        self.due = self._next(now, now_ms, homes)
        soon = self.due is not None and self.due - now <= SOON_SECONDS
        self._may_take = max(1, int(SOON_SECONDS / self._interval)) if soon else 0

    def allows(self, now: float) -> bool:
        return self.due is not None and self.due <= now

    def begin(self, task: Task, now: float, now_ms: int, homes: Mapping[int, TaskPartition]) -> None:
        """An attempt begins: when may the next one?"""
        self.unbegun -= task.attempt == 1 and task.lane.taken > 0
        self._not_before = now + self._interval
        self.look(now, now_ms, homes)

    def drop(self, lane: Lane) -> None:
        """Its partition is given up."""
        self.unbegun -= sum(task.attempt == 0 for task in islice(lane.tasks, lane.taken))
        if lane in self.lanes:
            self.lanes.remove(lane)

    def may_take(self) -> bool:
        """Whether one more task can be begun soon enough to be taken now."""
        return self.unbegun < self._may_take

    def wakeup(self, *, to_take: bool) -> float | None:
        """When to look again; `to_take`: whether anything waits for being taken."""
        if self.due is None:
            return None
        if self.lanes:
            return self.due
        return self.due - SOON_SECONDS if to_take and not self._may_take else None

    def _next(self, now: float, now_ms: int, homes: Mapping[int, TaskPartition]) -> float | None:
        earliest = max(now, self._not_before)
        wall = now_ms / 1000 + (earliest - now)
        current = int(wall // self._turn)
        for turn in range(current, current + self._partitions + 1):
            home = homes.get(turn % self._partitions)
            begins = earliest + turn * self._turn - wall
            if home is not None and begins > home.since:
                return max(earliest, begins)
        return None
