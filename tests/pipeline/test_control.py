"""What operators want of a running sensor: pause, resume, flush."""

from __future__ import annotations

from asyncio import CancelledError

import pytest

from eventbus.clock import SystemClock
from eventbus.ports import Output
from sensors import ActionCall, ActionError, Sensor, control
from sensors.deadletters import PAUSED
from sensors.pauses import ALL
from sensors.redrive import Box, Selection, read_letters
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


def test_what_is_kept_until_replicas_notice_the_end_of_a_pause_is_not_left_behind(world: World) -> None:
    sensor = world.sensor(any="a || b")
    replica = world.start(sensor)
    control.pause(world.bus.cluster, world.name, "any", CLOCK)
    world.wait_until(lambda: bool(replica.paused()))
    world.publish("a")
    replica.settle()
    resuming = control.resume(world.bus.cluster, world.name, "any", CLOCK)
    assert next(resuming).refused is None  # the replica still believes in the pause
    world.publish("bbbbb", prefix="f")
    driven = list(resuming)
    world.wait_for_calls(6)
    replica.settle()
    assert len(world.calls) == 6
    assert len(driven) <= 5
    assert not list(read_letters(world.bus.cluster, Box.of_sensor(world.name), Selection(reason=PAUSED), CLOCK))


def test_a_trigger_is_resumed_with_its_dlq_trigger_and_without_others(world: World) -> None:
    def fail(_call: ActionCall) -> None:
        raise ActionError("no", retriable=False, sent=True)

    sensor = Sensor("s", {"a": ("shop", "a")})
    sensor.trigger("t", "a", at_least_once=True, dlq=world.note)(fail)
    sensor.trigger("other", "a", at_least_once=True)(world.note)
    replica = world.start(sensor)
    for trigger in (ALL, "t", "other"):
        control.pause(world.bus.cluster, world.name, trigger, CLOCK)
    world.wait_until(lambda: len(replica.paused()) == 3)
    world.publish("a")
    replica.settle()
    assert not list(control.resume(world.bus.cluster, world.name, "t", CLOCK)), "all are still paused"
    assert len(list(control.resume(world.bus.cluster, world.name, ALL, CLOCK))) >= 1
    world.wait_for_calls(1)
    replica.settle()
    assert [trigger for trigger, _ in world.calls] == ["t/dlq"]
    list(control.resume(world.bus.cluster, world.name, "other", CLOCK))
    world.wait_for_calls(2)
    assert world.calls[-1][0] == "other"


def test_rubbish_in_the_control_topic_stops_nobody(world: World) -> None:
    sensor = world.sensor(any="a || b")
    world.start(sensor).stop()
    world.send(Output(world.name.control_topic, 0, b"rubbish", b"rubbish"))
    control.pause(world.bus.cluster, world.name, "any", CLOCK)
    replica = world.start(sensor)
    world.wait_until(lambda: replica.paused() == {"any"})
    assert list(control.paused_triggers(world.bus.cluster, world.name, CLOCK)) == ["any"]


@pytest.mark.parametrize("raised", [SystemExit("bye"), CancelledError()])
def test_whatever_an_action_raises_ends_that_attempt_only(world: World, raised: BaseException) -> None:
    """Found in a review: its lane was stuck for ever, and a worker gone."""

    def explode(_call: ActionCall) -> None:
        raise raised

    replica = world.start(world.sensor(any="a || b", function=explode))
    world.publish("ab")
    replica.settle()
    assert [letter.reason for letter in world.dead_letters()] == ["action-failed"] * 2


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
