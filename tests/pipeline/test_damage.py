"""Damage to the log under a sensor is dead-lettered, or stops the sensor with advice. It never passes silently."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TypeAlias

import pytest

from eventbus import Event
from eventbus.cloudevents import to_kafka
from eventbus.errors import ConfigError, EventBusError, FatalError, FormatError, NewerFormatError
from eventbus.formats import DLQ_HEADER
from eventbus.names import Kind, Stage
from eventbus.ports import Output, Record, TopicSpec
from eventbus.stateformats import HeldKey, IdentityKey, encode_state_key
from eventbus.topics import event_topic, sensor_topics
from sensors import Replica, Sensor, Settings
from sensors.runner import guard
from tests.pipeline.world import World

Damage: TypeAlias = Callable[[Record], Output]

DEEP = b'{"specversion":"1.0","id":"1","source":"s","type":"t","data":' + b"[" * 100_000
HUGE = b'{"v":1,"t":"both","d":["a"],"e":[0,%d,0],"s":"AAAA"}' % 10**40


def with_value(change: Callable[[bytes], bytes | None]) -> Damage:
    return lambda record: _written(record, value=change(record.value or b""))


def with_fact(change: Callable[[bytes], bytes | None]) -> Damage:
    return lambda record: _written(record, headers=[(name, change(raw or b"")) for name, raw in record.headers])


def without_fact(record: Record) -> Output:
    return _written(record, headers=[("other", b"1")])


def _written(
    record: Record, *, value: bytes | None = b"same", headers: list[tuple[str, bytes | None]] | None = None
) -> Output:
    value = record.value if value == b"same" else value
    return Output(
        record.topic, record.partition, record.key, value, list(record.headers) if headers is None else headers
    )


FACT_DAMAGE = {
    "fact cut": with_fact(lambda raw: raw[: len(raw) // 2]),
    "fact garbage": with_fact(lambda _: b"\x80\xff\x00"),
    "fact null": with_fact(lambda _: None),
    "fact nested too deeply": with_fact(lambda _: b'{"v":1,"x":' + b"[" * 100_000),
    "fact missing": without_fact,
}
VALUE_DAMAGE = {
    "value cut": with_value(lambda value: value[: len(value) // 2]),
    "value garbage": with_value(lambda _: b"\x80\xff\x00"),
    "value empty": with_value(lambda _: b""),
    "value nested too deeply": with_value(lambda _: DEEP),
}
ALL_DAMAGE = FACT_DAMAGE | VALUE_DAMAGE
newer = with_fact(lambda raw: raw.replace(b'"v":1', b'"v":2'))


@pytest.fixture(autouse=True)
def _no_bug_is_reported(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    yield
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []


@pytest.fixture
def _watchful(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at the topics more often than usual, so that the tests need not wait for it."""
    monkeypatch.setattr(guard, "_INTERVAL", 0.5)


def latest(world: World, kind: Kind, key: bytes | None = None) -> Record:
    """The last record of a topic that was written to once, or that of a key."""
    return [record for record in world.records(world.name.topic(kind)) if key in (None, record.key)][-1]


def stopped(replica: Replica) -> EventBusError:
    assert replica.wait(60), "it goes on as if nothing had happened"
    with pytest.raises(EventBusError) as failure:
        replica.stop()  # which also waits until it has left its groups
    return failure.value


def assert_dead_lettered(world: World, damaged: list[Output], reason: str) -> None:
    """Each with its bytes, and nothing else."""
    letters = world.records(world.name.topic(Kind.DLQ))
    kept = [
        (letter.key, letter.value, [entry for entry in letter.headers if entry[0] != DLQ_HEADER]) for letter in letters
    ]
    assert kept == [(output.key, output.value, [*output.headers]) for output in damaged]
    assert {letter.reason for letter in world.dead_letters()} == {reason}
    assert {(letter.topic, letter.partition) for letter in world.dead_letters()} == {
        (output.topic, output.partition) for output in damaged
    }


# --- state records --------------------------------------------------------------------------------------------------


