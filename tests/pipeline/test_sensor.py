"""From event to action, across restarts, rebalances and changes of the spec."""

from __future__ import annotations

from pathlib import Path
from threading import Event as Flag

import pytest

from eventbus import Event
from eventbus.cloudevents import to_kafka
from eventbus.formats import TRIGGER_HEADER, header
from eventbus.names import Kind, Stage
from eventbus.ports import Output, TopicSpec
from eventbus.stateformats import OriginKey, decode_state_key, origin
from sensors import ActionCall, ActionError, RetryPolicy, Sensor, Settings
from tests.pipeline.world import World


@pytest.mark.parametrize("at_least_once", [True, False])
def test_a_condition_that_becomes_true_is_one_action_with_all_events(world: World, at_least_once: bool) -> None:
    replica = world.start(world.sensor(both="a && b", any="a || b", at_least_once=at_least_once))
    world.publish("ab")
    replica.settle()
    assert sorted(world.calls, key=str) == [
        ("any", {"a": "e0"}),
        ("any", {"b": "e1"}),
        ("both", {"a": "e0", "b": "e1"}),
    ]
    outcomes = [note.outcome for note in world.invocations()]
    assert outcomes.count("succeeded") == 3
    assert outcomes.count("taken") == (0 if at_least_once else 3)


def test_held_events_survive_a_restart(world: World) -> None:
    sensor = world.sensor(both="a && b", three="a && b && c")
    first = world.start(sensor)
    world.publish("a")
    first.settle()
    first.stop()
    assert world.calls == []
    second = world.start(sensor)
    world.publish("b", prefix="f")
    second.settle()
    assert world.calls == [("both", {"a": "e0", "b": "f0"})]


def test_a_restart_repeats_nothing(world: World) -> None:
    sensor = world.sensor(both="a && b", any="a || b")
    first = world.start(sensor)
    world.publish("abab")
    first.settle()
    first.stop()
    before = list(world.calls)
    second = world.start(sensor)
    second.settle()
    assert world.calls == before


def test_events_that_arrive_while_no_replica_runs_are_not_lost(world: World) -> None:
    sensor = world.sensor(both="a && b")
    world.start(sensor).stop()
    world.publish("ab")
    world.start(sensor).settle()
    assert world.calls == [("both", {"a": "e0", "b": "e1"})]


def test_spilled_events_survive_a_restart(world: World) -> None:
    sensor = world.sensor(old="a && b", busy="c && d")
    settings = Settings(horizon_records=0)
    first = world.start(sensor, settings=settings)
    world.publish("ac" + "cd" * 5)
    first.settle()
    first.stop()
    assert any(record.value for record in world.records(world.name.topic(Kind.STATE)) if b"held" in (record.key or b""))
    second = world.start(sensor, settings=settings)
    world.publish("b", prefix="f")
    second.settle()
    assert ("old", {"a": "e0", "b": "f0"}) in world.calls
    assert [state.held for state in world.state(sensor)] == [[], []]


def test_replicas_share_the_work_and_nothing_is_lost_or_repeated_while_they_come_and_go(world: World) -> None:
    sensor = world.sensor(each="a")
    replicas = [world.start(sensor)]
    for number in range(6):
        if number in (1, 2):
            replicas.append(world.start(sensor))
        if number in (4, 5):
            replicas.pop(0).stop()
        world.bus.publish(*(Event.new("shop", "a", id=f"{number}-{n}") for n in range(40)))
    world.wait_for_calls(6 * 40)
    for replica in replicas:
        replica.settle()
    assert sorted(call[1]["a"] for call in world.calls) == sorted(f"{m}-{n}" for m in range(6) for n in range(40))


def test_more_replicas_than_partitions_are_ready_too(world: World) -> None:
    sensor = world.sensor(each="a")
    replicas = [world.start(sensor) for _ in range(4)]
    world.publish("aaa")
    world.wait_for_calls(3)
    for replica in replicas:
        replica.settle()
    assert len(world.calls) == 3


