"""Reading whole topics, and what groups have committed, when nothing happens any more."""

from __future__ import annotations

from functools import partial

from eventbus.bus import Bus
from eventbus.clock import Deadline, SystemClock
from eventbus.errors import RetriableError
from eventbus.names import SensorName, Stage
from eventbus.ports import Committed, Record
from sensors.inspection import patiently, stable_commits

_PATIENCE = 300.0
_BATCH = 10_000


def dump(bus: Bus, topic: str, partitions: int) -> list[Record]:
    """All committed records of a topic, partition by partition."""
    reader = bus.cluster.reader()
    deadline = Deadline(SystemClock(), _PATIENCE)
    records: list[Record] = []
    try:
        for partition in range(partitions):
            # On a machine that a storm has worn out, an answer may be late.
            first, end = patiently(partial(reader.offsets, topic, partition), deadline)
            reader.open(topic, partition, first)
            while reader.position(topic, partition) < end:
                if deadline.over():
                    raise RetriableError(f"{topic}[{partition}] could not be read to {end} within {_PATIENCE:g} s")
                records += reader.read(_BATCH, 0.1)
            reader.close(topic, partition)
    finally:
        reader.close()
    return records


def ends_of(records: list[Record]) -> dict[int, int]:
    """Behind the last record of each partition; transaction markers may follow it."""
    return {record.partition: record.offset + 1 for record in records}


def commits_of(bus: Bus, name: SensorName, stage: Stage) -> dict[int, Committed | None]:
    return stable_commits(bus.cluster, name.group(stage), name.input_topic(stage), SystemClock())
