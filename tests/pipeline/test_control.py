"""What operators want of a running sensor: pause, resume, flush."""

from __future__ import annotations

import pytest

from eventbus.clock import SystemClock
from sensors import control
from sensors.pauses import ALL
from tests.pipeline.world import World

CLOCK = SystemClock()


@pytest.mark.parametrize("at_least_once", [True, False])
def test_a_paused_trigger_does_nothing_until_it_is_resumed_and_nothing_is_lost(
    world: World, at_least_once: bool
) -> None:
    sensor = world.sensor(any="a || b", other="a || b", at_least_once=at_least_once)
    world.start(sensor).stop()
    control.pause(world.bus.cluster, world.name, "any", CLOCK)
    replica = world.start(sensor)
    world.publish("abab")
    replica.settle()
    assert [trigger for trigger, _ in world.calls] == ["other"] * 4
    assert [letter.reason for letter in world.dead_letters()] == ["paused"] * 4
    replica.stop()
    replica = world.start(sensor)
    world.publish("a", prefix="f")
    replica.settle()
    assert [trigger for trigger, _ in world.calls] == ["other"] * 5, "a restart does not end the pause"
    assert list(control.paused_triggers(world.bus.cluster, world.name, CLOCK)) == ["any"]
    driven = list(control.resume(world.bus.cluster, world.name, "any", CLOCK))
    assert [outcome.refused for outcome in driven] == [None] * 5
    world.wait_for_calls(10)
    replica.settle()
    done = [events for trigger, events in world.calls if trigger == "any"]
    assert done == [{"a": "e0"}, {"b": "e1"}, {"a": "e2"}, {"b": "e3"}, {"a": "f0"}], "in order, once each"
    assert not control.paused_triggers(world.bus.cluster, world.name, CLOCK)


def test_a_running_sensor_notices_a_pause_and_its_end(world: World) -> None:
    sensor = world.sensor(any="a || b", both="a && b")
    replica = world.start(sensor)
    control.pause(world.bus.cluster, world.name, ALL, CLOCK)
    world.wait_until(lambda: bool(replica.paused()))
    world.publish("ab")
    replica.settle()
    assert world.calls == []
    list(control.resume(world.bus.cluster, world.name, ALL, CLOCK))
    world.wait_for_calls(3)
    world.wait_until(lambda: not replica.paused())
    world.publish("a", prefix="f")
    world.wait_for_calls(4)
    assert world.calls[-1] == ("any", {"a": "f0"})


@pytest.mark.parametrize("fire", [True, False])
def test_what_a_trigger_holds_is_flushed(world: World, fire: bool) -> None:
    sensor = world.sensor(both="a && b", three="a && b && c")
    replica = world.start(sensor)
    world.publish("a")
    replica.settle()
    topology = world.topology()
    control.flush(world.bus.cluster, world.name, topology, "both", [""], fire=fire)
    world.wait_until(lambda: not world.state(sensor)[0].held)
    replica.settle()
    assert world.calls == ([("both", {"a": "e0"})] if fire else [])
    assert [letter.reason for letter in world.dead_letters()] == ([] if fire else ["flushed"])
    world.publish("bc", prefix="f")
    replica.settle()
    assert world.calls[-1] == ("three", {"a": "e0", "b": "f0", "c": "f1"}), "other triggers are not concerned"