def test_a_new_sensor_starts_with_events_from_now_on_or_with_the_oldest(world: World) -> None:
    world.publish("a")
    latest = world.start(world.sensor(each="a"))
    world.publish("a", prefix="f")
    latest.settle()
    assert world.calls == [("each", {"a": "f0"})]


def test_a_new_sensor_can_start_with_the_oldest_event(world: World) -> None:
    world.publish("a")
    world.start(world.sensor(each="a", start_from="earliest")).settle()
    assert world.calls == [("each", {"a": "e0"})]


def test_a_partition_that_was_added_later_is_read_from_its_beginning(world: World) -> None:
    sensor = world.sensor(each="a")
    world.start(sensor).stop()
    partition = world.add_partition(world.name.event_topic)
    headers, value = to_kafka(Event.new("shop", "a", id="early"))
    world.send(Output(world.name.event_topic, partition, None, value, headers))
    replica = world.start(sensor)
    replica.settle()
    assert world.calls == [("each", {"a": "early"})]


def test_events_with_one_key_are_acted_upon_in_order(world: World) -> None:
    replica = world.start(world.sensor(each="a"))
    world.publish("a" * 50)
    replica.settle()
    assert [call[1]["a"] for call in world.calls] == [f"e{n}" for n in range(50)]


def test_a_slow_action_does_not_hold_up_the_other_triggers(world: World) -> None:
    release, begun = Flag(), Flag()
    done: list[str] = []

    def act(call: ActionCall) -> None:
        if call.trigger == "slow":
            begun.set()
            release.wait(30)
        done.append(call.trigger)

    replica = world.start(world.sensor(slow="a", fast="b", function=act))
    world.publish("a")
    assert begun.wait(30)
    world.publish("bbb", prefix="f")
    while done.count("fast") < 3:
        assert replica.failure is None
        begun.wait(0.01)
    assert "slow" not in done
    release.set()
    replica.settle()
    assert done.count("slow") == 1


def test_a_failing_action_is_retried_and_then_dead_lettered_and_the_next_goes_on(world: World) -> None:
    def act(call: ActionCall) -> None:
        world.note(call)
        if call.events["a"].id == "e0":
            raise ActionError("out of order", retriable=True, sent=True, status="503")

    retry = RetryPolicy(steps=3, duration=0.01)
    replica = world.start(world.sensor(each="a", retry=retry, function=act))
    world.publish("aa")
    replica.settle()
    assert [call[1]["a"] for call in world.calls] == ["e0", "e0", "e0", "e1"]
    [letter] = world.dead_letters()
    assert (letter.reason, letter.detail, letter.attempts) == ("action-failed", "out of order", 3)
    notes = sorted((note.attempt, note.outcome, note.status) for note in world.invocations() if note.status == "503")
    assert notes == [(1, "failed", "503"), (2, "failed", "503"), (3, "dead-lettered", "503")]


@pytest.mark.parametrize("at_least_once", ["true", "false"])
def test_a_kafka_action_on_the_own_cluster_is_done_exactly_once(
    world: World, tmp_path: Path, at_least_once: str
) -> None:
    topic = f"{world.bus.name.namespace}-copies"
    world.bus.cluster.create([TopicSpec(topic, 2, {})])
    manifest = tmp_path / "sensor.yaml"
    manifest.write_text(
        f"""
apiVersion: argoproj.io/v1alpha1
kind: Sensor
metadata: {{name: s}}
spec:
  dependencies: [{{name: a, eventSourceName: shop, eventName: a}}]
  triggers:
    - template:
        name: copy
        kafka: {{topic: {topic}, payload: [{{src: {{dependencyName: a, dataKey: n, useRawData: true}}, dest: number}}]}}
      atLeastOnce: {at_least_once}
"""
    )
    replica = world.start(Sensor.load(manifest))
    world.publish("aaa")
    replica.settle()
    assert sorted(record.value or b"" for record in world.records(topic)) == [b'{"number":%d}' % n for n in range(3)]
    assert [(note.outcome, note.mode) for note in world.invocations()] == [("succeeded", "exactlyOnce")] * 3


