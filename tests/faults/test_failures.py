"""Faults of argo-events where something fails: the log, a transaction, a replica, an action."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from itertools import count
from threading import Event as Flag

import pytest

from eventbus import Event
from eventbus.clock import Deadline, ManualClock, SystemClock
from eventbus.errors import AbortableError, EventBusError, FatalError, LogError, RetriableError, UnknownOutcome
from eventbus.memory import MemoryCluster
from eventbus.memory.consumer import MemoryConsumer
from eventbus.memory.producer import MemoryProducer
from eventbus.names import Kind, Stage
from eventbus.ports import Commit, Committed, Output, TopicSpec
from eventbus.topics import sensor_topics
from sensors import ActionCall, ActionError, Replica, RetryPolicy, Sensor, Settings
from sensors.inspection import stable_commits
from sensors.runner import replica as runner
from sensors.spec.loader import make_manifest
from tests.contract.lab import Lab, settle
from tests.faults.conftest import Failing
from tests.pipeline.world import World


def _spread(count: int, prefix: str = "e") -> list[Event]:
    """Events with different keys, which may be acted upon at the same time."""
    return [Event.new("shop", "a", {"n": n}, id=f"{prefix}{n}", partitionkey=f"{n}") for n in range(count)]


def _acted_upon(world: World) -> list[str]:
    return sorted(events["a"] for _, events in world.calls)


def _ids(count: int, prefix: str = "e") -> list[str]:
    return sorted(f"{prefix}{n}" for n in range(count))


# --- the log --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [RetriableError("no answer"), AbortableError("not now")])
def test_problem_05_a_transaction_that_cannot_begin_loses_nothing(
    world: World, failing: Failing, error: LogError
) -> None:
    """When a transaction cannot be begun, its batch is passed over."""
    replica = world.start(world.sensor(each="a"))
    failing(MemoryProducer, "begin", error, range(5))
    world.bus.publish(*_spread(20))
    replica.settle()
    assert _acted_upon(world) == _ids(20)


def test_problem_06_an_abort_is_not_the_end_of_the_process(world: World, failing: Failing) -> None:
    """Every abort ends the process."""
    replica = world.start(world.sensor(each="a"))
    failing(MemoryProducer, "commit", AbortableError("a broker moved"), range(8))
    world.bus.publish(*_spread(20))
    replica.settle()
    assert replica.failure is None
    assert _acted_upon(world) == _ids(20)


def test_a_transaction_that_never_ends_is_told_to_a_person(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody may go on before it has ended, but nobody may wait in silence either."""
    monkeypatch.setattr("sensors.runner.loop._HANGING_SECONDS", 0.0)
    told, committed = Flag(), MemoryConsumer.committed

    def unstable(consumer: MemoryConsumer, partitions: Iterable[int]) -> dict[int, Committed | None]:
        if not told.is_set() and any("a transaction hangs" in record.getMessage() for record in caplog.records):
            told.set()
        if not told.is_set():
            raise RetriableError("a transaction is still pending")
        return committed(consumer, partitions)

    monkeypatch.setattr(MemoryConsumer, "committed", unstable)
    replica = world.start(world.sensor(each="a"))
    assert told.is_set()
    world.publish("a")
    replica.settle()
    assert _acted_upon(world) == ["e0"]


def test_problem_06_a_record_that_is_too_large_stops_nothing(world: World) -> None:
    """Several events whose action is too large together make a crash loop."""
    limit = {"max.message.bytes": str(4 << 20)}
    specs = [TopicSpec(spec.name, 3, {**spec.config, **limit}) for spec in sensor_topics(world.name, 3)]
    world.bus.cluster.create(specs)
    replica = world.start(world.sensor(all="a && b && c && d", each="a"))
    world.bus.publish(*(Event.new("shop", name, "x" * 900_000, id=name, partitionkey="k") for name in "abcd"))
    world.publish("a", prefix="f")
    replica.settle()
    assert _acted_upon(world) == ["a", "f0"]
    assert [letter.reason for letter in world.dead_letters()] == ["unproducible"]


