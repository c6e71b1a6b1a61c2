"""Faults of argo-events where several events make one action."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from eventbus import Bus, Event
from eventbus.clock import SystemClock
from eventbus.errors import Superseded
from eventbus.memory import MemoryCluster
from eventbus.metadata import decode_join
from eventbus.names import BusName, Kind, Stage
from eventbus.ports import TopicSpec
from sensors import Sensor, Settings
from sensors.inspection import stable_commits
from sensors.spec.loader import load_text
from sensors.spec.problems import ManifestError
from tests.pipeline.world import DEPENDENCIES, World

TWO_SOURCES = """\
apiVersion: argoproj.io/v1alpha1
kind: Sensor
metadata: {{name: s}}
spec:
  dependencies:
    - {{name: a, eventSourceName: shop, eventName: a}}
    - {{name: b, eventSourceName: shop, eventName: b}}
  triggers:
    - template:
        name: both
        conditions: {conditions}
        kafka:
          topic: both
          payload:
            - {{src: {{dependencyName: a, dataKey: order}}, dest: order}}
            - {{src: {{dependencyName: b, dataKey: box}}, dest: box}}
"""


def _event(name: str, id: str, key: str) -> Event:
    return Event.new("shop", name, {"order": id, "box": id}, id=id, partitionkey=key)


def _with_many_triggers(world: World, count: int) -> Sensor:
    sensor = Sensor("s", DEPENDENCIES)
    for number in range(count):
        sensor.trigger(f"a-trigger-with-quite-a-long-name-{number:03}", "a && b", at_least_once=True)(world.note)
    return sensor


def test_problem_01_events_of_one_trigger_meet_whatever_partitions_and_replicas_there_are(world: World) -> None:
    """Events of one trigger land in different partitions, hence in different replicas, and never meet."""
    sensor = _with_many_triggers(world, 8)
    replicas = [world.start(sensor), world.start(sensor)]
    world.bus.publish(_event("a", "a1", key="x"), _event("b", "b1", key="y"))
    world.wait_for_calls(8)
    for replica in replicas:
        replica.settle()
    assert len({trigger for trigger, _ in world.calls}) == len(world.calls) == 8
    assert all(events == {"a": "a1", "b": "b1"} for _, events in world.calls)


def test_problem_02_an_event_that_has_fired_does_not_come_back_after_a_restart(world: World) -> None:
    """After a restart an event that has fired already is paired with a new one."""
    sensor = world.sensor(both="a && b")
    replica = world.start(sensor)
    world.bus.publish(_event("a", "a1", key="x"))
    replica.settle()
    world.bus.publish(_event("b", "b1", key="y"))
    replica.settle()
    replica.stop()
    again = world.start(sensor)
    world.bus.publish(_event("b", "b2", key="z"))
    again.settle()
    assert world.calls == [("both", {"a": "a1", "b": "b1"})]
    [state] = world.state(sensor)
    assert [event.id for event in state.held] == ["b2"]


def test_problem_03_partitions_that_are_read_at_the_same_time_use_no_event_twice(world: World) -> None:
    """What is held is changed from several threads without a lock."""
    replica = world.start(world.sensor(both="a && b"))
    world.bus.publish(*(_event(name, f"{name}{n}", key=str(n)) for n in range(200) for name in "ab"))
    replica.settle()
    used = [event for _, events in world.calls for event in events.values()]
    assert world.calls
    assert all(sorted(events) == ["a", "b"] for _, events in world.calls)
    assert len(used) == len(set(used))


def test_problem_04_the_action_gets_the_data_of_all_events(world: World) -> None:
    """`a && b` loses the data of `a`; a payload that needs it crashes the sensor."""
    world.bus.cluster.create([TopicSpec("both", 1, {})])
    replica = world.start(Sensor.of(load_text(TWO_SOURCES.format(conditions="a && b"), "s.yaml")[0]))
    world.bus.publish(_event("a", "17", key="x"))
    replica.settle()
    world.bus.publish(_event("b", "large", key="y"))
    replica.settle()
    assert [record.value for record in world.records("both")] == [b'{"order":"17","box":"large"}']


def test_pain_1366_a_parameter_of_an_event_that_is_not_there_is_left_out(world: World) -> None:
    """With several dependencies, parameters are empty, or crash the sensor."""
    world.bus.cluster.create([TopicSpec("both", 1, {})])
    replica = world.start(Sensor.of(load_text(TWO_SOURCES.format(conditions="a || b"), "s.yaml")[0]))
    world.bus.publish(_event("a", "17", key="x"))
    replica.settle()
    assert [record.value for record in world.records("both")] == [b'{"order":"17"}']


def test_problem_10_an_event_that_satisfies_two_alternatives_fires_once(world: World) -> None:
    """One event that matches two dependencies of `a || b` fires twice."""
    sensor = Sensor("s", {"a": ("shop", "order"), "b": ("shop", "order")})
    sensor.trigger("either", "a || b")(world.note)
    replica = world.start(sensor)
    world.bus.publish(_event("order", "o1", key="x"))
    replica.settle()
    assert [trigger for trigger, _ in world.calls] == ["either"]


def test_problem_12_an_event_that_is_held_for_long_does_not_depend_on_the_retention_of_the_log(world: World) -> None:
    """An event that is held for longer than the log is kept takes everything else with it."""
    sensor, settings = world.sensor(old="a && b", busy="c && d"), Settings(horizon_records=0)
    replica = world.start(sensor, settings=settings)
    world.publish("ac" + "cd" * 5)
    replica.settle()
    replica.stop()
    group, topic = world.name.group(Stage.JOIN), world.name.topic(Kind.TRIGGER)
    assert isinstance(world.bus.cluster, MemoryCluster)
    for partition, commit in stable_commits(world.bus.cluster, group, topic, SystemClock()).items():
        assert commit is not None
        world.bus.cluster._broker.partition(topic, partition).truncate(commit.offset)
    again = world.start(sensor, settings=settings)
    world.publish("b", prefix="f")
    again.settle()
    assert ("old", {"a": "e0", "b": "f0"}) in world.calls


def test_problem_13_hundreds_of_triggers_fit_into_the_metadata_of_a_commit(world: World) -> None:
    """Some 90 triggers that hold something exceed the size of offset metadata, and the sensor dies."""
    sensor = _with_many_triggers(world, 300)
    replica = world.start(sensor)
    world.publish("a")
    replica.settle()
    replica.stop()
    group, topic = world.name.group(Stage.JOIN), world.name.topic(Kind.TRIGGER)
    for commit in stable_commits(world.bus.cluster, group, topic, SystemClock()).values():
        assert commit is not None
        assert len(commit.metadata) <= 4000
        decode_join(commit.offset, commit.metadata)
    again = world.start(sensor)
    world.publish("b", prefix="f")
    again.settle()
    assert len(world.calls) == 300
    assert all(events == {"a": "e0", "b": "f0"} for _, events in world.calls)


def test_problem_15_every_sensor_sees_every_event_and_equal_names_do_not_meet(world: World) -> None:
    """Sensors of one bus share a group and miss events; those of equal names in two namespaces fire for each other."""
    cluster = world.bus.cluster
    other = Sensor("other", DEPENDENCIES)
    other.trigger("other", "a")(world.note)
    replicas = [world.start(world.sensor(mine="a")), world.start(other)]
    with World(Bus(cluster, BusName("elsewhere", "default"))) as elsewhere:
        namesake = elsewhere.start(elsewhere.sensor(mine="a"))
        world.publish("aaaa")
        for replica in (*replicas, namesake):
            replica.settle()
        assert elsewhere.calls == []
    assert sorted(trigger for trigger, _ in world.calls) == ["mine"] * 4 + ["other"] * 4


def test_problem_16_a_changed_spec_takes_over_and_what_no_longer_fits_is_kept(world: World) -> None:
    """While a spec is rolled out, old replicas silently drop what belongs to triggers that they do not know."""
    old = world.start(world.sensor(gone="a && b", stays="a && c"))
    world.publish("a")
    old.settle()
    new = world.start(world.sensor(generation=2, stays="a && c", added="c"))
    world.wait_for_generation(2)
    with suppress(Superseded):  # which it may have noticed already
        old.stop()
    world.publish("c", prefix="f")
    world.wait_for_calls(2)
    new.settle()
    assert sorted(world.calls) == [("added", {"c": "f0"}), ("stays", {"a": "e0", "c": "f0"})]
    assert [(letter.reason, letter.trigger) for letter in world.dead_letters()] == [("spec-changed", "gone")]


def test_problem_17_a_wrong_condition_is_refused_before_anything_runs() -> None:
    """One wrong condition silences all triggers, while the sensor seems to run."""
    with pytest.raises(ManifestError) as error:
        load_text(TWO_SOURCES.format(conditions="a && bb"), "s.yaml")
    assert "s.yaml:11:26: there is no dependency `bb`" in str(error.value)


def test_pain_3063_a_sensor_with_two_dependencies_fires(world: World) -> None:
    """On Kafka, a sensor with two dependencies never fires."""
    replica = world.start(world.sensor(both=""), settings=None)
    world.bus.publish(*(Event.new("shop", name, id=name) for name in "abcd"))
    replica.settle()
    assert world.calls == [("both", {name: name for name in "abcd"})]


def test_pain_3016_what_is_held_and_what_is_missing_can_be_seen(world: World) -> None:
    """The topics are a black box."""
    sensor = world.sensor(both="a && b")
    replica = world.start(sensor)
    world.publish("a")
    replica.settle()
    [state] = world.state(sensor)
    assert ([event.id for event in state.held], state.missing) == (["e0"], [["b"]])


def test_pain_3326_events_that_come_at_the_same_time_are_all_acted_upon(world: World) -> None:
    """Of events that come at nearly the same time, some are dropped."""
    replica = world.start(world.sensor(each="a", joined="a && b"))
    world.bus.publish(*(_event("a", f"a{n}", key=str(n)) for n in range(300)))
    replica.settle()
    assert sorted(events["a"] for _, events in world.calls) == sorted(f"a{n}" for n in range(300))


def test_pain_2146_a_sensor_may_be_large(world: World, tmp_path: Path) -> None:
    """A sensor is passed on in an environment variable, for which large ones are too large."""
    head, trigger = TWO_SOURCES.format(conditions="a").split("    - template:\n")
    text = head + "".join(
        "    - template:\n" + trigger.replace("name: both", f"name: t{number}") for number in range(1500)
    )
    assert len(text) > 300_000
    (tmp_path / "s.yaml").write_text(text)
    assert len(Sensor.load(tmp_path / "s.yaml").manifest.spec.triggers) == 1500


def test_pain_3017_the_partition_key_of_a_record_comes_from_the_event(world: World) -> None:
    """The key of a record that is written cannot depend on the event."""
    world.bus.cluster.create([TopicSpec("both", 8, {})])
    keyed = "          parameters: [{src: {dependencyName: a, dataKey: order}, dest: partitioningKey}]\n"
    replica = world.start(Sensor.of(load_text(TWO_SOURCES.format(conditions="a") + keyed, "s.yaml")[0]))
    world.bus.publish(_event("a", "ada", key="x"), _event("a", "bob", key="x"))
    replica.settle()
    assert sorted(record.key or b"" for record in world.records("both")) == [b"ada", b"bob"]
