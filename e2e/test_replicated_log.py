"""The log that everything rests on: what it has acknowledged survives the loss of any broker, and of all of them.

Acknowledged means: written by all in-sync replicas, of which there are at least two of three.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from e2e.replicated import Consumer, Producer, ReplicatedLog, replicated_log, wait_until
from e2e.torment import Torment
from eventbus import Bus, Event
from eventbus.broker import EmbeddedBroker
from eventbus.clock import SystemClock
from eventbus.errors import LogError, RetriableError
from eventbus.names import Kind
from sensors.inspection import stable_commits

pytestmark = pytest.mark.timeout(240)

NEWCOMERS = 8
ADVICE = "Check that the brokers run and can be reached from here"
PUBLISH_SECONDS = 5.0
ERROR_SECONDS = 15.0
"""How soon everybody must have been told that no broker answers: after a transaction's time-out at the latest."""


@pytest.fixture(scope="module")
def brokers() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(nodes=3, ephemeral=True) as broker:
        yield broker


def settle(log: ReplicatedLog, producers: list[Producer], consumers: list[Consumer]) -> None:
    """End the work in order, then compare the books."""
    for producer in producers:
        producer.stop()
    wait_until(log.all_consumed, "not everything was consumed")
    for consumer in consumers:
        consumer.stop()
    log.check(*producers)


# --- all is well ------------------------------------------------------------------------------------------------------


def test_one_producer_one_consumer_one_broker(namespace: str) -> None:
    with (
        EmbeddedBroker(ephemeral=True) as broker,
        replicated_log(broker, namespace, partitions=1) as log,
        log.producer() as producer,
        log.consumer() as consumer,
    ):
        assert log.durability(log.topic) == (1, 1)
        wait_until(lambda: producer.goes_on(0) and consumer.goes_on(0), "nothing happens")
        settle(log, [producer], [consumer])
        assert not producer.failures


def test_one_producer_one_consumer_three_brokers(brokers: EmbeddedBroker, namespace: str) -> None:
    with (
        replicated_log(brokers, namespace, partitions=3) as log,
        log.producer() as producer,
        log.consumer() as consumer,
    ):
        assert log.durability(log.topic) == log.durability(log.copies) == (3, 2)
        wait_until(lambda: producer.goes_on(0) and consumer.goes_on(0), "nothing happens")
        settle(log, [producer], [consumer])
        assert not producer.failures


def test_two_producers_two_consumers_three_brokers(brokers: EmbeddedBroker, namespace: str) -> None:
    """Both consumers are of one group: each event goes to one of them, also while the second one joins."""
    with (
        replicated_log(brokers, namespace, partitions=4) as log,
        log.producer("producer-1") as one,
        log.producer("producer-2") as two,
        log.consumer("consumer-1") as first,
    ):
        wait_until(lambda: first.goes_on(0), "the first consumer reads nothing")
        with log.consumer("consumer-2") as second:
            wait_until(second.has_partitions, "the second consumer gets no partition")
            joined = time.monotonic()
            workers = (one, two, first, second)
            wait_until(lambda: all(worker.goes_on(joined) for worker in workers), "somebody has nothing to do")
            settle(log, [one, two], [first, second])
        assert not one.failures
        assert not two.failures


def test_a_new_topic_is_known_whichever_broker_is_asked(brokers: EmbeddedBroker, namespace: str) -> None:
    """The brokers learn of it one after the other, and each question may go to another one."""
    for number in range(20):
        with Bus.connect(brokers.bootstrap_servers, namespace=f"{namespace}-{number}") as bus:
            assert bus.ensure(3) == 3
            commits = stable_commits(bus.cluster, f"{namespace}-group", bus.name.event_topic, SystemClock())
            assert commits == dict.fromkeys(range(3))


def test_an_event_that_only_its_leader_has_is_not_acknowledged(brokers: EmbeddedBroker, namespace: str) -> None:
    """Else the loss of one broker could lose it."""
    with replicated_log(brokers, namespace, partitions=1) as log, log.connect() as bus:
        bus.publish(Event.new("shop", "order", id="everywhere"))
        with frozen(brokers, log.followers()), pytest.raises(RetriableError, match="not acknowledged within 2 s"):
            bus.publish(Event.new("shop", "order", id="at the leader only"), timeout=2)
        bus.publish(Event.new("shop", "order", id="everywhere again"))
        assert list(log.events().values()) == ["everywhere", "at the leader only", "everywhere again"]


@contextmanager
def frozen(brokers: EmbeddedBroker, numbers: list[int]) -> Iterator[None]:
    """For less time than it takes the others to give them up."""
    nodes = [brokers.nodes[number - 1].pid for number in numbers]
    for pid in nodes:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in nodes:
            os.kill(pid, signal.SIGCONT)


