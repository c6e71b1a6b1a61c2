"""The least that Kafka must permit, for each thing that is done with a sensor.

READ and WRITE include DESCRIBE; brokers since 2.8 need no IDEMPOTENT_WRITE beside WRITE.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum

import msgspec

from eventbus.names import Kind, SensorName, Stage
from sensors.actions.kafka import KafkaSpec
from sensors.spec.models import SensorManifest


class Part(StrEnum):
    """Something that a principal may be allowed to do."""

    CREATE = "create"
    """To create the topics, once; who runs a sensor or sends events needs it while they are missing."""
    START = "start"
    """With `match`, `join` and `invoke`: to run the sensor."""
    MATCH = "match"
    JOIN = "join"
    INVOKE = "invoke"
    SEND = "send"
    """To publish events: `send`."""
    SOURCE = "source"
    """To run an event source."""
    READ = "read"
    """To look: `tail`, `state`, `explain`, `dlq list`, `audit`, `archive`, `backtest`."""
    CONTROL = "control"
    """To intervene: `pause`, `resume`, `flush`, `dlq redrive`."""
    REPLAY = "replay"


class Resource(StrEnum):
    """What a permission is about."""

    TOPIC = "topic"
    GROUP = "group"
    TRANSACTIONAL_ID = "transactional-id"


class Operation(StrEnum):
    """As `kafka-acls.sh` calls them."""

    READ = "Read"
    WRITE = "Write"
    CREATE = "Create"
    DESCRIBE = "Describe"
    DESCRIBE_CONFIGS = "DescribeConfigs"


class Permission(msgspec.Struct, frozen=True):
    """One ACL, but for its principal."""

    resource: Resource
    name: str
    operation: Operation
    prefixed: bool = False
    """Whether the name is the beginning of names."""


class Need(msgspec.Struct, frozen=True):
    """A permission, and what it is needed for."""

    part: Part
    permission: Permission


_WRITES = {
    Stage.MATCH: (Kind.TRIGGER, Kind.ACTION, Kind.STATE, Kind.DLQ),
    Stage.JOIN: (Kind.ACTION, Kind.STATE, Kind.DLQ),
    Stage.INVOKE: (Kind.INVOCATION, Kind.STATE, Kind.DLQ),
}


def needs_of(name: SensorName, manifest: SensorManifest) -> list[Need]:
    """Everything about one sensor and the bus that it is on, each permission once for every part."""
    parts: Mapping[Part, Callable[[], Iterable[Permission]]] = {
        Part.CREATE: lambda: on_topics(_all_topics(name), Operation.CREATE),
        Part.START: lambda: _start(name),
        Part.MATCH: lambda: _stage(name, Stage.MATCH),
        Part.JOIN: lambda: _stage(name, Stage.JOIN),
        Part.INVOKE: lambda: [*_stage(name, Stage.INVOKE), *_action_targets(manifest)],
        Part.SEND: lambda: on_topics([name.event_topic], Operation.WRITE, Operation.DESCRIBE_CONFIGS),
        Part.READ: lambda: _read(name),
        Part.CONTROL: lambda: _control(name),
        Part.REPLAY: lambda: _replay(name),
    }
    return [Need(part, each) for part, permissions in parts.items() for each in dict.fromkeys(permissions())]


def _all_topics(name: SensorName) -> list[str]:
    return [name.event_topic, *map(name.topic, Kind), name.control_topic]


def on_topics(topics: Iterable[str], *operations: Operation) -> Iterator[Permission]:
    """Each operation on each of them."""
    for topic in topics:
        for operation in operations:
            yield Permission(Resource.TOPIC, topic, operation)


def _start(name: SensorName) -> Iterator[Permission]:
    """Topics are checked, and every replica follows what operators want."""
    yield from on_topics(_all_topics(name), Operation.DESCRIBE_CONFIGS)
    yield from on_topics([name.control_topic], Operation.READ)


def _stage(name: SensorName, stage: Stage) -> Iterator[Permission]:
    yield from on_topics([name.input_topic(stage), name.topic(Kind.STATE)], Operation.READ)
    yield from on_topics(map(name.topic, _WRITES[stage]), Operation.WRITE)
    yield Permission(Resource.GROUP, name.group(stage), Operation.READ)
    yield Permission(Resource.TRANSACTIONAL_ID, name.transactional_id(stage, ""), Operation.WRITE, prefixed=True)


def _action_targets(manifest: SensorManifest) -> Iterator[Permission]:
    """What `kafka` actions write in the invoke stage's own transactions."""
    for trigger in manifest.spec.triggers:
        for each in (trigger, trigger.dlqTrigger):
            spec = None if each is None else each.action[1]
            if isinstance(spec, KafkaSpec) and spec.url is None:
                yield from on_topics([spec.topic], Operation.WRITE, Operation.DESCRIBE_CONFIGS)


def _read(name: SensorName) -> Iterator[Permission]:
    yield from on_topics(_all_topics(name), Operation.READ, Operation.DESCRIBE_CONFIGS)
    for stage in Stage:
        yield Permission(Resource.GROUP, name.group(stage), Operation.DESCRIBE)


def _control(name: SensorName) -> Iterator[Permission]:
    """What is held is looked at first; what was kept goes back to where it came from."""
    yield from _read(name)
    goes_back = [name.event_topic, name.topic(Kind.TRIGGER), name.topic(Kind.ACTION)]
    yield from on_topics([*goes_back, name.topic(Kind.DLQ), name.control_topic], Operation.WRITE)
    for purpose in ("control", "redrive"):
        yield Permission(Resource.TRANSACTIONAL_ID, f"{name.prefix}-{purpose}", Operation.WRITE)


def _replay(name: SensorName) -> Iterator[Permission]:
    yield from on_topics([name.event_topic], Operation.READ, Operation.WRITE, Operation.DESCRIBE_CONFIGS)
    yield Permission(Resource.GROUP, name.group(Stage.MATCH), Operation.DESCRIBE)
