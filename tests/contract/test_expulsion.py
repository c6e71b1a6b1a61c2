"""A member that was silent for too long loses its partitions, and whatever it still believes is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from eventbus.clock import ManualClock
from eventbus.errors import AbortableError
from eventbus.kafka import KafkaCluster
from eventbus.memory import MemoryCluster
from eventbus.ports import Commit
from tests.contract.lab import Lab, Member, settle, values

Wait = Callable[[Member], None]
"""Lets time pass in which only the given member polls."""


@pytest.fixture(params=["memory", pytest.param("kafka", marks=pytest.mark.kafka)])
def lab_and_wait(request: pytest.FixtureRequest, namespace: str) -> Iterator[tuple[Lab, Wait]]:
    if request.param == "memory":
        clock = ManualClock()
        lab = Lab(MemoryCluster(clock, session_timeout=6), namespace)

        def wait(polling: Member) -> None:
            for _ in range(2):
                clock.advance(4)
                polling.consumer.poll(1, 0)
    else:
        servers = request.getfixturevalue("kafka_bootstrap_servers")
        lab = Lab(KafkaCluster(servers, config={"max.poll.interval.ms": "6000"}), namespace)

        def wait(polling: Member) -> None:
            settle([polling], lambda: len(polling.partitions) == 2)

    yield lab, wait
    lab.close()
    lab.cluster.close()


def test_a_member_that_does_not_poll_loses_its_partitions_and_can_commit_nothing(
    lab_and_wait: tuple[Lab, Wait],
) -> None:
    lab, wait = lab_and_wait
    topic = lab.topic(partitions=2)
    silent, other = lab.consumer(topic), lab.consumer(topic)
    settle([silent, other], lambda: len(silent.partitions) == len(other.partitions) == 1)
    [lost] = silent.partitions
    silent.start(lost)
    stale = silent.consumer.group_metadata()
    told_before = len(silent.told)

    wait(other)
    settle([other], lambda: len(other.partitions) == 2)
    other.start(lost)
    lab.write(topic, b"for the other", partition=lost)
    assert values(other.receive(1)) == [b"for the other"]

    with pytest.raises(AbortableError):
        silent.consumer.group_metadata()
    producer = lab.producer()
    producer.begin()
    with pytest.raises(AbortableError):
        producer.send_offsets(topic, [Commit(lost, 1, "zombie")], stale)
    producer.abort()

    assert not silent.consumer.poll(1, 0)
    assert silent.told[told_before:] == [("lost", [lost])]
    settle([silent, other], lambda: len(silent.partitions) == len(other.partitions) == 1)
    assert lab.committed(topic) == {0: None, 1: None}
