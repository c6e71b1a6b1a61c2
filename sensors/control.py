"""What operators want of a running sensor: to pause a trigger, to let it go on, to let go of what it holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice

from eventbus.errors import LogError
from eventbus.formats import FLUSH_HEADER, VERSION, Flush, Paused, PausedKey, encode_fact, encode_state_key, paused
from eventbus.hashing import partition_of, slot_key
from eventbus.names import Kind, SensorName
from eventbus.ports import Clock, Cluster, Output
from eventbus.topics import Topology
from sensors.deadletters import PAUSED
from sensors.inspection import read_range
from sensors.redrive import Outcome, Selection, redrive

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


def pause(cluster: Cluster, name: SensorName, trigger: str, clock: Clock) -> None:
    """Let a trigger do nothing for now. Its actions are kept in the dead-letter topic until it is resumed."""
    write(cluster, name, [_paused(name, trigger, Paused(version=VERSION, at=clock.now_ms()))])


def resume(cluster: Cluster, name: SensorName, trigger: str, clock: Clock) -> Iterator[Outcome]:
    """Let a trigger go on, and drive back what was kept meanwhile. The older actions come first.

    What is driven back is never kept again, so most of it can be on its way before the pause ends; then comes what
    was kept while that went on.
    """
    kept = Selection(reason=PAUSED, trigger=trigger or None)
    yield from redrive(cluster, name, kept, clock)
    write(cluster, name, [_paused(name, trigger, None)])
    yield from redrive(cluster, name, kept, clock)


def paused_triggers(cluster: Cluster, name: SensorName, clock: Clock) -> dict[str, int]:
    """Since when which triggers are paused."""
    reader = cluster.reader()
    try:
        records = list(read_range(reader, name.control_topic, 0, start=0, end=None, clock=clock))
    finally:
        reader.close()
    states = dict(paused(record) for record in records)
    return {trigger: state.at for trigger, state in states.items() if state is not None}


def _paused(name: SensorName, trigger: str, since: Paused | None) -> Output:
    value = None if since is None else encode_fact(since)
    return Output(name.control_topic, 0, encode_state_key(PausedKey(trigger)), value)


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
