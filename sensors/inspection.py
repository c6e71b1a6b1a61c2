"""What a running sensor holds, read from its topics without taking part: for `eventbus state`.

The reader goes the way a replica goes when it restores (commit, state, log) and commits nothing.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import TypeVar

from eventbus.clock import Deadline
from eventbus.errors import RetriableError
from eventbus.metadata import decode_join
from eventbus.names import Kind, Stage
from eventbus.ports import Clock, Cluster, Committed, Reader, Record
from eventbus.stateformats import IdentityKey, OriginKey, decode_state_key
from eventbus.topics import Topology
from sensors.evidence import HeldEvent, TriggerState
from sensors.explain import Waiting, describe
from sensors.held import Held
from sensors.join import JoinPartition
from sensors.plan import SensorPlan

_READ_SECONDS = 30.0
_RETRY_SECONDS = 0.02
_Answer = TypeVar("_Answer")


def held_state(cluster: Cluster, plan: SensorPlan, topology: Topology, clock: Clock) -> list[TriggerState]:
    """The state of every trigger that needs more than one event, as of the last commits."""
    slots: defaultdict[str, dict[str, dict[str, list[Held]]]] = defaultdict(dict)
    commits = stable_commits(cluster, plan.name.group(Stage.JOIN), plan.name.topic(Kind.TRIGGER), clock)
    reader = cluster.reader()
    try:
        for partition, committed in commits.items():
            if committed is not None:
                commit = decode_join(committed.offset, committed.metadata)
                join = JoinPartition(plan, topology, partition, commit, "inspection")
                state = read_range(reader, plan.name.topic(Kind.STATE), partition, start=0, end=None, clock=clock)
                for record in {record.key: record for record in state}.values():
                    if record.value is not None:
                        key = decode_state_key(record)
                        if not isinstance(key, IdentityKey | OriginKey):
                            join.load(key, record)
                join.loaded()
                log = read_range(
                    reader,
                    plan.name.topic(Kind.TRIGGER),
                    partition,
                    start=commit.offset,
                    end=commit.position,
                    clock=clock,
                )
                join.step([record for record in log if record.offset < commit.position])
                for trigger in plan.triggers:
                    for value, dependency, event in join.held(trigger):
                        slots[trigger].setdefault(value, {}).setdefault(dependency, []).append(event)
    finally:
        reader.close()
    return [
        _state(describe(joined, value, held), held)
        for joined in plan.triggers.values()
        if not joined.direct
        for value, held in sorted((slots[joined.name] or {"": {}}).items())
    ]


def stable_commits(cluster: Cluster, group: str, topic: str, clock: Clock) -> dict[int, Committed | None]:
    """What a group has committed. While a transaction is open on it there is no answer, so it is asked again."""
    return patiently(lambda: cluster.committed(group, topic), Deadline(clock, _READ_SECONDS))


def patiently(ask: Callable[[], _Answer], deadline: Deadline) -> _Answer:
    """Asks again as long as there is no answer in time."""
    while True:
        try:
            return ask()
        except RetriableError:
            if deadline.over():
                raise
            time.sleep(_RETRY_SECONDS)


def read_range(
    reader: Reader, topic: str, partition: int, *, start: int, end: int | None, clock: Clock
) -> Generator[Record]:
    """Committed records of one partition from `start` to `end`, by default to what is there now."""
    first, last = reader.offsets(topic, partition)
    end = last if end is None else min(end, last)
    reader.open(topic, partition, max(start, first))
    deadline = Deadline(clock, _READ_SECONDS)
    try:
        while reader.position(topic, partition) < end:
            if deadline.over():
                raise RetriableError(f"{topic}[{partition}] could not be read to {end} within {_READ_SECONDS:g} s")
            yield from reader.read(1000, 0.1)
    finally:
        reader.close(topic, partition)


def _state(waiting: Waiting, held: Mapping[str, Sequence[Held]]) -> TriggerState:
    events = [
        HeldEvent(name, *event.identity, event.source.timestamp, event.source.partition, event.source.offset)
        for name in sorted(held)
        for event in held[name]
    ]
    return TriggerState(waiting.trigger, waiting.condition, events, waiting.missing, waiting.key)