def test_problem_07_whoever_was_thrown_out_of_the_group_can_commit_nothing(namespace: str) -> None:
    """A replica that was thrown out of its group can still rewind offsets."""
    clock = ManualClock()
    lab = Lab(MemoryCluster(clock, session_timeout=6), namespace)
    topic = lab.topic(partitions=1)
    zombie = lab.consumer(topic)
    settle([zombie], lambda: zombie.partitions == {0})
    stale = zombie.consumer.group_metadata()
    heir = lab.consumer(topic)
    for _ in range(2):
        clock.advance(4)
        heir.consumer.poll(1, 0)
    settle([heir], lambda: heir.partitions == {0})
    producer = lab.producer()
    producer.begin()
    with pytest.raises(AbortableError):
        producer.send_offsets(topic, [Commit(0, 0, "zombie")], stale)
    lab.close()


def test_problem_11_what_comes_while_nobody_runs_is_not_missed(world: World) -> None:
    """Partitions that were idle are read from their end after a restart."""
    sensor = world.sensor(each="a", both="a && b")
    world.start(sensor).stop()
    world.bus.publish(*_spread(9))
    replica = world.start(sensor)
    replica.settle()
    replica.stop()
    world.publish("b", prefix="f")
    world.start(sensor).settle()
    assert sorted(events["a"] for trigger, events in world.calls if trigger == "each") == _ids(9)
    assert [events["b"] for trigger, events in world.calls if trigger == "both"] == ["f0"]


def test_problem_18_an_event_that_cannot_be_used_is_kept_and_counted(world: World) -> None:
    """Events that cannot be decoded or transformed are only logged."""
    dependency = {"name": "a", "eventSourceName": "shop", "eventName": "a", "transform": {"jq": ".n + {}"}}
    sensor = Sensor.of(
        make_manifest(
            {
                "apiVersion": "argoproj.io/v1alpha1",
                "kind": "Sensor",
                "metadata": {"name": "s"},
                "spec": {"dependencies": [dependency], "triggers": [{"template": {"name": "t", "log": {}}}]},
            }
        )
    )
    replica = world.start(sensor)
    world.send(Output(world.name.event_topic, 0, None, b"\x80", [("ce_specversion", b"1.0"), ("ce_id", b"\xff")]))
    world.publish("a")
    replica.settle()
    assert sorted(letter.reason for letter in world.dead_letters()) == ["invalid-event", "transform-failed"]
    for reason in ("invalid-event", "transform-failed"):
        labels = {"sensor": str(world.name), "reason": reason}
        assert replica.metrics.registry.get_sample_value("eventbus_dead_letters_total", labels) == 1


def test_pain_3273_a_log_that_does_not_answer_for_a_while_needs_no_restart(world: World, failing: Failing) -> None:
    """A sensor dies after days, or reconnects for ever; only a restart helps."""
    replica = world.start(world.sensor(each="a"))
    failing(MemoryConsumer, "poll", RetriableError("no broker answers"), range(9))
    world.bus.publish(*_spread(5))
    replica.settle()
    assert (replica.failure, _acted_upon(world)) == (None, _ids(5))