def hold_in_the_state_topic(world: World) -> Sensor:
    sensor = world.sensor(one="a && b", other="c && d")
    replica = world.start(sensor, settings=Settings(horizon_records=0))
    world.publish("ac")
    replica.settle()
    replica.stop()
    return sensor


HELD = encode_state_key(HeldKey("one", "", "a"))


@pytest.mark.parametrize("damage", ["fact cut", "fact missing", "value cut", "value nested too deeply"])
def test_a_damaged_held_event_stops_the_replica_until_it_is_given_up(world: World, damage: str) -> None:
    sensor = hold_in_the_state_topic(world)
    good = latest(world, Kind.STATE, HELD)
    world.send(ALL_DAMAGE[damage](good))
    error = world.failure(sensor)
    assert isinstance(error, FormatError)
    assert f"{good.topic}[{good.partition}]@" in str(error)
    assert f"write a record with the key {HELD!r} and no value" in str(error)
    world.send(Output(good.topic, good.partition, HELD, None))
    replica = world.start(sensor)
    world.publish("bd", prefix="f")
    replica.settle()
    assert world.calls == [("other", {"c": "e1", "d": "f1"})]
    assert [state.held for state in world.state(sensor) if state.trigger == "other"] == [[]]


def test_a_held_event_that_is_written_again_is_held_again(world: World) -> None:
    sensor = hold_in_the_state_topic(world)
    good = latest(world, Kind.STATE, HELD)
    world.send(VALUE_DAMAGE["value cut"](good))
    world.send(Output(good.topic, good.partition, good.key, good.value, good.headers))
    replica = world.start(sensor)
    world.publish("b", prefix="f")
    replica.settle()
    assert world.calls == [("one", {"a": "e0", "b": "f0"})]


