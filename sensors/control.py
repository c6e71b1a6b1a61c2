"""What operators want of a running sensor, written to its log so that every replica obeys it in the same place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice

from eventbus.errors import LogError
from eventbus.formats import FLUSH_HEADER, VERSION, Flush, encode_fact
from eventbus.hashing import partition_of, slot_key
from eventbus.names import Kind, SensorName
from eventbus.ports import Cluster, Output
from eventbus.topics import Topology

_CHUNK = 1000
"""Records of one transaction."""


def flush(
    cluster: Cluster, name: SensorName, topology: Topology, trigger: str, keys: Iterable[str], *, fire: bool
) -> None:
    """Let a trigger fire with what it holds for these correlation keys, or put it into the dead letters.

    A trigger without correlation has the one key "". It happens where this stands in the log: what arrives later is
    not concerned. Each key is a record of its own, so that however many there are no transaction becomes too large.
    """
    write(cluster, name, (_flush(name, topology, trigger, key, fire=fire) for key in keys))


def _flush(name: SensorName, topology: Topology, trigger: str, key: str, *, fire: bool) -> Output:
    place = slot_key(trigger, key.encode())
    fact = Flush(version=VERSION, trigger=trigger, fire=fire, key=key)
    partition = partition_of(place, topology.trigger_partitions)
    return Output(name.topic(Kind.TRIGGER), partition, place, None, [(FLUSH_HEADER, encode_fact(fact))])


def write(cluster: Cluster, name: SensorName, outputs: Iterable[Output]) -> None:
    """In transactions, so that nobody sees half of one."""
    producer = cluster.producer(f"{name.prefix}-control")
    try:
        producer.init()
        for chunk in _chunks(outputs):
            producer.begin()
            try:
                producer.produce(chunk)
                producer.commit()
            except LogError:
                with suppress(LogError):
                    producer.abort()
                raise
    finally:
        producer.close()


def _chunks(outputs: Iterable[Output]) -> Iterator[Sequence[Output]]:
    remaining = iter(outputs)
    while chunk := list(islice(remaining, _CHUNK)):
        yield chunk
