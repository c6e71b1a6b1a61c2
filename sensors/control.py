"""What operators want of a running sensor: to pause a trigger, to let it go on, to let go of what it holds."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice

from eventbus.clock import Deadline
from eventbus.errors import LogError
from eventbus.formats import FLUSH_HEADER, VERSION, Flush, encode_fact
from eventbus.hashing import partition_of, slot_key
from eventbus.names import Kind, SensorName
from eventbus.ports import Clock, Cluster, Output
from eventbus.stateformats import Paused, PausedKey, encode_state_key
from eventbus.topics import Topology
from sensors.deadletters import PAUSED
from sensors.inspection import read_range
from sensors.pauses import ALL, note_pause
from sensors.redrive import Box, Outcome, Selection, redrive

QUIET_SECONDS = 3.0
"""Some times as long as replicas take to notice that a pause has ended."""
_LOOK_SECONDS = 0.3
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


def resume(
    cluster: Cluster, name: SensorName, trigger: str, clock: Clock, quiet_seconds: float = QUIET_SECONDS
) -> Iterator[Outcome]:
    """Let a trigger go on, and drive back what was kept meanwhile. The older actions come first.

    What is driven back is not kept again, so most of it can be on its way before the pause ends. Then comes what was
    kept while that went on, until nothing more is kept: replicas notice the end of a pause one after the other.
    """
    others = paused_triggers(cluster, name, clock).keys() - {trigger}
    if ALL in others:
        write(cluster, name, [_paused(name, trigger, None)])
        return
    kept = Selection(reason=PAUSED, trigger=trigger or None, but_for=frozenset(others))
    yield from redrive(cluster, Box.of_sensor(name), kept, clock)
    write(cluster, name, [_paused(name, trigger, None)])
    quiet = Deadline(clock, quiet_seconds)
    while not quiet.over():
        for outcome in redrive(cluster, Box.of_sensor(name), kept, clock):
            yield outcome
            quiet = Deadline(clock, quiet_seconds)
        time.sleep(_LOOK_SECONDS)


def paused_triggers(cluster: Cluster, name: SensorName, clock: Clock) -> dict[str, int]:
    """Since when which triggers are paused."""
    reader = cluster.reader()
    try:
        records = list(read_range(reader, name.control_topic, 0, start=0, end=None, clock=clock))
    finally:
        reader.close()
    pauses: dict[str, int] = {}
    for record in records:
        note_pause(pauses, record)
    return pauses


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
