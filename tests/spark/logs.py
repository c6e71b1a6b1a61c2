"""Topics with everything that Kafka may have in them, for tests that compare a topic with what was made of it."""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from eventbus.clock import SystemClock
from eventbus.cloudevents import to_kafka
from eventbus.events import Event
from eventbus.ports import Cluster, Record
from sensors.inspection import read_range


def write_transactions(
    bootstrap_servers: str, topic: str, partitions: int, rounds: int, *, size: int = 5, first_aborted: bool = False
) -> None:
    """Every other one is aborted, after the broker has got its records."""
    producer = Producer(
        {"bootstrap.servers": bootstrap_servers, "transactional.id": f"{topic}-test", "retry.backoff.ms": 1}
    )
    producer.init_transactions()
    for number in range(rounds):
        producer.begin_transaction()
        aborted = number % 2 == (not first_aborted)
        for each in range(size):
            event = Event.new("shop", "n", {"round": number, "n": each}, type="aborted" if aborted else "order")
            headers, value = to_kafka(event)
            pairs: list[tuple[str, str | bytes | None]] = [*headers]
            producer.produce(topic, value, str(each), partition=(number // 2) % partitions, headers=pairs)
        producer.flush()
        if aborted:
            producer.abort_transaction()
        else:
            producer.commit_transaction()


def committed_records(cluster: Cluster, topic: str) -> list[Record]:
    """What any other consumer reads."""
    info = cluster.describe([topic])[topic]
    assert info is not None
    reader = cluster.reader()
    try:
        return [
            record
            for partition in range(info.partitions)
            for record in read_range(reader, topic, partition, start=0, end=None, clock=SystemClock())
        ]
    finally:
        reader.close()


def places(records: Iterable[Record]) -> list[tuple[int, int]]:
    return sorted((record.partition, record.offset) for record in records)


def play_retention(bootstrap_servers: str, topic: str, firsts: dict[int, int]) -> None:
    """Remove what is before these offsets, by partition."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    wanted = [TopicPartition(topic, partition, offset) for partition, offset in firsts.items()]
    for future in admin.delete_records(wanted).values():
        future.result()
