"""The audit of a sensor that was tormented: Spark comes to what the checks come to that have all in their hands."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from e2e.torment import Torment
from eventbus import Bus
from eventbus.broker import EmbeddedBroker
from eventbus.formats import action_fact
from sensors.sensor import Sensor
from sensors.spark.audit import audit
from sensors.spark.history import look_at
from sensors.spark.records import Range
from sensors.spark.session import SparkOptions, spark_session
from sensors.spark.workers import Deputy

pytestmark = [pytest.mark.timeout(600), pytest.mark.filterwarnings("ignore::ResourceWarning")]

KILLS = 6


def test_the_audit_agrees_with_the_verdict_to_the_record(namespace: str, tmp_path: Path) -> None:
    with EmbeddedBroker(ephemeral=True) as broker, Bus.connect(broker.bootstrap_servers, namespace=namespace) as bus:
        bus.ensure(3)
        torment = Torment(bus, tmp_path, seed=11)
        try:
            torment.start(2)
            for number in range(KILLS):
                torment.events(60)
                torment.kill_and_restart(number % 2)
            torment.settle()
            verdict = torment.lab.verdict()
            name, topology = torment.lab.plan.name, torment.lab.topology
            deputy = Deputy(Sensor.load(tmp_path / "sensor.yaml").manifest, bus.name, topology)
            with spark_session("e2e", SparkOptions(memory="1g")) as spark:
                report = audit(look_at(spark, bus, name, Range()), deputy, Range())
            fired = Counter(action_fact(record).trigger for record in torment.lab.actions())
        finally:
            torment.close()
    assert verdict.clean, verdict.violations
    assert report.violations == []
    assert report.missing == []
    assert report.not_judged == {}
    assert report.records[name.event_topic] == verdict.events
    assert {each.trigger: each.fired for each in report.triggers} == dict(fired)
    # The records do not tell a call whose record died with its replica from one that was never made; the target does.
    lost = {each.action for each in verdict.given_up}
    unrecorded = {each.action for each in verdict.unrecorded}
    found = {each.action for each in report.given_up}
    assert lost <= found <= lost | unrecorded