def test_pain_2958_a_replica_that_is_stuck_in_a_transaction_says_so(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sensor stalls in the middle of a transaction, and nobody can tell."""
    monkeypatch.setattr(runner, "_STALL_SECONDS", 0.2)
    replica = world.start(world.sensor(each="a"), settings=Settings(drain_seconds=0))
    stuck, released, commit = Flag(), Flag(), MemoryProducer.commit

    def hang(producer: MemoryProducer) -> None:
        stuck.set()
        released.wait(30)
        commit(producer)

    monkeypatch.setattr(MemoryProducer, "commit", hang)
    world.publish("a")
    assert stuck.wait(30)
    _wait_for_complaint(replica, "the match stage has been stuck in one turn")
    released.set()
    replica.settle()
    assert _acted_upon(world) == ["e0"]


def _wait_for_complaint(replica: Replica, expected: str) -> None:
    deadline = Deadline(SystemClock(), 30)
    while not any(complaint.startswith(expected) for complaint in replica.complaints()):
        assert not deadline.over(), replica.complaints()


# --- delivery -------------------------------------------------------------------------------------------------------


def _refuse(_call: ActionCall) -> None:
    raise ActionError("out of order", retriable=True, sent=True, status="503")


def test_problem_08_at_least_once_means_done_or_dead_lettered(world: World) -> None:
    """At least once means attempted: when every try has failed, the action is gone."""
    replica = world.start(world.sensor(each="a", retry=RetryPolicy(steps=3, duration=0.01), function=_refuse))
    world.publish("a")
    replica.settle()
    [letter] = world.dead_letters()
    assert (letter.reason, letter.trigger, letter.detail, letter.attempts) == (
        "action-failed",
        "each",
        "out of order",
        3,
    )


def test_problem_08_one_action_that_hangs_makes_the_others_neither_wait_nor_repeat(world: World) -> None:
    """A slow action blocks its partition, and after a crash everything behind the last commit is repeated."""
    hung, released = Flag(), Flag()

    def act(call: ActionCall) -> None:
        if call.events["a"].id == "e0" and not hung.is_set():
            hung.set()
            released.wait(30)
            return
        world.note(call)

    sensor = world.sensor(each="a", function=act)
    first = world.start(sensor, settings=Settings(drain_seconds=0.1))
    world.bus.publish(*_spread(10))
    world.wait_for_calls(9)
    assert hung.is_set()
    first.stop()
    world.start(sensor).settle()
    released.set()
    assert _acted_upon(world) == _ids(10)


@pytest.mark.parametrize("arrived", [True, False])
def test_problem_09_at_most_once_invokes_nothing_twice_when_a_commit_fails(
    world: World, monkeypatch: pytest.MonkeyPatch, arrived: bool
) -> None:
    """A commit that fails is not noticed, and its actions run again."""
    replica = world.start(world.sensor(each="a", at_least_once=False))
    commit, turns = MemoryProducer.commit, count()

    def lose_the_answer(producer: MemoryProducer) -> None:
        lost = "-invoke-" in producer._id and next(turns) in (0, 3, 4)
        if arrived or not lost:
            commit(producer)
        if lost:
            raise UnknownOutcome("the answer was lost")

    monkeypatch.setattr(MemoryProducer, "commit", lose_the_answer)
    for prefix in "efgh":
        world.bus.publish(*_spread(5, prefix))
        replica.settle()
    assert next(turns) > 5
    assert len(set(_acted_upon(world))) == len(world.calls)
    assert len(world.calls) == 20 if not arrived else len(world.calls) > 0
    taken = {note.action for note in world.invocations() if note.outcome == "taken"}
    assert len(taken) == 20, "those that were lost can be told from the log"


def test_pain_1977_an_action_that_runs_is_not_done_yet(world: World) -> None:
    """An event is acknowledged before its action has run."""
    begun, released = Flag(), Flag()

    def act(_call: ActionCall) -> None:
        begun.set()
        released.wait(30)

    replica = world.start(world.sensor(each="a", function=act))
    world.publish("a")
    assert begun.wait(30)
    assert _done_marks(world) == {0}
    released.set()
    replica.settle()
    assert _done_marks(world) == {0, 1}


def _done_marks(world: World) -> set[int]:
    group, topic = world.name.group(Stage.INVOKE), world.name.topic(Kind.ACTION)
    commits = stable_commits(world.bus.cluster, group, topic, SystemClock())
    return {0 if commit is None else commit.offset for commit in commits.values()}


def test_pain_2340_a_replica_that_dies_loses_no_event(world: World, failing: Failing) -> None:
    """Killing the pods of a sensor loses events."""
    sensor = world.sensor(each="a")
    first = world.start(sensor)
    failing(MemoryProducer, "commit", FatalError("the machine is gone"), range(1, 2))
    world.bus.publish(*_spread(50))
    assert first.wait(30)
    with pytest.raises(EventBusError):
        first.stop()
    world.start(sensor).settle()
    assert sorted(set(_acted_upon(world))) == _ids(50)


@pytest.mark.parametrize(("at_least_once", "sent"), [(True, True), (True, False), (False, False)])
def test_pain_948_a_failed_action_is_tried_again(world: World, at_least_once: bool, sent: bool) -> None:
    """Failed triggers are not retried; without `atLeastOnce` never."""

    def act(call: ActionCall) -> None:
        world.note(call)
        if len(world.calls) < 3:
            raise ActionError("not yet", retriable=True, sent=sent)

    retry = RetryPolicy(steps=5, duration=0.01)
    replica = world.start(world.sensor(each="a", at_least_once=at_least_once, retry=retry, function=act))
    world.publish("a")
    replica.settle()
    assert _acted_upon(world) == ["e0"] * 3
    assert world.dead_letters() == []


def test_pain_3089_what_could_not_be_done_is_kept_with_its_events(world: World) -> None:
    """There is no dead-letter topic: what fails is lost."""
    replica = world.start(world.sensor(both="a && b", at_least_once=False, function=_refuse))
    world.publish("ab")
    replica.settle()
    [record] = world.records(world.name.topic(Kind.DLQ))
    assert all(name in (record.value or b"") for name in (b'"e0"', b'"e1"'))
    assert [letter.detail for letter in world.dead_letters()] == ["out of order"]


def test_pain_3185_retries_are_counted(world: World) -> None:
    """There are no metrics of retries."""
    replica = world.start(world.sensor(each="a", retry=RetryPolicy(steps=4, duration=0.01), function=_refuse))
    world.publish("a")
    replica.settle()
    labels = {"sensor": str(world.name), "trigger": "each"}
    assert replica.metrics.registry.get_sample_value("eventbus_retries_total", labels) == 3


# --- replicas -------------------------------------------------------------------------------------------------------


def test_pain_850_replicas_that_come_and_go_repeat_no_action(world: World) -> None:
    """Triggers are executed twice."""
    sensor = world.sensor(each="a")
    first = world.start(sensor)
    world.bus.publish(*_spread(40))
    second = world.start(sensor)
    world.bus.publish(*_spread(40, prefix="f"))
    world.wait_for_calls(80)
    first.stop()
    second.settle()
    assert _acted_upon(world) == sorted([*_ids(40), *_ids(40, prefix="f")])


def test_pain_1747_replicas_need_no_leader(world: World) -> None:
    """With several replicas there are two leaders, or none; with one, leader election crashes it."""
    sensor = world.sensor(each="a")
    first, second = world.start(sensor), world.start(sensor)
    world.bus.publish(*_spread(60))
    world.wait_for_calls(60)
    for replica in (first, second):
        replica.settle()
    assert len({note.replica for note in world.invocations()}) == 2
    first.stop()
    world.bus.publish(*_spread(10, prefix="f"))
    second.settle()
    assert _acted_upon(world) == sorted([*_ids(60), *_ids(10, prefix="f")])


def test_pain_2451_no_more_actions_run_at_a_time_than_allowed(world: World) -> None:
    """Nothing limits how many actions run at a time."""
    pairs, lock = threading.Barrier(2, timeout=30), threading.Lock()
    running: set[str] = set()
    most = 0

    def act(call: ActionCall) -> None:
        nonlocal most
        with lock:
            running.add(call.id)
            most = max(most, len(running))
        pairs.wait()
        with lock:
            running.remove(call.id)

    replica = world.start(world.sensor(each="a", function=act), settings=Settings(concurrency=2))
    world.bus.publish(*_spread(20))
    replica.settle()
    assert most == 2
