"""Stateful triggers from event to action, across restarts and several replicas, on both logs."""

from __future__ import annotations

from eventbus import Event
from eventbus.names import Kind
from sensors import ActionCall, Sensor
from tests.pipeline.world import World

BY_ORDER = {"correlate": {"by": "data.order"}, "within": "10m"}


class Calls(list[tuple[str, dict[str, str]]]):
    """By key: the ids of the events of each dependency."""

    def note(self, call: ActionCall) -> None:
        batches = {name: " ".join(event.id for event in events) for name, events in call.batches.items()}
        self.append((call.key, {name: event.id for name, event in call.events.items()} | batches))


def declare(world: World, calls: Calls, **when: object) -> Sensor:
    """One trigger, `a && b`."""
    sensor = Sensor(world.name.sensor, {name: ("shop", name) for name in "ab"})
    sensor.trigger("t", "a && b", when=when)(calls.note)
    return sensor


def publish(world: World, *events: tuple[str, str, int]) -> None:
    world.bus.publish_all([Event.new("shop", name, {"order": order}, id=id) for name, id, order in events])


def test_what_a_key_holds_survives_a_restart(world: World) -> None:
    calls = Calls()
    sensor = declare(world, calls, **BY_ORDER)
    first = world.start(sensor)
    publish(world, ("a", "a1", 1), ("a", "a2", 2), ("b", "b3", 3))
    first.settle()
    first.stop()
    second = world.start(sensor)
    publish(world, ("b", "b2", 2), ("b", "b1", 1))
    second.settle()
    assert sorted(calls, key=str) == [("1", {"a": "a1", "b": "b1"}), ("2", {"a": "a2", "b": "b2"})]
    assert [(state.key, [event.id for event in state.held]) for state in world.state(sensor)] == [("3", ["b3"])]


def test_pain_3695_one_trigger_is_spread_over_the_replicas_by_its_keys(world: World) -> None:
    """All events of a trigger have its name as their key: one partition is hot, and more replicas help nothing."""
    calls = Calls()
    sensor = declare(world, calls, **BY_ORDER)
    replicas = [world.start(sensor, slot=str(slot)) for slot in range(2)]
    orders = range(30)
    publish(world, *(("a", f"a{order}", order) for order in orders), *(("b", f"b{order}", order) for order in orders))
    world.wait_until(lambda: len(calls) == len(orders))
    for replica in replicas:
        replica.settle()
    assert sorted(calls, key=str) == sorted(
        ((str(order), {"a": f"a{order}", "b": f"b{order}"}) for order in orders), key=str
    )
    partitions = {record.partition for record in world.records(world.name.topic(Kind.TRIGGER))}
    assert len(partitions) > 1


def test_an_action_gets_all_events_that_were_counted(world: World) -> None:
    calls = Calls()
    sensor = declare(world, calls, count={"a": 3}, correlate={"by": "data.order"}, ttl="1h")
    replica = world.start(sensor)
    publish(world, *(("a", f"a{number}", 1) for number in range(3)))
    replica.settle()
    publish(world, ("b", "b", 1))
    replica.settle()
    [(key, events)] = calls
    assert key == "1"
    assert sorted(events["a"].split()) == ["a0", "a1", "a2"]


def test_the_same_event_counts_once_and_firings_are_remembered(world: World) -> None:
    calls = Calls()
    sensor = declare(world, calls, dedupe={"within": "1h"}, onceWithin="1h", **BY_ORDER)
    first = world.start(sensor)
    publish(world, ("a", "a1", 1), ("b", "b1", 1))
    first.settle()
    first.stop()
    second = world.start(sensor)
    publish(world, ("a", "a1", 1), ("a", "a2", 1), ("b", "b2", 1))
    second.settle()
    assert calls == [("1", {"a": "a1", "b": "b1"})]
    assert all(not state.held for state in world.state(sensor))
