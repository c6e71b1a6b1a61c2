"""Topics: create, describe, delete."""

from __future__ import annotations

import pytest

from eventbus.errors import FatalError
from eventbus.memory import MemoryCluster
from eventbus.ports import TopicSpec
from tests.contract.lab import Lab, values


def test_a_topic_is_created_as_it_should_be(lab: Lab) -> None:
    name = lab.name("state")
    config = {"cleanup.policy": "compact", "segment.bytes": "33554432", "message.timestamp.type": "LogAppendTime"}
    lab.cluster.create([TopicSpec(name, 3, config)])
    info = lab.cluster.describe([name])[name]
    assert info is not None
    assert (info.name, info.partitions, info.replication) == (name, 3, 1)
    assert {setting: info.config[setting] for setting in config} == config


def test_settings_that_were_not_given_have_their_defaults(lab: Lab) -> None:
    topic = lab.topic()
    info = lab.cluster.describe([topic])[topic]
    assert info is not None
    expected = {
        "cleanup.policy": "delete",
        "max.message.bytes": "1048588",
        "message.timestamp.type": "CreateTime",
        "retention.ms": "604800000",
        "segment.ms": "604800000",
        "max.compaction.lag.ms": "9223372036854775807",
        "min.cleanable.dirty.ratio": "0.5",
    }
    assert {setting: info.config[setting] for setting in expected} == expected
    # A broker may set this one for all its topics, and the embedded one does; the log in memory has Kafka's own.
    segment_bytes = int(info.config["segment.bytes"])
    assert segment_bytes == 1 << 30 if isinstance(lab.cluster, MemoryCluster) else segment_bytes > 0


def test_what_does_not_exist_is_described_as_none(lab: Lab) -> None:
    topic, missing = lab.topic(), lab.name("missing")
    described = lab.cluster.describe([topic, missing])
    assert described[missing] is None
    assert described[topic] is not None
    assert lab.cluster.describe([]) == {}


def test_creating_what_exists_leaves_it_alone(lab: Lab) -> None:
    topic = lab.topic(partitions=2, max_message_bytes="5000")
    lab.write(topic, b"kept")
    other = lab.name("other")
    lab.cluster.create([TopicSpec(topic, 7, {}), TopicSpec(other, 1, {})])
    described = lab.cluster.describe([topic, other])
    info = described[topic]
    assert info is not None
    assert (info.partitions, info.config["max.message.bytes"]) == (2, "5000")
    assert described[other] is not None
    assert values(lab.read_all(topic)) == [b"kept"]
    lab.cluster.create([])


def test_a_setting_that_does_not_exist_is_fatal_and_named(lab: Lab) -> None:
    with pytest.raises(FatalError, match=r"retention\.minutes"):
        lab.cluster.create([TopicSpec(lab.name("odd"), 1, {"retention.minutes": "5"})])


def test_a_deleted_topic_is_gone_and_can_be_created_afresh(lab: Lab) -> None:
    topic = lab.topic(partitions=2)
    lab.write(topic, b"old")
    before = lab.cluster.describe([topic])[topic]
    lab.cluster.delete([topic, lab.name("missing")])
    assert lab.cluster.describe([topic]) == {topic: None}
    lab.cluster.create([TopicSpec(topic, 1, {})])
    assert lab.read_all(topic) == []
    after = lab.cluster.describe([topic])[topic]
    assert before is not None
    assert after is not None
    assert before.id != after.id
    lab.cluster.delete([])
