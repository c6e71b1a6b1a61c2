"""Which pod is deleted when. Every kind has its own dice, so the seed decides whatever the others do.

Time is told by the events that flow, which come at a rate: where a machine is too slow for all that, deletions and
events slow down together. Otherwise it would do nothing any more but start pods, and no event would meet them.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TypeAlias

import msgspec
from kubernetes.client import ApiException

from e2e.chaos.traffic import Traffic
from e2e.podchaos.pods import Pod, Pods
from e2e.podchaos.resources import CLOCK, CONTROLLER, RECEIVER, SENSOR, Resources
from e2e.podchaos.senders import SHARE, Senders

# Seconds between two deletions of a kind, as long as events keep up.
_BETWEEN_PODS = 3.0, 8.0
_BETWEEN_RECEIVERS = 12.0, 25.0
_BETWEEN_LEADERS = 12.0, 25.0
_BETWEEN_CONTROLLERS = 25.0, 50.0
_LOOK_SECONDS = 0.2
_KILLED = 0.5
"""How many of those that are deleted are killed, too."""
_Choice: TypeAlias = Callable[[str, random.Random], Awaitable[Pod | None]]


class Options(msgspec.Struct, frozen=True):
    """The dimensions of a run."""

    seed: int
    events: int = 20_000
    deletions: int = 60
    """Of pods of the sensor. It goes on until there were so many, and so many events were published."""
    replicas: int = 3
    """And partitions."""
    dependencies: int = 3
    rate: float = 60.0


class Deletions:
    """Of the pods of sensor, event sources and controller, all at a time, while some events are sent to pods."""

    def __init__(self, options: Options, pods: Pods, resources: Resources, senders: Senders) -> None:
        self._options = options
        self._pods = pods
        self._resources = resources
        self._senders = senders

    async def rage(self, traffic: Traffic) -> None:
        self._senders.start(lambda: SHARE * traffic.published)
        kinds = [
            asyncio.create_task(self._again_and_again(traffic, owner, choose, between))
            for owner, choose, between in (
                (SENSOR, self._any, _BETWEEN_PODS),
                (RECEIVER, self._any, _BETWEEN_RECEIVERS),
                (CLOCK, self._leader, _BETWEEN_LEADERS),
                (CONTROLLER, self._leader_or_any, _BETWEEN_CONTROLLERS),
            )
        ]
        while not self._enough(traffic):
            for kind in kinds:
                if kind.done():
                    kind.result()
            await asyncio.sleep(_LOOK_SECONDS)
        for kind in kinds:
            kind.cancel()
        await asyncio.gather(*kinds, return_exceptions=True)
        await asyncio.to_thread(self._senders.stop)
        await self._end_sources()

    def _enough(self, traffic: Traffic) -> bool:
        return traffic.published >= self._options.events and self._pods.deletions() >= self._options.deletions

    async def _again_and_again(
        self, traffic: Traffic, owner: str, choose: _Choice, between: tuple[float, float]
    ) -> None:
        dice = random.Random(f"{self._options.seed} {owner}")
        due = 0.0
        while True:
            due += dice.uniform(*between)
            while traffic.published < due * self._options.rate:
                await asyncio.sleep(_LOOK_SECONDS)
            pod = await choose(owner, dice)
            if pod is not None:
                await asyncio.to_thread(partial(self._pods.delete, pod, killed=dice.random() < _KILLED))

    async def _any(self, owner: str, dice: random.Random) -> Pod:
        """Ready or not, be it the only one that is; but where nobody is ready, nobody could lose anything."""
        while not any(pod.ready_ms is not None for pod in self._pods.untouched(owner)):
            await asyncio.sleep(_LOOK_SECONDS)
        return dice.choice(self._pods.untouched(owner))

    async def _leader(self, owner: str, _dice: random.Random) -> Pod | None:
        """None while there is none: of the last one only the lease is left."""
        with suppress(ApiException):  # nobody has led yet
            leader = await asyncio.to_thread(self._resources.leader, owner)
            return next((pod for pod in self._pods.untouched(owner) if pod.name == leader), None)
        return None

    async def _leader_or_any(self, owner: str, dice: random.Random) -> Pod:
        return await self._leader(owner, dice) or await self._any(owner, dice)

    async def _end_sources(self) -> None:
        """What they tell must have come to rest before the sensor can."""
        for source in (CLOCK, RECEIVER):
            await asyncio.to_thread(self._resources.delete, "EventSource", source)
        for source in (CLOCK, RECEIVER):
            await self._pods.until_ended(source)
