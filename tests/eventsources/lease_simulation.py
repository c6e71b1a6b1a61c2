"""Contenders for a lease on a machine park where everything goes wrong, in simulated time. A seed is a whole history.

Clocks differ by any amount and run up to 1 % too fast or too slow; the clocks on the wall may even stand still.
Processes pause for any time between any two steps, crash, leave and are replaced. Requests get lost, answers get lost,
and writes arrive long after their sender has given up. Other programs change the object, or delete it.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Generator, Iterator
from itertools import count

import msgspec

from eventsources.election.lease import DRIFT, JITTER, Create, Get, Lease, Replace, Request, Timings, Wait
from eventsources.election.ports import Answer, Conflict, Gone, Seen, Unreachable

Steps = Generator[float, None, None]
"""What a process does; it yields how long, in true time, until its next step."""
_LOST = Unreachable("simulated")


class Server:
    """As the API server does it: a write that changes nothing makes no new version."""

    def __init__(self) -> None:
        self.state: Seen | Gone = Gone()
        self._versions = count(1)

    def apply(self, request: Request) -> Answer:
        if isinstance(request, Get):
            return self.state
        if isinstance(request, Create):
            return self._write(request) if isinstance(self.state, Gone) else Conflict()
        if isinstance(self.state, Gone):
            return self.state
        if request.version != self.state.version:
            return Conflict()
        return self.state if request.record == self.state.record else self._write(request)

    def touch(self) -> None:
        """Somebody puts a label on the object: another version of the same record."""
        if isinstance(self.state, Seen):
            self.state = Seen(self.state.record, str(next(self._versions)))

    def _write(self, request: Create | Replace) -> Seen:
        self.state = Seen(request.record, str(next(self._versions)))
        return self.state


class Faults(msgspec.Struct):
    """The mixture of one seed: how often, at each opportunity."""

    pause: float
    lost_request: float
    lost_answer: float
    late_write: float
    slow: float
    crash: float
    leave: float
    touch: float
    last_words: float
    """That a refusal is all that is heard for a while: what is made of it cannot be mended by a second look."""

    @classmethod
    def drawn(cls, dice: random.Random) -> Faults:
        often, seldom, rarely, at_worst = (0.0, 0.02, 0.1, 0.3), (0.0, 0.02), (0.0, 0.003), (0.0, 0.5, 0.9)
        return cls(*map(dice.choice, (*[often] * 5, *[seldom] * 2, rarely, at_worst)))


class Contender:
    def __init__(self, world: World, number: int, timings: Timings) -> None:
        dice = world.dice
        self.identity = f"contender-{number}"
        self.lease = Lease(self.identity, timings)
        self.timings = timings
        self._world = world
        self._offset = dice.uniform(-1e6, 1e6)
        self._rate = 1 + dice.choice((-DRIFT, 0.0, DRIFT, dice.uniform(-DRIFT, DRIFT)))
        self._wall_offset = dice.uniform(-1e5, 1e5)
        self._wall_rate = dice.choice((0.0, 1.0, 1.0, -1.0))
        self.cut_off_until = 0.0

    def monotonic(self) -> float:
        return self._offset + self._world.time * self._rate

    def term(self) -> int | None:
        return self.lease.term(self.monotonic())

    def live(self) -> Steps:
        while not self._world.chance(self._world.faults.leave):
            yield from self._step()
            if self._world.chance(self._world.faults.crash):
                break
        else:
            self.lease.resign()
            while (yield from self._step()):
                pass
        self._world.replace(self)

    def _step(self) -> Generator[float, None, bool]:
        now = self.monotonic()
        yield self._pause()
        request = self.lease.next(now, self._wall_ms())
        if isinstance(request, Wait):
            jitter = self._world.dice.uniform(0, JITTER) * self.timings.retry
            yield max(0.0, request.until - self.monotonic() + jitter) / self._rate
            return False
        sent = self.monotonic()
        yield self._pause()
        answer = yield from self._ask(request)
        yield self._pause()
        now = self.monotonic()
        yield self._pause()
        self.lease.answered(request, answer, sent, now)
        return True

    def _ask(self, request: Request) -> Generator[float, None, Answer]:
        world, faults = self._world, self._world.faults
        timeout = self.timings.renew_deadline / 2
        if world.time < self.cut_off_until or world.chance(faults.lost_request):
            yield timeout
            return _LOST
        if world.chance(faults.late_write):
            world.schedule(world.trouble(world.length()), lambda: world.server.apply(request))
            yield timeout
            return _LOST
        yield self._transit()
        answer = world.server.apply(request)
        if world.chance(faults.lost_answer):
            yield timeout
            return _LOST
        yield self._transit()
        if isinstance(answer, Conflict) and world.chance(faults.last_words):
            self.cut_off_until = world.time + world.trouble(world.length())
        return answer

    def _transit(self) -> float:
        slow = self._world.chance(self._world.faults.slow)
        return self._world.dice.uniform(0, self.timings.renew_deadline / 4 if slow else 0.02)

    def _pause(self) -> float:
        world = self._world
        return world.trouble(world.length()) if world.chance(world.faults.pause) else 0.0

    def _wall_ms(self) -> int:
        return round((1_700_000_000 + self._wall_offset + self._world.time * self._wall_rate) * 1000)


class World:
    """Runs until its trouble is over, and long enough after that for somebody to lead again."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.time = 0.0
        self.server = Server()
        self.faults = Faults.drawn(self.dice)
        self.violations: list[str] = []
        self.terms: list[tuple[str, int]] = []
        self._count_survives = True
        """Unless the record is deleted before all have seen its last term."""
        self._deletes = self.dice.random() < 0.3
        if self._deletes:  # who starts after that has never seen the record, and may begin at once
            self.faults = msgspec.structs.replace(self.faults, crash=0.0, leave=0.0)
        self._timings = list(self._draw_timings())
        self._longest_lease = max(each.lease for each in self._timings)
        self._last_fault = 60.0 * self._longest_lease
        self._calm_from = self._last_fault
        self._numbers = count(1)
        self._order = count()
        self._queue: list[tuple[float, int, object]] = []
        self._leader: tuple[str, int] | None = None
        self.contenders: list[Contender] = []
        for _ in range(self.dice.randint(2, 5)):
            self._start()

    def run(self) -> World:
        self._run_until(self._last_fault)
        self._run_until(self._calm_from)
        self._run_until(self.time + 3 * self._longest_lease)
        settled = self._leader
        if settled is None:
            self.violations.append("nobody leads after the trouble is over")
        self._run_until(self.time + 5 * self._longest_lease)
        if self._leader != settled:
            self.violations.append(f"{settled} does not stay the leader though nothing happens")
        return self

    # --- for the contenders -----------------------------------------------------------------------------------------

    def chance(self, probability: float) -> bool:
        return self.time < self._last_fault and self.dice.random() < probability

    def length(self) -> float:
        """Of a pause or a delay: often about as long as something that matters."""
        timings = self.dice.choice(self._timings)
        scale = self.dice.choice((timings.retry, timings.renew_deadline, timings.lease, 5 * timings.lease))
        return scale * self.dice.choice((self.dice.random(), self.dice.uniform(0.9, 1.1)))

    def trouble(self, length: float) -> float:
        self._calm_from = max(self._calm_from, self.time + length)
        return length

    def replace(self, contender: Contender) -> None:
        self.contenders.remove(contender)
        self._start()

    def schedule(self, delay: float, action: object) -> None:
        heapq.heappush(self._queue, (self.time + delay, next(self._order), action))

    # --- events -----------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        contender = Contender(self, next(self._numbers), self.dice.choice(self._timings))
        self.contenders.append(contender)
        self.schedule(self.dice.uniform(0, contender.timings.retry), contender.live())

    def _run_until(self, end: float) -> None:
        while self._queue[0][0] <= end:
            self.time, _, action = heapq.heappop(self._queue)
            self._look()
            if isinstance(action, Generator):
                self._advance(action)
            elif callable(action):
                action()
            self._cut_somebody_off()
            self._delete_record()
            if self.chance(self.faults.touch):
                self.server.touch()
            self._look()
        self.time = end
        self._look()

    def _advance(self, steps: Steps) -> None:
        for delay in steps:
            self.schedule(delay, steps)
            return

    def _cut_somebody_off(self) -> None:
        if self.chance(0.003):
            until = self.time + self.trouble(self.length())
            for contender in self.dice.choice(([self.dice.choice(self.contenders)], self.contenders)):
                contender.cut_off_until = until

    def _delete_record(self) -> None:
        known = all(contender.lease.holder for contender in self.contenders)
        if self._deletes and known and isinstance(self.server.state, Seen) and self.chance(0.01):
            term = self.server.state.record.transitions
            self._count_survives = all(contender.lease._last_term >= term for contender in self.contenders)
            self._deletes = False
            self.server.state = Gone()

    # --- what must never happen -------------------------------------------------------------------------------------

    def _look(self) -> None:
        """A leadership begins with an event, so that two that overlap are seen together after an event."""
        leaders = [(each.identity, term) for each in self.contenders if (term := each.term()) is not None]
        if len(leaders) > 1:
            self.violations.append(f"{leaders} lead at the same time {self.time:.3f}")
        self._leader = leaders[0] if leaders else None
        if self._leader is not None and self._leader not in self.terms[-1:]:
            if self.terms and self._leader[1] <= self.terms[-1][1] and self._count_survives:
                self.violations.append(f"{self._leader} comes after {self.terms[-1]}")
            self.terms.append(self._leader)

    def _draw_timings(self) -> Iterator[Timings]:
        """Some as tight as is allowed; sometimes not the same for all, as during an upgrade."""
        for _ in range(self.dice.choice((1, 1, 2))):
            lease = self.dice.choice((3, 15, 30))
            longest = lease * (1 - DRIFT) / (1 + DRIFT) * 0.9999
            deadline = self.dice.choice((longest, lease * 2 / 3))
            yield Timings(lease, deadline, deadline * self.dice.choice((0.05, 0.2, 0.5)))
