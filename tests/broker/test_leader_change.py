"""What a client must get over when a broker was away: the leader is the same, its epoch is not."""

from __future__ import annotations

import pytest

from eventbus.broker import EmbeddedBroker
from eventbus.clock import Deadline, SystemClock
from eventbus.errors import RetriableError
from eventbus.kafka import KafkaCluster
from eventbus.ports import Reader, TopicSpec


def answered(reader: Reader, topic: str) -> tuple[int, int]:
    """Errors must be retriable, and must come to an end."""
    deadline = Deadline(SystemClock(), 30)
    while True:
        try:
            return reader.offsets(topic, 0)
        except RetriableError:
            if deadline.over():
                raise


@pytest.mark.kafka
def test_offsets_are_answered_again_after_the_broker_was_killed() -> None:
    with EmbeddedBroker(ephemeral=True) as broker:
        cluster = KafkaCluster(broker.bootstrap_servers)
        cluster.create([TopicSpec("topic", 1, {})])
        reader = cluster.reader()
        assert answered(reader, "topic") == (0, 0)
        broker.kill(1)
        broker.restart(1)
        assert answered(reader, "topic") == (0, 0)
        reader.close()
        cluster.close()
