"""What is particular to the adapter of the real Kafka."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import KafkaError

from eventbus.errors import (
    AbortableError,
    ConfigError,
    FatalError,
    FencedError,
    LogError,
    RetriableError,
    UnknownOutcome,
)
from eventbus.kafka import KafkaCluster
from eventbus.kafka.errors import log_error
from tests.contract import raw_kafka
from tests.contract.lab import Lab, values

NOBODY = "127.0.0.1:1"


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("admin", "config", "producer"):
        monkeypatch.setattr(f"eventbus.kafka.{module}.REQUEST_TIMEOUT", 0.5)


@pytest.mark.usefixtures("hasty")
def test_without_a_broker_every_call_answers_in_time_and_names_the_address(capfd: pytest.CaptureFixture[str]) -> None:
    cluster = KafkaCluster(NOBODY)
    consumer = cluster.consumer("group", "topic", Deaf())
    producer = cluster.producer("producer")
    reader = cluster.reader()
    reader.open("topic", 0, 0)
    calls = [
        lambda: cluster.describe(["topic"]),
        lambda: cluster.delete(["topic"]),
        lambda: cluster.committed("group", "topic"),
        lambda: consumer.committed([0]),
        lambda: consumer.offsets(0),
        lambda: consumer.poll(1, 10),
        lambda: reader.read(1, 1),
        producer.init,
        cluster.publisher,
    ]
    for call in calls:
        began = time.monotonic()
        with pytest.raises(RetriableError, match=rf"{NOBODY}: no answer"):
            call()
        assert time.monotonic() - began < 5
    consumer.close()
    reader.close()
    producer.close()
    cluster.close()
    assert capfd.readouterr().err == ""


class Deaf:
    def assigned(self, partitions: object) -> None: ...
    def revoked(self, partitions: object) -> None: ...
    def lost(self, partitions: object) -> None: ...


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"no.such.setting": "1"}, "no.such.setting"),
        ({"session.timeout.ms": "soon"}, "session.timeout.ms"),
        ({"isolation.level": "read_uncommitted"}, "isolation.level"),
        ({"transactional.id": "mine"}, "transactional.id"),
        ({"transaction.timeout.ms": "soon"}, "transaction.timeout.ms"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(config: dict[str, str], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        KafkaCluster(NOBODY, config=config)


@pytest.mark.parametrize(
    ("error", "ours"),
    [
        (KafkaError(KafkaError._FENCED, fatal=True), FencedError),
        (KafkaError(KafkaError.INVALID_PRODUCER_EPOCH, txn_requires_abort=True), FencedError),
        (KafkaError(KafkaError.PRODUCER_FENCED), FencedError),
        (KafkaError(KafkaError.OFFSET_METADATA_TOO_LARGE, txn_requires_abort=True), AbortableError),
        (KafkaError(KafkaError._TIMED_OUT, txn_requires_abort=True), AbortableError),
        (KafkaError(KafkaError.UNKNOWN_MEMBER_ID), AbortableError),
        (KafkaError(KafkaError.ILLEGAL_GENERATION), AbortableError),
        (KafkaError(KafkaError.REBALANCE_IN_PROGRESS), AbortableError),
        (KafkaError(KafkaError._TIMED_OUT), RetriableError),
        (KafkaError(KafkaError._TRANSPORT), RetriableError),
        (KafkaError(KafkaError.UNSTABLE_OFFSET_COMMIT), RetriableError),
        (KafkaError(KafkaError.NOT_COORDINATOR), RetriableError),
        (KafkaError(KafkaError.UNKNOWN, retriable=True), RetriableError),
        (KafkaError(KafkaError.INVALID_PRODUCER_ID_MAPPING, fatal=True), UnknownOutcome),
        (KafkaError(KafkaError._FATAL), UnknownOutcome),
        (KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED, txn_requires_abort=True), FatalError),
        (KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), FatalError),
        (KafkaError(KafkaError._AUTHENTICATION), FatalError),
        (KafkaError(KafkaError.UNSUPPORTED_VERSION), FatalError),
        (KafkaError(KafkaError.UNKNOWN), FatalError),
    ],
    ids=lambda value: value.name() if isinstance(value, KafkaError) else None,
)
def test_every_error_asks_for_the_right_reaction(error: KafkaError, ours: type[LogError]) -> None:
    translated = log_error(error, f"doing something on {NOBODY}")
    assert type(translated) is ours
    assert NOBODY in str(translated)


def test_a_missing_permission_says_what_to_do() -> None:
    error = log_error(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), "reading t")
    assert str(error) == (
        "Kafka, reading t: Broker: Topic authorization failed. Grant this client READ, WRITE and DESCRIBE on the topic."
    )


@pytest.mark.kafka
def test_a_header_whose_name_is_no_text_does_not_stop_the_partition(
    kafka_cluster: KafkaCluster, kafka_bootstrap_servers: str, namespace: str
) -> None:
    lab = Lab(kafka_cluster, namespace)
    topic = lab.topic()
    raw_kafka.produce(kafka_bootstrap_servers, topic, b"k", b"bad", [(b"\xff\xfe", b"1"), (b"good", b"2")])
    raw_kafka.produce(kafka_bootstrap_servers, topic, b"k", b"good", [(b"good", b"2")])
    member = lab.member(topic)
    member.start(0)
    received = member.receive(2)
    assert values(received) == values(lab.read_all(topic)) == [b"bad", b"good"]
    assert [list(record.headers) for record in received] == [[("\ufffd", None)], [("good", b"2")]]
    lab.close()
