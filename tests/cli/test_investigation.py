"""What is read from the topics of a sensor at work, in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Event as Signal

import pytest

from eventbus import Bus, Event
from eventbus.clock import Deadline, SystemClock
from eventbus.names import Kind
from eventbus.ports import Output
from eventbus.topics import ensure_sensor_topics
from sensors import ActionCall, Sensor
from sensors.evidence import Evidence
from sensors.investigation import RECENT_EVENTS, Investigation, Question

CLOCK = SystemClock()


@pytest.fixture(autouse=True)
def _own_slots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVENTBUS_SLOT_DIR", str(tmp_path))


@pytest.fixture
def bus() -> Iterator[Bus]:
    with Bus.memory() as bus:
        bus.ensure(1)
        yield bus


def _look(bus: Bus, sensor: Sensor, since: int | None = None) -> Evidence:
    plan = sensor.blueprint(bus.name).plan
    topology = ensure_sensor_topics(bus.cluster, plan.name)
    return Investigation(bus.cluster, plan, topology, CLOCK, Question(list(plan.triggers), None, since)).evidence()


def _sensor(release: Signal) -> Sensor:
    sensor = Sensor("s", {"a": ("shop", "a")})

    @sensor.trigger("slow", "a", at_least_once=True)
    def slow(call: ActionCall) -> None:
        release.wait(60)

    @sensor.trigger("quick", "a", at_least_once=True)
    def quick(call: ActionCall) -> None:
        pass

    return sensor


def test_an_action_under_way_waits_and_those_finished_behind_it_do_not(bus: Bus) -> None:
    release = Signal()
    sensor = _sensor(release)
    deadline = Deadline(CLOCK, 30)
    with sensor.start(bus) as replica:
        replica.wait_ready()
        bus.publish(Event.new("shop", "a", id="a1"))
        try:
            while True:
                found = _look(bus, sensor)
                waiting = {each.trigger: each.waiting.count for each in found.triggers}
                if waiting == {"slow": 1, "quick": 0} and all(each.last for each in found.triggers):
                    break
                assert not deadline.over(), waiting
        finally:
            release.set()
        assert [stage.replicas for stage in found.stages] == [1, 1, 1]
        assert found.stages[-1].behind == 1
        assert found.triggers[0].last is not None
        assert found.triggers[0].waiting.example == found.triggers[0].last.action
        replica.settle()
    done = _look(bus, sensor)
    assert [each.waiting.count for each in done.triggers] == [0, 0]
    assert [each.last.invoked.outcome for each in done.triggers if each.last and each.last.invoked] == ["succeeded"] * 2
    assert [stage.replicas for stage in done.stages] == [0, 0, 0]


def test_the_newest_events_are_looked_at_unless_a_time_is_given(bus: Bus) -> None:
    sensor = _sensor(Signal())
    ensure_sensor_topics(bus.cluster, sensor.blueprint(bus.name).plan.name)
    bus.publish_all(Event.new("shop", "a" if n >= 5 else "old") for n in range(RECENT_EVENTS + 5))
    found = _look(bus, sensor)
    assert found.events == RECENT_EVENTS
    assert found.triggers[0].recent.near == []
    assert _look(bus, sensor, since=0).events == RECENT_EVENTS + 5
    assert found.stages[0].begun is False


def test_rubbish_is_counted_and_breaks_nothing(bus: Bus) -> None:
    sensor = _sensor(Signal())
    name = sensor.blueprint(bus.name).plan.name
    ensure_sensor_topics(bus.cluster, name)
    topics = [name.event_topic, name.topic(Kind.ACTION), name.topic(Kind.INVOCATION), name.topic(Kind.DLQ)]
    bus.write(Output(topic, 0, b"key", b"\xff") for topic in topics)
    found = _look(bus, sensor)
    assert (found.events, found.unreadable.count, found.unreadable.example) == (1, 1, "0:0")
