"""What becomes of actions that fail for good, how fast a limited trigger acts, and what log lines carry."""

from __future__ import annotations

import logging
from collections import Counter
from itertools import pairwise
from threading import Event as Flag
from typing import Any

import pytest

from eventbus.formats import action_fact
from eventbus.names import Kind
from eventbus.ports import TopicSpec
from sensors import ActionCall, ActionError, Sensor, Settings
from sensors.spec.loader import make_manifest
from tests.pipeline.world import DEPENDENCIES, World

REFUSED = ActionError("refused: no such order", retriable=False, sent=True, status="404")


def failing(_call: ActionCall) -> None:
    raise REFUSED


def with_dlq(world: World, *, at_least_once: bool, dlq: Any) -> Sensor:
    sensor = Sensor("s", DEPENDENCIES)
    sensor.trigger("both", "a && b", at_least_once=at_least_once, dlq=dlq)(failing)
    return sensor


def one_trigger(world: World, fields: Any, function: Any, **spec: Any) -> Sensor:
    manifest = make_manifest(
        {
            "apiVersion": "argoproj.io/v1alpha1",
            "kind": "Sensor",
            "metadata": {"name": "s", "namespace": world.bus.name.namespace},
            "spec": {
                "eventBusName": world.bus.name.bus,
                "dependencies": [{"name": "a", "eventSourceName": "shop", "eventName": "a"}],
                "triggers": [{"template": {"name": "call", "log": {}}, **fields}],
                **spec,
            },
        }
    )
    sensor = Sensor.of(manifest)
    if function is not None:
        sensor.action("call")(function)
    return sensor


@pytest.mark.parametrize("at_least_once", [True, False])
def test_the_dlq_trigger_gets_the_events_and_the_reason(world: World, at_least_once: bool) -> None:
    seen: list[ActionCall] = []
    replica = world.start(with_dlq(world, at_least_once=at_least_once, dlq=seen.append))
    world.publish("ab")
    replica.settle()
    [call] = seen
    assert call.trigger == "both/dlq"
    assert {name: event.id for name, event in call.events.items() if name != "$failure"} == {"a": "e0", "b": "e1"}
    failure = call.events["$failure"].json()
    assert (failure["error"], failure["status"], failure["attempts"]) == ("refused: no such order", "404", 1)
    assert failure["trigger"] == "both"
    facts = {fact.trigger: fact for fact in map(action_fact, world.records(world.name.topic(Kind.ACTION)))}
    assert failure["action"] == facts["both"].id
    assert call.id == facts["both/dlq"].id
    [letter] = world.dead_letters()
    assert (letter.trigger, letter.action) == ("both", facts["both"].id)
    outcomes = Counter((note.trigger, note.outcome) for note in world.invocations())
    assert outcomes["both", "dead-lettered"] == outcomes["both/dlq", "succeeded"] == 1


def test_a_dlq_trigger_that_fails_is_an_ordinary_dead_letter(world: World) -> None:
    replica = world.start(with_dlq(world, at_least_once=True, dlq=failing))
    world.publish("ab")
    replica.settle()
    assert sorted(str(letter.trigger) for letter in world.dead_letters()) == ["both", "both/dlq"]


def test_a_dlq_trigger_in_a_manifest_is_a_whole_trigger(world: World) -> None:
    """Its payload may select the reason, and its own retry strategy counts."""
    topic = f"{world.bus.name.event_topic}-failures"
    world.bus.cluster.create([TopicSpec(topic, 1, {})])
    source = {"dependencyName": "$failure"}
    payload = [
        {"src": {**source, "dataKey": "error"}, "dest": "why"},
        {"src": {**source, "dataKey": "attempts", "useRawData": True}, "dest": "after"},
        {"src": {**source, "contextKey": "type"}, "dest": "type"},
        {"src": {"dependencyName": "a", "dataKey": "n"}, "dest": "n"},
    ]
    dlq = {"template": {"name": "tell", "kafka": {"topic": topic, "payload": payload}}}
    replica = world.start(one_trigger(world, {"atLeastOnce": True, "dlqTrigger": dlq}, failing))
    world.publish("a")
    replica.settle()
    [record] = world.records(topic)
    expected = b'{"why":"refused: no such order","after":1,"type":"dev.eventbus.action.failed","n":"0"}'
    assert record.value == expected
    modes = {note.trigger: note.mode for note in world.invocations()}
    assert modes == {"call": "atLeastOnce", "call/dlq": "exactlyOnce"}


def test_a_dlq_trigger_is_invoked_after_a_restart_if_it_was_not_before(world: World) -> None:
    begun, go_on = Flag(), Flag()

    def hanging(_call: ActionCall) -> None:
        begun.set()
        go_on.wait(30)

    first = world.start(
        with_dlq(world, at_least_once=True, dlq=hanging), settings=Settings(drain_seconds=0.1), slot="0"
    )
    world.publish("ab")
    assert begun.wait(30)
    first.stop()
    go_on.set()
    seen: list[ActionCall] = []
    second = Sensor("s", DEPENDENCIES, generation=2)
    second.trigger("both", "a && b", at_least_once=True, dlq=seen.append)(failing)
    replica = world.start(second, slot="0")
    replica.settle()
    assert [call.trigger for call in seen] == ["both/dlq"]
    assert [letter.trigger for letter in world.dead_letters()] == ["both"], "the action itself is not repeated"


def test_a_limited_trigger_acts_at_an_even_pace(world: World) -> None:
    limit = {"requestsPerUnit": 20, "unit": "Second"}
    replica = world.start(one_trigger(world, {"rateLimit": limit}, world.note))
    world.publish("a" * 10)
    replica.settle()
    started = sorted(note.started for note in world.invocations() if note.outcome == "succeeded")
    assert len(started) == 10
    assert all(later - earlier >= 49 for earlier, later in pairwise(started))


@pytest.mark.parametrize("function", [None, failing], ids=["log", "failing"])
def test_every_log_line_of_a_sensor_carries_its_fields(
    world: World, caplog: pytest.LogCaptureFixture, function: Any
) -> None:
    fields = {"team": "shop", "name": "mine"}
    with caplog.at_level(logging.INFO, "eventbus"):
        replica = world.start(one_trigger(world, {}, function, loggingFields=fields))
        world.publish("a")
        replica.settle()
        replica.stop()
    lines = [record for record in caplog.records if record.name in ("eventbus.sensor", "eventbus.action")]
    assert {record.name for record in lines} >= {"eventbus.sensor"} | ({"eventbus.action"} if not function else set())
    assert all(vars(record)["logging_fields"] == fields for record in lines)
    assert all(vars(record)["team"] == "shop" for record in lines)
    assert all(record.name != "mine" for record in lines), "what a record has already is left alone"
