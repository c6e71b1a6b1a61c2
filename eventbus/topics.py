"""The topics of a bus and its sensors: how they should be, and what to say when they are not.

Missing topics are created with the right settings. Existing ones are checked and never changed: they may be shared
or tuned on purpose, and a wrong one is explained with the command that mends it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from eventbus.errors import ConfigError
from eventbus.names import BusName, Kind, SensorName
from eventbus.ports import Cluster, TopicInfo, TopicSpec

DEFAULT_PARTITIONS = 4
_MEBIBYTE = 1 << 20
_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS
EVENT_BYTES = _MEBIBYTE
INTERNAL_BYTES = 16 * _MEBIBYTE
"""An action carries the events of all its dependencies; a dead letter carries whatever failed."""
_SLACK_BYTES = 65_536
"""Room for headers beside a record's value."""
_MIN_RETENTION_MS = 2 * _HOUR_MS
"""Young held events live in the trigger topic for up to an hour before they are moved to the state topic."""

_LOG: Mapping[str, str] = {"cleanup.policy": "delete", "retention.ms": str(7 * _DAY_MS)}
_INTERNAL: Mapping[str, str] = {**_LOG, "max.message.bytes": str(INTERNAL_BYTES)}
_CONFIGS: Mapping[Kind, Mapping[str, str]] = {
    Kind.TRIGGER: _INTERNAL,
    Kind.ACTION: _INTERNAL,
    Kind.INVOCATION: {**_INTERNAL, "retention.ms": str(30 * _DAY_MS)},
    Kind.DLQ: {**_INTERNAL, "retention.ms": str(30 * _DAY_MS)},
    # Small segments that are cleaned early: a restart reads what compaction has not reached yet.
    Kind.STATE: {
        "cleanup.policy": "compact",
        "segment.bytes": str(32 * _MEBIBYTE),
        "segment.ms": "600000",
        "max.compaction.lag.ms": "600000",
        "min.cleanable.dirty.ratio": "0.1",
        "max.message.bytes": str(INTERNAL_BYTES),
    },
}


class Topology(msgspec.Struct, frozen=True):
    """The partition counts of a sensor's topics, and the largest value that may be written to them."""

    event_partitions: int
    trigger_partitions: int
    action_partitions: int
    invocation_partitions: int
    dlq_partitions: int
    max_value_bytes: int = INTERNAL_BYTES - EVENT_BYTES - _SLACK_BYTES


def event_topic(bus: BusName, partitions: int) -> TopicSpec:
    """Events are ordered in time by the log itself: never by a sender's clock, never by ours."""
    config = {**_LOG, "message.timestamp.type": "LogAppendTime", "max.message.bytes": str(EVENT_BYTES)}
    return TopicSpec(bus.event_topic, partitions, config)


def sensor_topics(name: SensorName, partitions: int) -> list[TopicSpec]:
    topics = [TopicSpec(name.topic(kind), partitions, config) for kind, config in _CONFIGS.items()]
    return [*topics, TopicSpec(name.control_topic, 1, _CONFIGS[Kind.STATE])]


def ensure_event_topic(cluster: Cluster, bus: BusName, partitions: int | None = None) -> int:
    """Create or check the event topic; returns how many partitions it has."""
    spec = event_topic(bus, partitions or DEFAULT_PARTITIONS)
    info = _ensure(cluster, [spec])[spec.name]
    _refuse(_problems(spec, info, exact_partitions=partitions is not None))
    return info.partitions


def ensure_source_topic(cluster: Cluster, bus: BusName) -> None:
    """Create or check the topic of what event sources remember."""
    _ensure_single(cluster, TopicSpec(bus.source_topic, 1, _CONFIGS[Kind.STATE]))


def ensure_reject_topic(cluster: Cluster, bus: BusName) -> int:
    """Create or check the topic of event sources' dead letters; returns the largest value that fits into it."""
    return _room(_ensure_single(cluster, TopicSpec(bus.reject_topic, 1, _CONFIGS[Kind.DLQ])))


def _ensure_single(cluster: Cluster, spec: TopicSpec) -> TopicInfo:
    info = _ensure(cluster, [spec])[spec.name]
    _refuse(_problems(spec, info, exact_partitions=True))
    return info


