"""What must never pass silently: lost offsets, foreign state, unknown formats, misfitting topics, oversized records."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from eventbus import Bus, Event
from eventbus.errors import ConfigError, EventBusError, FatalError, FormatError, Superseded, UnproducibleError
from eventbus.formats import ACTION_HEADER, header
from eventbus.names import BusName, Kind, SensorName, Stage
from eventbus.ports import Commit, TopicSpec
from eventbus.topics import ensure_sensor_topics, sensor_topics
from sensors import Sensor
from tests.pipeline.world import DEPENDENCIES, World


class Nobody:
    """A listener that does nothing."""

    def assigned(self, _partitions: object) -> None: ...
    def revoked(self, _partitions: object) -> None: ...
    def lost(self, _partitions: object) -> None: ...


def commit_by_another_program(world: World, stage: Stage, offset: int, metadata: str) -> None:
    """Overwrite the group's commits, as a careless operator or a newer release might."""
    topic = world.name.input_topic(stage)
    consumer = world.bus.cluster.consumer(world.name.group(stage), topic, Nobody())
    producer = world.bus.cluster.producer(f"{world.name.prefix}-intruder")
    producer.init()
    try:
        for _ in range(100):
            consumer.poll(1, 0.1)
            try:
                metadata_of_group = consumer.group_metadata()
            except EventBusError:
                continue
            producer.begin()
            commits = [Commit(partition, offset, metadata) for partition in range(3)]
            try:
                producer.send_offsets(topic, commits, metadata_of_group)
                producer.commit()
            except EventBusError:
                producer.abort()
                continue
            return
        pytest.fail("the intruder could not commit")
    finally:
        producer.close()
        consumer.close()


@pytest.mark.parametrize("stage", list(Stage))
def test_metadata_of_an_unknown_version_stops_the_replica(world: World, stage: Stage) -> None:
    sensor = world.sensor(both="a && b")
    world.start(sensor).stop()
    commit_by_another_program(world, stage, 0, "z9;something newer")
    error = world.failure(sensor)
    assert isinstance(error, FormatError)
    assert "z9;something newer" in str(error)


@pytest.mark.parametrize("stage", list(Stage))
def test_committed_offsets_that_are_gone_while_state_exists_stop_the_replica(world: World, stage: Stage) -> None:
    sensor = world.sensor(both="a && b")
    replica = world.start(sensor)
    world.publish("a")
    replica.settle()
    replica.stop()
    world.forget_offsets([stage])
    error = world.failure(sensor)
    assert isinstance(error, FatalError)
    assert re.match(rf"the group `{world.name.group(stage)}` has no committed offset for .*has run before", str(error))


def test_state_that_is_gone_while_offsets_exist_stops_the_replica(world: World) -> None:
    sensor = world.sensor(both="a && b")
    world.start(sensor).stop()
    world.forget_topic(Kind.STATE)
    error = world.failure(sensor)
    assert "has no identity in partition" in str(error)


def test_the_same_generation_with_another_spec_is_refused(world: World) -> None:
    world.start(world.sensor(both="a && b")).stop()
    error = world.failure(world.sensor(both="a && c"))
    assert "has run with another spec under the same generation 1" in str(error)
    assert "raise `metadata.generation`" in str(error)


def test_a_lower_generation_stops(world: World) -> None:
    world.start(world.sensor(generation=2, both="a && c")).stop()
    error = world.failure(world.sensor(both="a && b"))
    assert isinstance(error, Superseded)


def test_a_replica_of_an_older_generation_stops_when_a_newer_one_joins(world: World) -> None:
    old = world.start(world.sensor(both="a && b"))
    new = world.start(world.sensor(generation=2, both="a && c"))
    world.wait_for_generation(2)
    new.stop()
    assert old.wait(30)
    assert isinstance(old.failure, Superseded)


