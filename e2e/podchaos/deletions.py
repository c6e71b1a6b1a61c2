"""Which pod is deleted when. Every kind has its own dice, so the seed decides whatever the others do."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

import msgspec
from kubernetes.client import ApiException

from e2e.chaos.traffic import Traffic
from e2e.podchaos.controller import ControllerProcess
from e2e.podchaos.pods import Pod, Pods
from e2e.podchaos.resources import CLOCK, Resources

# Seconds between two deletions of a kind.
_BETWEEN_PODS = 3.0, 8.0
_BETWEEN_LEADERS = 12.0, 25.0
_BETWEEN_CONTROLLERS = 25.0, 50.0
_LOOK_SECONDS = 0.2
_KILLED = 0.5
"""How many of those that are deleted are killed, too."""


class Options(msgspec.Struct, frozen=True):
    """The dimensions of a run."""

    seed: int
    events: int = 20_000
    deletions: int = 60
    """Of pods of the sensor. It goes on until there were so many, and so many events."""
    replicas: int = 3
    """And partitions."""
    dependencies: int = 3
    rate: float = 60.0


class Deletions:
    """Of the sensor's pods, the clock's leaders and the controller, all at a time."""

    def __init__(self, options: Options, pods: Pods, resources: Resources, controller: ControllerProcess) -> None:
        self._options = options
        self._pods = pods
        self._resources = resources
        self._controller = controller

    async def rage(self, traffic: Traffic) -> None:
        kinds = [
            asyncio.create_task(self._again_and_again(one, between))
            for one, between in (
                (self._sensor_pod, _BETWEEN_PODS),
                (self._leader, _BETWEEN_LEADERS),
                (self._kill_controller, _BETWEEN_CONTROLLERS),
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
        await self._end_clock()

    def _enough(self, traffic: Traffic) -> bool:
        return traffic.published >= self._options.events and self._pods.deletions() >= self._options.deletions

    async def _again_and_again(
        self, one: Callable[[random.Random], Awaitable[None]], between: tuple[float, float]
    ) -> None:
        dice = random.Random(f"{self._options.seed} {one.__name__}")
        while True:
            await asyncio.sleep(dice.uniform(*between))
            await one(dice)

    async def _sensor_pod(self, dice: random.Random) -> None:
        """Ready or not; but where nobody else is ready, nobody could lose anything."""
        while not (candidates := self._candidates()):
            await asyncio.sleep(_LOOK_SECONDS)
        await self._delete(dice.choice(candidates), dice)

    def _candidates(self) -> list[Pod]:
        ready = self._pods.running()
        there = [pod for pod in self._pods.known() if pod.of_sensor and pod.untouched]
        return [pod for pod in there if any(other is not pod for other in ready)]

    async def _leader(self, dice: random.Random) -> None:
        with suppress(ApiException):  # there has been no leader yet
            leader = await asyncio.to_thread(self._resources.leader)
            for pod in self._pods.clock():
                if pod.name == leader:
                    await self._delete(pod, dice)

    async def _delete(self, pod: Pod, dice: random.Random) -> None:
        await asyncio.to_thread(partial(self._pods.delete, pod, killed=dice.random() < _KILLED))

    async def _kill_controller(self, dice: random.Random) -> None:
        if not self._controller.alive:
            self._pods.unexplained.append("the controller has ended by itself")
        self._pods.faults["controller SIGKILL"] += 1
        await asyncio.to_thread(self._controller.kill_and_start_again)

    async def _end_clock(self) -> None:
        """What it tells must have come to rest before the sensor can."""
        await asyncio.to_thread(partial(self._resources.delete, "EventSource", CLOCK))
        await self._pods.until_ended(lambda: [pod for pod in self._pods.known() if not pod.of_sensor], "EventSource")