def test_an_invalid_event_is_dead_lettered_with_its_bytes_and_stops_nothing(world: World) -> None:
    replica = world.start(world.sensor(each="a"))
    headers = [("ce_specversion", b"1.0"), ("ce_id", b"\xff\xfe"), ("other", None)]
    world.send(Output(world.name.event_topic, 0, b"\x00key", b"\x80raw", headers))
    world.publish("aaa")
    replica.settle()
    assert len(world.calls) == 3
    [record] = world.records(world.name.topic(Kind.DLQ))
    [letter] = world.dead_letters()
    assert (record.key, record.value) == (b"\x00key", b"\x80raw")
    assert [*record.headers][:3] == headers
    assert (letter.reason, letter.detail, letter.topic) == (
        "invalid-event",
        "the header `ce_id` is not UTF-8",
        world.name.event_topic,
    )


def test_a_newer_generation_takes_over_and_keeps_what_fits(world: World) -> None:
    old = world.start(world.sensor(both="a && b && c", gone="c && d"))
    world.publish("ac")
    old.settle()
    old.stop()
    new = world.start(world.sensor(generation=2, both="a && b"))
    world.publish("b", prefix="f")
    new.settle()
    assert world.calls == [("both", {"a": "e0", "b": "f0"})]
    assert sorted((letter.reason, letter.trigger) for letter in world.dead_letters()) == [
        ("spec-changed", "both"),
        ("spec-changed", "gone"),
    ]
    assert all(header(record.headers, TRIGGER_HEADER) for record in world.records(world.name.topic(Kind.DLQ)))


def test_each_generation_notes_from_where_on_it_has_matched_events(world: World) -> None:
    """For audits: what came before was matched by another spec."""
    old = world.start(world.sensor(each="a"))
    world.publish("aba")
    old.settle()
    old.stop()
    committed = world.bus.cluster.committed(world.name.group(Stage.MATCH), world.name.event_topic)
    ends = {partition: commit.offset for partition, commit in committed.items() if commit}
    for _ in range(2):  # it is noted once, however often the generation starts
        new = world.start(world.sensor(generation=2, each="a", other="b"))
        world.publish("b", prefix="f")
        new.settle()
        new.stop()
    notes = [
        (decode_state_key(record), origin(record).offset, origin(record).generation)
        for record in world.records(world.name.topic(Kind.STATE))
        if (record.key or b"").startswith(b'["origin","match')
    ]
    assert sorted(notes, key=str) == sorted(
        [(OriginKey("match", partition), 0, 1) for partition in ends]
        + [(OriginKey("match/2", partition), end, 2) for partition, end in ends.items()],
        key=str,
    )


def test_what_is_held_can_be_seen_from_outside(world: World) -> None:
    sensor = world.sensor(both="a && b", either="a || c")
    replica = world.start(sensor)
    world.publish("a")
    replica.settle()
    [state] = world.state(sensor)
    assert (state.trigger, state.missing) == ("both", [["b"]])
    assert [(event.dependency, event.source, event.id) for event in state.held] == [("a", "shop", "e0")]


def test_metrics_tell_what_happened(world: World) -> None:
    replica = world.start(world.sensor(each="a"))
    world.publish("aaa")
    replica.settle()
    registry = replica.metrics.registry
    sensor = str(world.name)
    assert registry.get_sample_value("eventbus_records_received_total", {"sensor": sensor, "stage": "match"}) == 3
    assert registry.get_sample_value("eventbus_records_written_total", {"sensor": sensor, "kind": "action"}) == 3
    assert registry.get_sample_value("eventbus_lag_records", {"sensor": sensor, "stage": "match"}) == 0
    assert replica.healthy()


def test_stopping_waits_for_the_action_that_runs(world: World) -> None:
    release, begun = Flag(), Flag()

    def act(call: ActionCall) -> None:
        begun.set()
        release.wait(30)
        world.note(call)

    replica = world.start(world.sensor(each="a", at_least_once=False, function=act))
    world.publish("a")
    assert begun.wait(30)
    release.set()
    replica.stop()
    assert world.calls == [("each", {"a": "e0"})]
    assert [note.outcome for note in world.invocations()] == ["taken", "succeeded"]
