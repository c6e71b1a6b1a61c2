"""Which fault comes when. Every kind has its own dice, so the seed decides whatever the others do."""

from __future__ import annotations

import asyncio
import random
import time
from itertools import cycle

from e2e.chaos.brokers import Brokers
from e2e.chaos.evidence import now_ms
from e2e.chaos.fleet import Fleet, Member
from e2e.chaos.points import POINTS
from e2e.chaos.sink import Mood, Sink

SESSION_SECONDS = 6.0
"""After which the group goes on without a silent member."""
SCALES = (1, 5, 2)
BAD_MOODS = (Mood.ERROR, Mood.HANG, Mood.DEAD)

# Seconds between two faults of a kind. In an hour that makes some 400 kills, 65 zombies and 30 dead brokers.
_BETWEEN_KILLS = 2.0, 8.0
_BETWEEN_KILLS_OF_FEW = 5.0, 14.0
"""While two replicas or fewer are wanted: a group that is never complete for a session's time gets nothing done."""
_BETWEEN_ZOMBIES = 20.0, 55.0
_BETWEEN_BROKERS = 60.0, 150.0
_BETWEEN_SCALES = 25.0, 50.0
_BETWEEN_MOODS = 15.0, 40.0
# Seconds that a fault lasts.
_SUSPENDED = SESSION_SECONDS + 1.0, 2 * SESSION_SECONDS
_BROKER_DEAD = 0.0, 8.0
_BAD_MOOD = 2.0, 6.0
_TAKEN_OVER = SESSION_SECONDS + 2.0, 2.5 * SESSION_SECONDS
_AT_ONCE = 0.6
"""How often the slot of a dead replica is filled again before a survivor can have taken over."""


class Rest:
    """For how long the slot of a dead replica stays empty."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(f"{seed} rest")

    async def __call__(self) -> None:
        if self._random.random() >= _AT_ONCE:
            await asyncio.sleep(self._random.uniform(*_TAKEN_OVER))


class Faults:
    """All kinds at a time, until the time is over; then everything that was broken is mended."""

    def __init__(self, seed: int, fleet: Fleet, sink: Sink, brokers: Brokers, replicas: int) -> None:
        self._seed = seed
        self._fleet = fleet
        self._sink = sink
        self._brokers = brokers
        self._replicas = replicas
        self._wanted = SCALES[0]
        self._end = 0.0

    async def rage(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds
        async with asyncio.TaskGroup() as kinds:
            for kind in (self._kills, self._zombies, self._broker_kills, self._scales, self._moods):
                kinds.create_task(kind(random.Random(f"{self._seed} {kind.__name__}")))
        await self._sink.become(Mood.OK)
        for member in self._fleet.running():
            member.disarm()
        self._fleet.scale(self._replicas)

    async def _kills(self, dice: random.Random) -> None:
        while await self._pause(dice.uniform(*(_BETWEEN_KILLS_OF_FEW if self._wanted <= 2 else _BETWEEN_KILLS))):
            point = dice.choice(POINTS) if dice.random() < 0.5 else None
            victim = self._any_replica(dice)
            if victim is None:
                continue
            if point is None:
                victim.kill()
            else:
                victim.arm(point)

    async def _zombies(self, dice: random.Random) -> None:
        while await self._pause(dice.uniform(*_BETWEEN_ZOMBIES)):
            victim = self._any_replica(dice)
            if victim is None:
                continue
            began = now_ms()
            victim.suspend()
            await asyncio.sleep(dice.uniform(*_SUSPENDED))
            if victim.alive:
                self._fleet.suspended(victim, began)
            victim.resume()

    async def _broker_kills(self, dice: random.Random) -> None:
        while await self._pause(dice.uniform(*_BETWEEN_BROKERS)):
            number = dice.choice(self._brokers.numbers)
            began = now_ms()
            await self._brokers.kill(number)
            self._fleet.faults["broker SIGKILL"] += 1
            await asyncio.sleep(dice.uniform(*_BROKER_DEAD))
            await self._brokers.bring_back(number)
            self._fleet.all_had(f"SIGKILL of broker {number}", began, now_ms(), self._replicas)

    async def _scales(self, dice: random.Random) -> None:
        for wanted in cycle(SCALES):
            self._wanted = min(wanted, self._replicas)
            self._fleet.scale(self._wanted)
            self._fleet.faults["scale"] += 1
            if not await self._pause(dice.uniform(*_BETWEEN_SCALES)):
                return

    async def _moods(self, dice: random.Random) -> None:
        while await self._pause(dice.uniform(*_BETWEEN_MOODS)):
            mood = dice.choice(BAD_MOODS)
            self._fleet.faults[f"sink {mood}"] += 1
            await self._sink.become(mood)
            await asyncio.sleep(dice.uniform(*_BAD_MOOD))
            await self._sink.become(Mood.OK)

    async def _pause(self, seconds: float) -> bool:
        """Returns whether the storm still goes on after it."""
        await asyncio.sleep(min(seconds, max(0.0, self._end - time.monotonic())))
        return time.monotonic() < self._end

    def _any_replica(self, dice: random.Random) -> Member | None:
        candidates = [member for member in self._fleet.running() if member.untouched]
        return dice.choice(candidates) if candidates else None