def test_two_sensors_whose_topics_have_the_same_names_are_refused(world: World) -> None:
    namespace = world.bus.name.namespace
    mine = SensorName(BusName(namespace, "bus"), "x-s")
    theirs = SensorName(BusName(f"{namespace}-bus", "x"), "s")
    assert mine.topic(Kind.STATE) == theirs.topic(Kind.STATE)
    first = Sensor("x-s", DEPENDENCIES)
    first.trigger("t", "a && b")(world.note)
    world.start(first).stop()
    with World(Bus(world.bus.cluster, theirs.bus)) as other:
        error = other.failure(other.sensor(t="a && b"))
    assert isinstance(error, FatalError)
    assert re.search("[Gg]ive one of them another name", str(error))


def test_a_state_topic_with_another_partition_count_is_explained(world: World) -> None:
    specs = {spec.name: spec for spec in sensor_topics(world.name, 3)}
    state = world.name.topic(Kind.STATE)
    world.bus.cluster.create([TopicSpec(state, 2, specs[state].config)])
    with pytest.raises(ConfigError, match=rf"`{state}` has 2 partitions and must have as many as .* which has 3"):
        ensure_sensor_topics(world.bus.cluster, world.name)


def test_a_topic_with_another_partition_count_than_asked_for_is_explained(world: World) -> None:
    with pytest.raises(ConfigError, match="has 3 partitions and 5 were asked for: leave the number out"):
        world.bus.ensure(5)


@pytest.mark.parametrize(
    ("kind", "setting", "value", "message"),
    [
        (Kind.STATE, "cleanup.policy", "delete", "cleanup.policy=delete, which must be compact"),
        (Kind.TRIGGER, "cleanup.policy", "compact", "cleanup.policy=compact, which must be delete"),
        (Kind.TRIGGER, "retention.ms", "60000", "retention.ms=60000, which must be at least 7200000"),
        (Kind.ACTION, "max.message.bytes", "1000000", "max.message.bytes=1000000, which must be at least 4194304"),
    ],
)
def test_a_topic_with_settings_that_would_lose_something_is_explained(
    world: World, kind: Kind, setting: str, value: str, message: str
) -> None:
    topic = world.name.topic(kind)
    [spec] = [spec for spec in sensor_topics(world.name, 3) if spec.name == topic]
    world.bus.cluster.create([TopicSpec(topic, 3, {**spec.config, setting: value})])
    with pytest.raises(ConfigError, match=re.escape(message)) as error:
        ensure_sensor_topics(world.bus.cluster, world.name)
    assert f"kafka-configs.sh --alter --topic {topic} --add-config {setting}=" in str(error.value)


def test_an_event_that_is_too_large_is_refused_when_it_is_published(world: World) -> None:
    with pytest.raises(UnproducibleError):
        world.bus.publish(Event.new("shop", "a", b"x" * 5_000_000))


def test_an_action_that_is_too_large_is_dead_lettered_and_stops_nothing(world: World) -> None:
    specs = sensor_topics(world.name, 3)
    world.bus.cluster.create(
        [TopicSpec(spec.name, 3, {**spec.config, "max.message.bytes": str(4 << 20)}) for spec in specs]
    )
    replica = world.start(world.sensor(all="a && b && c && d", each="a"))
    for name in "abcd":
        world.bus.publish(Event.new("shop", name, {"blob": "x" * 900_000}, id=name, partitionkey="k"))
    world.publish("a", prefix="f")
    replica.settle()
    assert sorted(world.calls, key=str) == [("each", {"a": "a"}), ("each", {"a": "f0"})]
    [letter] = world.dead_letters()
    assert letter.reason == "unproducible"
    assert letter.truncated is not None
    assert letter.truncated > 3_600_000
    [record] = world.records(world.name.topic(Kind.DLQ))
    assert header(record.headers, ACTION_HEADER) is not None, "it points to the events"


def test_the_sensor_of_another_bus_is_refused(world: World, tmp_path: Path) -> None:
    path = tmp_path / "sensor.yaml"
    path.write_text(
        """
apiVersion: argoproj.io/v1alpha1
kind: Sensor
metadata: {name: s, namespace: elsewhere}
spec:
  dependencies: [{name: a, eventSourceName: shop, eventName: a}]
  triggers: [{template: {name: t, log: {}}}]
"""
    )
    with pytest.raises(ConfigError, match="the sensor `s` belongs to the bus elsewhere/bus, and this is"):
        Sensor.load(path).start(world.bus)