# --- a broker fails ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("victim", ["follower", "leader"])
def test_a_broker_fails_while_events_are_written_and_read(brokers: EmbeddedBroker, namespace: str, victim: str) -> None:
    with (
        replicated_log(brokers, namespace, partitions=1) as log,
        log.producer() as producer,
        log.consumer() as consumer,
    ):
        wait_until(lambda: producer.goes_on(0) and consumer.goes_on(0) and log.in_sync(3), "nothing happens")
        leader = log.leader()
        lost = leader if victim == "leader" else log.followers()[0]
        brokers.kill(lost)
        killed = time.monotonic()
        wait_until(lambda: log.in_sync(2), "the dead broker counts as in sync")
        assert (log.leader() != leader) == (victim == "leader")
        wait_until(lambda: producer.goes_on(killed) and consumer.goes_on(killed), "the work does not go on")
        print(f"{victim} killed: nothing written for {producer.pause():.1f} s, read for {consumer.pause():.1f} s")

        brokers.restart(lost)
        recovery = wait_until(lambda: log.in_sync(3), "the broker does not catch up")
        back = time.monotonic()
        wait_until(lambda: producer.goes_on(back) and consumer.goes_on(back), "the work does not go on")
        print(f"the {victim} was in sync {recovery:.1f} s after its start")
        settle(log, [producer], [consumer])
        assert not producer.failures


# --- all brokers fail -------------------------------------------------------------------------------------------------


def test_all_brokers_fail_and_come_back(brokers: EmbeddedBroker, namespace: str) -> None:
    with (
        replicated_log(brokers, namespace, partitions=3) as log,
        log.producer(timeout=PUBLISH_SECONDS) as producer,
        log.consumer() as consumer,
    ):
        wait_until(lambda: producer.goes_on(0) and consumer.goes_on(0), "nothing happens")
        brokers.kill()
        killed = time.monotonic()
        for worker in (producer, consumer):
            wait_until(partial(worker.failures_since, killed), "nobody is told", ERROR_SECONDS)
            for at, error in worker.failures_since(killed):
                print(f"the {worker.name} was told after {at - killed:.1f} s: {error!r}")
                assert brokers.bootstrap_servers in str(error) or ADVICE in str(error)
        newcomers_are_told(log)

        brokers.restart()
        back = time.monotonic()
        recovery = wait_until(lambda: producer.goes_on(back) and consumer.goes_on(back), "the work does not go on")
        print(f"the work went on {recovery:.1f} s after the brokers were back")
        settle(log, [producer], [consumer])


def test_newcomers_are_answered_while_the_brokers_take_a_dead_one_for_alive(
    brokers: EmbeddedBroker, namespace: str
) -> None:
    """For some seconds one in three clients is told to ask the dead one, and none may insist on that."""
    with replicated_log(brokers, namespace, partitions=1) as log:
        brokers.kill(1)
        for _ in range(NEWCOMERS):
            with log.connect() as bus:
                assert bus.cluster.describe([log.topic])[log.topic] is not None


def newcomers_are_told(log: ReplicatedLog) -> None:
    """Whoever comes while there is no broker gets the advice at once, and no empty answer."""

    class Deaf:
        def assigned(self, partitions: object) -> None: ...
        def revoked(self, partitions: object) -> None: ...
        def lost(self, partitions: object) -> None: ...

    with log.connect() as bus:
        consumer = bus.cluster.consumer(f"{log.group}-2", log.topic, Deaf())
        reader = bus.cluster.reader()
        reader.open(log.topic, 0, 0)
        for call in (
            lambda: consumer.poll(1, ERROR_SECONDS),
            lambda: reader.read(1, 1),
            lambda: bus.publish(Event.new("shop", "order")),
        ):
            began = time.monotonic()
            with pytest.raises(LogError, match=ADVICE):
                call()
            assert time.monotonic() - began < ERROR_SECONDS
        reader.close()
        consumer.close()


def test_a_sensor_goes_on_by_itself_when_all_brokers_are_back(
    brokers: EmbeddedBroker, namespace: str, tmp_path: Path
) -> None:
    with replicated_log(brokers, namespace, partitions=3) as log, log.connect() as bus:
        torment = Torment(bus, tmp_path, seed=1)
        try:
            for kind in Kind:
                assert log.durability(torment.lab.plan.name.topic(kind)) == (3, 2)
            torment.start(2)
            torment.events(100)
            with torment.lab.without_brokers():
                brokers.kill()
                with pytest.raises(RetriableError, match=ADVICE):
                    bus.publish(Event.new("shop", "a", id="into the void", partitionkey="x"), timeout=PUBLISH_SECONDS)
                torment.lab.check_alive()
                brokers.restart()
            back = time.monotonic()
            torment.events(100)
            torment.settle()
            print(f"all actions were done {time.monotonic() - back:.1f} s after the brokers were back")
            verdict = torment.lab.verdict()
            print(f"{verdict.events} events, {verdict.actions} actions, {verdict.invoked} invocations")
            assert verdict.events >= 200
            assert verdict.clean, verdict.violations
        finally:
            torment.close()
