"""What is particular to the adapter of the real Kafka."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

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
from eventbus.kafka.producer import KafkaProducer
from tests.contract import raw_kafka
from tests.contract.lab import Lab, values

NOBODY = "127.0.0.1:1"


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("admin", "complaints", "producer"):
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


def test_a_process_that_asks_for_a_group_on_a_new_broker_can_end() -> None:
    """The client waits for ever for itself when it asks for the coordinator of a group where there was never one."""
    script = """
from eventbus.broker import EmbeddedBroker
from eventbus.kafka import KafkaCluster
with EmbeddedBroker(ephemeral=True) as broker:
    cluster = KafkaCluster(broker.bootstrap_servers)
    assert cluster.members("nobody") == 0
    cluster.forget(["nobody"])
cluster.close()
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=90)


class Deaf:
    def assigned(self, partitions: object) -> None: ...
    def revoked(self, partitions: object) -> None: ...
    def lost(self, partitions: object) -> None: ...


class Client:
    """In the place of librdkafka's: notes its calls with their time-outs, and answers all of them but one."""

    def __init__(self, silent: str = "", slow: float = 0.0) -> None:
        self.calls: list[tuple[str, float]] = []
        self._silent, self._slow = silent, slow

    def __getattr__(self, name: str) -> Callable[..., None]:
        def call(*arguments: Any, **_: Any) -> None:
            self.calls.append((name, arguments[-1] if arguments else 0.0))
            time.sleep(self._slow)
            if name == self._silent:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, retriable=True))

        return call


def producer_with(client: Client, monkeypatch: pytest.MonkeyPatch, *, seconds: float) -> KafkaProducer:
    cluster = KafkaCluster(NOBODY, config={"transaction.timeout.ms": str(round(seconds * 1000))})
    monkeypatch.setattr("eventbus.kafka.producer.make_client", lambda *_: client)
    return cluster.producer("producer")


@pytest.mark.parametrize("silent", ["send_offsets_to_transaction", "commit_transaction", "abort_transaction"])
def test_a_client_that_did_not_answer_in_time_is_never_called_again(
    monkeypatch: pytest.MonkeyPatch, silent: str
) -> None:
    """It may still be busy with that call; a new producer finishes the transaction."""
    client = Client(silent)
    producer = producer_with(client, monkeypatch, seconds=1)
    producer.begin()
    call = {
        "send_offsets_to_transaction": lambda: producer.send_offsets("topic", [], b""),
        "commit_transaction": producer.commit,
        "abort_transaction": producer.abort,
    }[silent]
    with pytest.raises(UnknownOutcome, match="no answer"):
        call()
    before = len(client.calls)
    for further in (producer.abort, producer.commit, producer.begin):
        with pytest.raises(UnknownOutcome, match="no answer"):
            further()
    assert len(client.calls) == before
    producer.close()
    assert len(client.calls) == before


def test_the_calls_of_a_transaction_share_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log aborts it when that is over, so whoever waits longer waits in vain."""
    client = Client(slow=0.02)
    producer = producer_with(client, monkeypatch, seconds=60)
    for _ in range(2):
        client.calls.clear()
        producer.begin()
        producer.send_offsets("topic", [], b"")
        producer.commit()
        time_outs = dict(client.calls)
        assert time_outs["commit_transaction"] + 0.02 <= time_outs["send_offsets_to_transaction"] <= 60 - 0.02
    producer.close()


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
        (KafkaError(KafkaError._INCONSISTENT), UnknownOutcome),
        (KafkaError(KafkaError._GAPLESS_GUARANTEE), UnknownOutcome),
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
        "Kafka, reading t: Broker: Topic authorization failed. "
        "Grant this client what `eventbus acls` lists for the topic."
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
