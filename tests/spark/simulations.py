"""Sensors of the simulator, for Spark: crashes, aborts, zombies, pauses, flushes, clocks that jump."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from eventbus.clock import SystemClock
from eventbus.names import Kind, Stage
from sensors.inspection import stable_commits
from sensors.plan import SensorPlan
from sensors.spark.entries import inside
from sensors.spark.history import CLOCKS_APART_MS, EVENT, Commits, History, read_origins
from sensors.spark.records import Slice
from sensors.spark.workers import Deputy
from tests.sim.simulation import Simulation
from tests.sim.specs import NAME
from tests.spark.rows import manifest, table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVENTS = 300


class SimulatedDeputy(Deputy, frozen=True):
    """A simulation makes plans, not manifests. A worker makes the same plan again from the seed."""

    seed: int

    @property
    def plan(self) -> SensorPlan:
        return Simulation(self.seed).sensors[1].plan

    @property
    def modes(self) -> dict[str, str]:
        return {trigger: each.mode for trigger, each in Simulation(self.seed).sensors[1].deliveries.items()}


def run_simulation(seed: int) -> tuple[Simulation, SimulatedDeputy]:
    simulation = Simulation(seed, events=EVENTS)
    simulation.run()
    assert len(simulation.sensors) == 1, "seeds in which the spec changes are no use here"
    return simulation, SimulatedDeputy(manifest({"t": {"conditions": "a"}}), NAME.bus, simulation.topology, seed)


def history_of(spark: SparkSession, simulation: Simulation) -> History:
    """All that was ever written: retention has removed nothing."""
    topics = {EVENT: NAME.event_topic} | {kind.value: NAME.topic(kind) for kind in Kind}
    tables = {kind: table(spark, simulation.records(topic)) for kind, topic in topics.items()}
    slices = {}
    for kind, topic in topics.items():
        info = simulation.cluster.describe([topic])[topic]
        assert info is not None
        spans = {number: (0, simulation.log_of(topic, number).end) for number in range(info.partitions)}
        slices[kind] = Slice(topic, spans, spans, complete=True)
    committed = {
        stage: stable_commits(simulation.cluster, NAME.group(stage), NAME.input_topic(stage), SystemClock())
        for stage in Stage
    }
    commits = Commits.decoded(
        {stage: {p: each for p, each in found.items() if each is not None} for stage, found in committed.items()}
    )
    origins = read_origins(tables[Kind.STATE], topics[Kind.STATE])
    return History(NAME, tables, slices, commits, [], origins)


def since(history: History, simulation: Simulation, moment: int) -> History:
    """What an audit with `--since` sees of it (`look_at`)."""
    tables, slices = dict(history.tables), dict(history.slices)
    for kind, whole in history.slices.items():
        if kind == Kind.STATE:
            continue
        first = moment if kind == EVENT else moment - CLOCKS_APART_MS
        spans = {}
        for partition, (_, end) in whole.offsets.items():
            records = (each for each in simulation.records(whole.topic) if each.partition == partition)
            spans[partition] = (next((each.offset for each in records if each.timestamp >= first), end), end)
        tables[kind] = history.tables[kind].where(inside(spans, "partition", "offset"))
        slices[kind] = msgspec.structs.replace(whole, offsets=spans, kept=spans, complete=False)
    return msgspec.structs.replace(history, tables=tables, slices=slices, since=moment)
