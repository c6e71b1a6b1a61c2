"""One storm: a sensor, its traffic, its faults; then all must come to rest, and everything is collected."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence, Sized
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from e2e.chaos.dump import commits_of, dump, ends_of
from e2e.chaos.evidence import Fingerprint
from e2e.chaos.logs import longest_replay
from e2e.chaos.manifest import CALL_SECONDS, Mode
from e2e.chaos.sink import Mood, Sink
from e2e.chaos.traffic import Traffic
from e2e.chaos.witness import Witness
from eventbus import Bus
from eventbus.clock import SystemClock
from eventbus.errors import RetriableError
from eventbus.formats import Source
from eventbus.metadata import decode_join
from eventbus.names import Kind, Stage
from eventbus.ports import Record
from eventbus.topics import ensure_sensor_topics
from sensors.audit.commits import SeenCommit
from sensors.audit.invocations import Mishap
from sensors.audit.verdict import Evidence
from sensors.inspection import held_state
from sensors.join import HORIZON_RECORDS
from sensors.plan import SensorPlan
from sensors.replicalogs import own_mishaps

CALM_SECONDS = 300.0
"""Within which everything must have come to rest when the faults are over."""
_LARGEST_BACKLOG = 3000
"""Actions that wait to be invoked. More of them would only prolong the time until everything has come to rest."""
_LOOK_SECONDS = 0.5
_QUIET_SECONDS = 2.0 * CALL_SECONDS
"""Longer than any action pauses that has been taken and that nothing hinders."""
_TELL_SECONDS = 1.0


class Options(msgspec.Struct, frozen=True):
    """The dimensions of a storm."""

    minutes: float
    seed: int
    dependencies: int = 3
    partitions: int = 5
    rate: float = 60.0
    mode: Mode = Mode.BOTH


class Progress(msgspec.Struct, frozen=True):
    """How far a storm is."""

    seconds: float
    events: int
    actions: int
    calls: int
    replicas: int
    faults: dict[str, int]


class Aftermath(msgspec.Struct):
    """A storm that is over."""

    evidence: Evidence
    concurrent: list[Fingerprint]
    """The action topic as somebody saw it who read it all the time."""
    faults: dict[str, int]
    unexplained: list[str]
    """What needs no verdict: replicas that ended by themselves, work that was never done."""
    longest_replay: int
    calm_seconds: float
    doubtful: int


class Replicas(Protocol):
    """What a storm has to know of those that it hits, be they processes or pods."""

    mishaps: list[Mishap]
    faults: Counter[str]
    unexplained: list[str]

    def running(self) -> Sized: ...

    def logs(self) -> Mapping[int, Path]:
        """Of every slot."""

    async def stop(self) -> None:
        """Returns when the last one has ended."""


class Scene(NamedTuple):
    """Where a storm breaks loose."""

    connect: Callable[[], Bus]
    plan: SensorPlan
    names: Sequence[str]
    """Of the events."""
    sink: Sink
    fleet: Replicas
    rage: Callable[[Traffic], Awaitable[None]]
    """Returns when the faults are over, and what was broken is mended."""


class Storm:
    """Make it and `run` it inside an event loop."""

    def __init__(self, scene: Scene, *, rate: float, seed: int, tell: Callable[[Progress], None]) -> None:
        self._scene = scene
        self._tell = tell
        self._bus = scene.connect()
        self._fleet = scene.fleet
        self._sink = scene.sink
        self._plan = scene.plan
        self._topology = ensure_sensor_topics(self._bus.cluster, self._plan.name)
        actions = self._plan.name.topic(Kind.ACTION)
        self._witness = Witness(self._bus, actions, self._topology.action_partitions)
        self._traffic = Traffic(scene.connect, scene.names, rate=rate, seed=seed, congested=self._is_congested)
        self._unexplained: list[str] = []
        self._backlog = 0

    def _is_congested(self) -> bool:
        return self._backlog > _LARGEST_BACKLOG

    async def run(self) -> Aftermath:
        await self._sink.become(Mood.OK)
        telling = asyncio.create_task(self._keep_telling())
        measuring = asyncio.create_task(self._keep_measuring())
        self._witness.start()
        self._traffic.start()
        await self._scene.rage(self._traffic)
        measuring.cancel()
        await asyncio.to_thread(self._traffic.stop)
        began = time.monotonic()
        triggers, actions = await self._come_to_rest()
        calm = time.monotonic() - began
        await self._fleet.stop()
        await self._sink.close()
        telling.cancel()
        self._witness.stop()
        return self._collect(triggers, actions, calm)

    async def _keep_measuring(self) -> None:
        """How many actions are not dealt with. Those that were given up are: they must not slow the traffic."""
        name = self._plan.name
        committed = partial(self._bus.cluster.committed, name.group(Stage.INVOKE), name.topic(Kind.ACTION))
        while True:
            await asyncio.sleep(_TELL_SECONDS)
            with suppress(RetriableError):
                commits = await asyncio.to_thread(committed)
                self._backlog = self._witness.beyond({p: commit.offset for p, commit in commits.items() if commit})

    async def _keep_telling(self) -> None:
        began = time.monotonic()
        while True:
            await asyncio.sleep(_TELL_SECONDS)
            self._tell(
                Progress(
                    time.monotonic() - began,
                    self._traffic.published,
                    len(self._witness.seen),
                    len(self._sink.calls),
                    len(self._fleet.running()),
                    dict(self._fleet.faults),
                )
            )

    # --- coming to rest ---------------------------------------------------------------------------------------------

    async def _come_to_rest(self) -> tuple[list[Record], list[Record]]:
        """Stage by stage: what one has read to its end is all that the next one will get.

        The end is the last record: nobody commits that the markers of transactions behind it were read.
        """
        deadline = time.monotonic() + CALM_SECONDS
        name, topology = self._plan.name, self._topology
        events = await asyncio.to_thread(dump, self._bus, name.event_topic, topology.event_partitions)
        matched = partial(self._has_committed, Stage.MATCH, ends_of(events))
        await self._until(matched, deadline, "events are not matched")
        triggers = await asyncio.to_thread(dump, self._bus, name.topic(Kind.TRIGGER), topology.trigger_partitions)
        joined = partial(self._has_committed, Stage.JOIN, ends_of(triggers))
        await self._until(joined, deadline, "trigger records are not joined")
        actions = await asyncio.to_thread(dump, self._bus, name.topic(Kind.ACTION), topology.action_partitions)
        ends = ends_of(actions)
        await self._until(partial(self._has_committed, Stage.INVOKE, ends), deadline, "actions are not dealt with")
        quiet = partial(self._sink.is_quiet, _QUIET_SECONDS)
        await self._until(quiet, deadline, "what was taken at most once is not invoked")
        await self._until(partial(self._witness.has_read, ends), deadline, "the concurrent reader lags behind")
        return triggers, actions

    async def _until(self, reached: Callable[[], bool], deadline: float, complaint: str) -> None:
        while not await asyncio.to_thread(reached):
            if time.monotonic() > deadline:
                self._unexplained.append(f"{complaint} {CALM_SECONDS:g} s after the last fault")
                return
            await asyncio.sleep(_LOOK_SECONDS)

    def _has_committed(self, stage: Stage, ends: dict[int, int]) -> bool:
        try:
            commits = commits_of(self._bus, self._plan.name, stage)
        except RetriableError:
            return False
        for partition, end in ends.items():
            commit = commits[partition]
            if commit is None:
                return False
            joins = stage is Stage.JOIN
            if (decode_join(commit.offset, commit.metadata).position if joins else commit.offset) < end:
                return False
        return True

    # --- evidence ---------------------------------------------------------------------------------------------------

    def _collect(self, triggers: list[Record], actions: list[Record], calm: float) -> Aftermath:
        name, topology, fleet = self._plan.name, self._topology, self._fleet
        logs = fleet.logs()
        if self._witness.failure is not None:
            self._unexplained.append(f"the concurrent reader has failed: {self._witness.failure}")
        evidence = Evidence(
            plans={self._plan.owner.generation: self._plan},
            events=dump(self._bus, name.event_topic, topology.event_partitions),
            triggers=triggers,
            actions=actions,
            invocations=dump(self._bus, name.topic(Kind.INVOCATION), topology.invocation_partitions),
            letters=dump(self._bus, name.topic(Kind.DLQ), topology.dlq_partitions),
            calls=self._sink.calls,
            mishaps=[*fleet.mishaps, *(mishap for slot, log in logs.items() for mishap in own_mishaps(slot, log))],
            commits=[
                SeenCommit(stage, partition, commit.offset, commit.metadata)
                for stage in Stage
                for partition, commit in commits_of(self._bus, name, stage).items()
                if commit is not None
            ],
            held={
                (state.trigger, state.key, event.dependency, Source(event.partition, event.offset, event.since))
                for state in held_state(self._bus.cluster, self._plan, topology, SystemClock())
                for event in state.held
            },
            horizon=HORIZON_RECORDS,
        )
        self._bus.close()
        return Aftermath(
            evidence=evidence,
            concurrent=self._witness.seen,
            faults=dict(fleet.faults),
            unexplained=[*fleet.unexplained, *self._unexplained],
            longest_replay=longest_replay(logs.values()),
            calm_seconds=calm,
            doubtful=self._traffic.doubtful,
        )