def _room(*infos: TopicInfo) -> int:
    """The largest value that may be written to all of them."""
    largest = min(int(info.config.get("max.message.bytes", INTERNAL_BYTES)) for info in infos)
    return min(largest, INTERNAL_BYTES) - EVENT_BYTES - _SLACK_BYTES


def ensure_sensor_topics(cluster: Cluster, name: SensorName, partitions: int | None = None) -> Topology:
    """Create or check all topics of a sensor. New ones get as many partitions as the event topic has."""
    event_partitions = ensure_event_topic(cluster, name.bus)
    specs = sensor_topics(name, partitions or event_partitions)
    found = _ensure(cluster, specs)
    problems = [
        problem
        for spec in specs
        for problem in _problems(spec, found[spec.name], exact_partitions=partitions is not None)
    ]
    counts = {kind: found[name.topic(kind)].partitions for kind in Kind}
    if counts[Kind.STATE] != counts[Kind.TRIGGER]:
        problems.append(
            f"the topic `{name.topic(Kind.STATE)}` has {counts[Kind.STATE]} partitions and must have as many as "
            f"`{name.topic(Kind.TRIGGER)}`, which has {counts[Kind.TRIGGER]}: delete both while the sensor has never "
            "run, else bring back the one that was replaced"
        )
    _refuse(problems)
    return Topology(
        event_partitions=event_partitions,
        trigger_partitions=counts[Kind.TRIGGER],
        action_partitions=counts[Kind.ACTION],
        invocation_partitions=counts[Kind.INVOCATION],
        dlq_partitions=counts[Kind.DLQ],
        max_value_bytes=_room(*(found[spec.name] for spec in specs)),
    )


def _ensure(cluster: Cluster, specs: Iterable[TopicSpec]) -> dict[str, TopicInfo]:
    wanted = {spec.name: spec for spec in specs}
    found = cluster.describe(wanted)
    missing = [wanted[topic] for topic, info in found.items() if info is None]
    if missing:
        cluster.create(missing)
        found |= cluster.describe(spec.name for spec in missing)
    gone = [topic for topic, info in found.items() if info is None]
    if gone:
        raise ConfigError(f"the topic `{gone[0]}` was deleted while it was being created")
    return {topic: info for topic, info in found.items() if info is not None}


def _problems(spec: TopicSpec, info: TopicInfo, *, exact_partitions: bool) -> list[str]:
    problems = []
    if exact_partitions and info.partitions != spec.partitions:
        problems.append(
            f"the topic `{spec.name}` has {info.partitions} partitions and {spec.partitions} were asked for: "
            "leave the number out to use it as it is, or delete the topic"
        )
    wanted, actual = spec.config, info.config
    problems += [
        _mend(spec.name, setting, actual[setting], f"must be {wanted[setting]}", wanted[setting])
        for setting in ("cleanup.policy", "message.timestamp.type")
        if setting in wanted and actual.get(setting, wanted[setting]) != wanted[setting]
    ]
    retention = int(actual.get("retention.ms", -1))
    if wanted["cleanup.policy"] == "delete" and 0 <= retention < _MIN_RETENTION_MS:
        text = f"must be at least {_MIN_RETENTION_MS} (two hours): records would vanish before they are used"
        problems.append(_mend(spec.name, "retention.ms", str(retention), text, wanted["retention.ms"]))
    largest = int(actual.get("max.message.bytes", INTERNAL_BYTES))
    if wanted["max.message.bytes"] == str(INTERNAL_BYTES) and largest < 4 * EVENT_BYTES:
        text = f"must be at least {4 * EVENT_BYTES}, so that what is made from the largest event fits"
        problems.append(_mend(spec.name, "max.message.bytes", str(largest), text, str(INTERNAL_BYTES)))
    return problems


def _mend(topic: str, setting: str, actual: str, text: str, value: str) -> str:
    return (
        f"the topic `{topic}` has {setting}={actual}, which {text}. Mend it with: "
        f"kafka-configs.sh --alter --topic {topic} --add-config {setting}={value}"
    )


def _refuse(problems: list[str]) -> None:
    if problems:
        raise ConfigError("\n".join(problems))
