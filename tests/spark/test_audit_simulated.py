"""The audit of simulated sensors: whatever has happened to one, it has kept its promises."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from eventbus.formats import action_fact
from eventbus.names import Kind
from sensors.spark.audit import audit
from sensors.spark.records import Range
from tests.sim.specs import NAME
from tests.spark.simulations import history_of, run_simulation, since

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("seed", [2, 23, 28])
def test_a_simulated_sensor_is_acquitted(spark: SparkSession, seed: int) -> None:
    simulation, deputy = run_simulation(seed)
    report = audit(history_of(spark, simulation), deputy, Range())
    assert report.violations == []
    assert report.proved
    actions = {action_fact(record).id: action_fact(record) for record in simulation.records(NAME.topic(Kind.ACTION))}
    fired = Counter(fact.trigger for fact in actions.values())
    assert {each.trigger: each.fired for each in report.triggers if each.fired} == fired


@pytest.mark.parametrize("seed", [2, 28, 54])
def test_nobody_is_accused_whose_beginning_is_not_known(spark: SparkSession, seed: int) -> None:
    simulation, deputy = run_simulation(seed)
    times = [record.timestamp for record in simulation.records(NAME.event_topic)]
    history = history_of(spark, simulation)
    for share in (0.5, 0.8):
        moment = int(min(times) + share * (max(times) - min(times)))
        assert audit(since(history, simulation, moment), deputy, Range(moment)).violations == []