@pytest.mark.parametrize("key", [b"\xff\x00", HELD[: len(HELD) // 2], b"[" * 100_000], ids=["garbage", "cut", "deep"])
def test_a_state_record_with_an_unknown_key_stops_the_replica_until_it_is_given_up(world: World, key: bytes) -> None:
    sensor = hold_in_the_state_topic(world)
    good = latest(world, Kind.STATE, HELD)
    world.send(Output(good.topic, good.partition, key, good.value, good.headers))
    error = world.failure(sensor)
    assert isinstance(error, FormatError)
    assert f"{good.topic}[{good.partition}]@" in str(error)
    assert "the key is not one of ours" in str(error)
    assert "and no value" in str(error)
    world.send(Output(good.topic, good.partition, key, None))
    replica = world.start(sensor)
    world.publish("bd", prefix="f")
    replica.settle()
    assert sorted(world.calls) == [("one", {"a": "e0", "b": "f0"}), ("other", {"c": "e1", "d": "f1"})]


def test_an_identity_that_was_removed_stops_the_replica(world: World) -> None:
    sensor = hold_in_the_state_topic(world)
    for partition in range(3):
        world.send(Output(world.name.topic(Kind.STATE), partition, encode_state_key(IdentityKey()), None))
    assert "has no identity in partition" in str(world.failure(sensor))


# --- trigger records ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("restart", [False, True], ids=["running", "replayed"])
def test_a_damaged_trigger_record_is_dead_lettered_and_the_events_around_it_join(world: World, restart: bool) -> None:
    """On a restart it lies between the held event and the position, where it must not be dead-lettered again."""
    sensor = world.sensor(both="a && b")
    replica = world.start(sensor)
    world.publish("a")
    replica.settle()
    good = latest(world, Kind.TRIGGER)
    damaged = [damage(good) for damage in [*ALL_DAMAGE.values(), with_fact(lambda _: HUGE)]]
    for output in damaged:
        world.send(output)
    if restart:
        replica.settle()
        replica.stop()
        replica = world.start(sensor)
    world.publish("b", prefix="f")
    replica.settle()
    assert world.calls == [("both", {"a": "e0", "b": "f0"})]
    assert_dead_lettered(world, damaged, "invalid-record")
    offsets = [record.offset for record in world.records(good.topic) if record.offset > good.offset]
    assert [letter.offset for letter in world.dead_letters()] == offsets[: len(damaged)]


# --- action records -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at_least_once", [True, False])
@pytest.mark.parametrize(
    ("damages", "reason"), [(FACT_DAMAGE, "invalid-record"), (VALUE_DAMAGE, "action-failed")], ids=["fact", "value"]
)
def test_a_damaged_action_record_is_dead_lettered_and_the_others_are_invoked(
    world: World, damages: dict[str, Damage], reason: str, at_least_once: bool
) -> None:
    replica = world.start(world.sensor(each="a", at_least_once=at_least_once))
    world.publish("a")
    replica.settle()
    good = latest(world, Kind.ACTION)
    damaged = [damage(good) for damage in damages.values()]
    for output in damaged:
        world.send(output)
    world.publish("a", prefix="f")
    replica.settle()
    assert world.calls == [("each", {"a": "e0"}), ("each", {"a": "f0"})]
    assert_dead_lettered(world, damaged, reason)


# --- records of a newer release -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Kind.TRIGGER, Kind.ACTION])
def test_a_record_of_a_newer_release_stops_the_replica_and_is_left_to_that_release(world: World, kind: Kind) -> None:
    sensor = world.sensor(both="a && b", each="a")
    replica = world.start(sensor)
    world.publish("a")
    replica.settle()
    good = latest(world, kind)
    world.send(newer(good))
    for error in (stopped(replica), world.failure(sensor)):
        assert isinstance(error, NewerFormatError)
        assert str(error).startswith(f"{good.topic}[{good.partition}]@")
        assert "written in format version 2, and this program knows version 1" in str(error)
    assert world.dead_letters() == []
    assert world.calls == [("each", {"a": "e0"})]


def test_a_held_event_of_a_newer_release_stops_the_replica(world: World) -> None:
    sensor = hold_in_the_state_topic(world)
    world.send(newer(latest(world, Kind.STATE, HELD)))
    error = world.failure(sensor)
    assert isinstance(error, NewerFormatError)
    assert "run the release that wrote it" in str(error)


def test_an_identity_of_a_newer_release_stops_the_replica(world: World) -> None:
    sensor = hold_in_the_state_topic(world)
    key = encode_state_key(IdentityKey())
    found = latest(world, Kind.STATE, key)
    value = (found.value or b"").replace(b'"v":1', b'"v":2')
    world.send(Output(found.topic, found.partition, key, value))
    assert isinstance(world.failure(sensor), NewerFormatError)


# --- topics ---------------------------------------------------------------------------------------------------------


def topic_of(world: World, kind: Kind | None) -> str:
    return world.name.event_topic if kind is None else world.name.topic(kind)


def spec_of(world: World, kind: Kind | None) -> TopicSpec:
    specs = [event_topic(world.bus.name, 3), *sensor_topics(world.name, 3)]
    return next(spec for spec in specs if spec.name == topic_of(world, kind))


NEEDED = {"event": None, "trigger": Kind.TRIGGER, "state": Kind.STATE, "action": Kind.ACTION}
EXPLAINED = "has no committed offset for|has no identity in partition"


@pytest.mark.usefixtures("_watchful")
@pytest.mark.parametrize("kind", NEEDED.values(), ids=NEEDED)
def test_a_topic_that_is_deleted_stops_the_replica_and_nothing_is_begun_anew(world: World, kind: Kind | None) -> None:
    """Neither what is read from it nor what is written to it may pass for something else."""
    sensor = world.sensor(both="a && b", each="c")
    replica = world.start(sensor, settings=Settings(horizon_records=0))
    world.publish("ac")
    replica.settle()
    topic = topic_of(world, kind)
    world.bus.cluster.delete([topic])
    if kind is not None:
        world.publish("acac", prefix="f")
    error = stopped(replica)
    assert isinstance(error, FatalError)
    assert f"the topic `{topic}` was deleted while the sensor {world.name} was running" in str(error)
    assert world.bus.cluster.describe([topic])[topic] is None
    assert world.dead_letters() == []
    again = world.failure(sensor)
    assert isinstance(again, FatalError)
    assert re.search(EXPLAINED, str(again))


@pytest.mark.usefixtures("_watchful")
@pytest.mark.parametrize("kind", NEEDED.values(), ids=NEEDED)
def test_a_topic_that_is_made_anew_stops_the_replica(world: World, kind: Kind | None) -> None:
    """Even when it has offsets as high as the old one had: nobody could tell by them."""
    sensor = world.sensor(both="a && b", each="c")
    replica = world.start(sensor)
    world.publish("ac")
    replica.settle()
    topic = topic_of(world, kind)
    world.bus.cluster.delete([topic])
    world.bus.cluster.create([spec_of(world, kind)])
    if kind is None:
        world.publish("acac", prefix="f")
    error = stopped(replica)
    assert isinstance(error, FatalError)
    assert topic in str(error)
    assert re.search("made anew|was deleted", str(error))
    reading = [stage for stage in Stage if world.name.input_topic(stage) == topic]
    world.forget_offsets(reading)
    assert re.search(EXPLAINED, str(world.failure(sensor)))


def test_an_event_topic_that_was_made_anew_while_nobody_ran_stops_the_replica(world: World) -> None:
    sensor = world.sensor(each="a")
    replica = world.start(sensor)
    world.publish("aa")
    replica.settle()
    replica.stop()
    world.bus.cluster.delete([world.name.event_topic])
    world.bus.ensure(3)
    world.publish("aaaa", prefix="f")
    error = world.failure(sensor)
    assert f"the group `{world.name.group(Stage.MATCH)}` has no committed offset for" in str(error)
    assert len(world.calls) == 2


# --- partitions -----------------------------------------------------------------------------------------------------


def test_a_partition_that_is_added_to_the_event_topic_is_read_from_its_beginning(world: World) -> None:
    replica = world.start(world.sensor(each="a"))
    partition = world.add_partition(world.name.event_topic)
    headers, value = to_kafka(Event.new("shop", "a", id="early"))
    world.send(Output(world.name.event_topic, partition, None, value, headers))
    world.publish("a")
    world.wait_for_calls(2)
    assert sorted(call[1]["a"] for call in world.calls) == ["e0", "early"]
    assert replica.failure is None


@pytest.mark.usefixtures("_watchful")
@pytest.mark.parametrize("kind", [Kind.TRIGGER, Kind.STATE, Kind.ACTION])
def test_a_partition_that_is_added_where_keys_would_move_stops_the_replica_and_the_next(
    world: World, kind: Kind
) -> None:
    sensor = world.sensor(both="a && b")
    replica = world.start(sensor)
    world.publish("a")
    replica.settle()
    topic = topic_of(world, kind)
    world.add_partition(topic)
    assert f"the topic `{topic}` had 3 partitions and now has 4" in str(stopped(replica))
    if kind is Kind.ACTION:
        error: EventBusError = world.failure(sensor)
    else:
        with pytest.raises(ConfigError) as refused:
            sensor.start(world.bus)
        error = refused.value
    assert topic in str(error)
    assert re.search("[Dd]elete|bring back", str(error))


@pytest.mark.usefixtures("_watchful")
def test_the_advice_for_an_action_topic_with_more_partitions_helps(world: World) -> None:
    sensor = world.sensor(both="a && b")
    replica = world.start(sensor)
    world.publish("ab")
    replica.settle()
    world.add_partition(topic_of(world, Kind.ACTION))
    stopped(replica)
    assert "Drain the sensor, delete its trigger, action and state topics" in str(world.failure(sensor))
    world.forget_offsets([Stage.JOIN, Stage.INVOKE])
    for kind in (Kind.TRIGGER, Kind.ACTION, Kind.STATE):
        world.forget_topic(kind)
    again = world.start(sensor)
    world.publish("ab", prefix="f")
    again.settle()
    assert world.calls == [("both", {"a": "e0", "b": "e1"}), ("both", {"a": "f0", "b": "f1"})]
