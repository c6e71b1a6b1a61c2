"""How long the work of a replica lies about that was killed in the middle of a transaction.

The clock runs from the death of the process to the first record that a read_committed consumer sees after it, in the
partition that the unfinished transaction had written to.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from e2e.chaos.fleet import Fleet, Member
from e2e.chaos.manifest import Mode, dependencies, manifest
from e2e.chaos.points import AFTER_PRODUCE
from e2e.chaos.sink import Mood, Sink
from e2e.chaos.witness import Witness
from eventbus import Bus, Event
from eventbus.broker import EmbeddedBroker
from eventbus.names import Kind, Stage
from eventbus.topics import ensure_sensor_topics
from sensors.sensor import Sensor

SAME_SLOT_SECONDS = 7.0
"""Within which the work must go on when the same slot starts again: the session, and a little."""
SURVIVOR_SECONDS = 20.0
"""Within which another replica must have taken it over."""
_POINT = f"{Stage.JOIN} {AFTER_PRODUCE}"
_ACTIONS_PER_ROUND = 3  # of `a`, of `b`, and of `a && b`
_PATIENCE = 60.0
_LOOK_SECONDS = 0.01


class Failovers(msgspec.Struct, frozen=True):
    """Seconds, of every round."""

    same_slot: list[float]
    survivor: list[float]

    def worst(self) -> dict[str, float]:
        return {
            "failover_same_slot_seconds": round(max(self.same_slot), 2),
            "failover_survivor_seconds": round(max(self.survivor), 2),
        }

    def findings(self) -> list[str]:
        return [
            f"failover {name} took {worst:.1f} s, and {limit:g} s are promised"
            for name, worst, limit in (
                ("to the same slot", max(self.same_slot), SAME_SLOT_SECONDS),
                ("to a survivor", max(self.survivor), SURVIVOR_SECONDS),
            )
            if worst > limit
        ]


class FailoverMeasurement:
    """A small sensor whose topics have one partition: whoever owns it is killed."""

    def __init__(self, broker: EmbeddedBroker, directory: Path) -> None:
        self._bus = Bus.connect(broker.bootstrap_servers, namespace="failover")
        self._bus.ensure(1)
        file = directory / "failover.yaml"
        self._slots_may_be_filled = asyncio.Event()
        self._fleet = Fleet(self._bus, file, rest=self._rest)
        self._sink = Sink()
        file.write_text(manifest(dependencies(2), Mode.AT_LEAST_ONCE, self._sink.url))
        name = Sensor.load(file).blueprint(self._bus.name).plan.name
        ensure_sensor_topics(self._bus.cluster, name)
        self._witness = Witness(self._bus, name.topic(Kind.ACTION), 1)
        self._expected = 0

    async def run(self, rounds: int) -> Failovers:
        await self._sink.become(Mood.OK)
        self._witness.start()
        try:
            self._slots_may_be_filled.set()
            same_slot = [await self._round(replicas=1) for _ in range(rounds)]
            self._slots_may_be_filled.clear()
            survivor = [await self._round(replicas=2) for _ in range(rounds)]
        finally:
            self._slots_may_be_filled.set()
            await self._fleet.stop()
            await self._sink.close()
            self._witness.stop()
            self._bus.close()
        return Failovers(same_slot, survivor)

    async def _rest(self) -> None:
        await self._slots_may_be_filled.wait()

    async def _round(self, replicas: int) -> float:
        await self._let_run(replicas)
        await self._publish()
        await self._until(self._all_seen, "the sensor does not work")
        members = self._fleet.running()
        for member in members:
            member.arm(_POINT)
        await self._publish()
        await self._until(lambda: any(not member.alive for member in members), "no replica has died")
        died = time.monotonic()
        _disarm(members)
        await self._until(self._all_seen, "nobody has taken over")
        return self._witness.latest - died

    async def _let_run(self, replicas: int) -> None:
        filled = self._slots_may_be_filled.is_set()
        self._slots_may_be_filled.set()
        self._fleet.scale(replicas)
        await self._until(lambda: self._ready() == replicas, "the replicas are not ready")
        if not filled:
            self._slots_may_be_filled.clear()

    def _ready(self) -> int:
        return sum(self._fleet.is_ready(member) for member in self._fleet.running())

    async def _publish(self) -> None:
        """First `a`, then `b`: the actions of either alone are committed before that of both can be."""
        self._expected += _ACTIONS_PER_ROUND
        await asyncio.to_thread(self._bus.publish, Event.new("shop", "a", {}), Event.new("shop", "b", {}))

    def _all_seen(self) -> bool:
        return len(self._witness.seen) >= self._expected

    async def _until(self, reached: Callable[[], bool], complaint: str) -> None:
        deadline = time.monotonic() + _PATIENCE
        while not reached():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{complaint} after {_PATIENCE:g} s")
            await asyncio.sleep(_LOOK_SECONDS)


def _disarm(members: list[Member]) -> None:
    for member in members:
        if member.alive:
            member.disarm()
