"""Records of another Kafka become events, at least once, shared by all replicas."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Iterator, Sequence
from io import BytesIO
from typing import Any
from unittest.mock import Mock

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from fastavro import schemaless_writer

from eventbus import Bus, Event
from eventbus.clock import SystemClock
from eventbus.kafka.progress import Progress
from eventbus.ports import Record
from eventbus.topics import ensure_source_topic
from eventsources.base import SourceError
from eventsources.journal import Journal
from eventsources.sources.messages import NOT_JSON
from sensors.acls import Operation, Permission, Resource
from tests.actions.test_avro import SCHEMA, Registry, registry
from tests.contract import raw_kafka
from tests.eventsources.acknowledging_contract import AcknowledgingContract, Broker
from tests.eventsources.fetching import Killed, fetching, killed, running, until
from tests.eventsources.kafka_topic import IDENTITY, Topic
from tests.eventsources.serving import events_on, letters_on, manifest, metric
from tests.security.broker import MECHANISM, SecureBroker, User
from tests.security.conftest import secure_broker

__all__ = ["registry", "secure_broker"]

pytestmark = pytest.mark.kafka


@pytest.fixture
def topic(kafka_bootstrap_servers: str, namespace: str) -> Iterator[Topic]:
    made = Topic(kafka_bootstrap_servers, f"{namespace}-orders")
    yield made
    made.close()


def body(event: Event) -> Any:
    return event.json()["body"]


# --- what every source has to do that acknowledges ------------------------------------------------------------------


class ProtectedTopic(Broker):
    """On a broker that can be stopped, and that may ask for a password."""

    kind = "kafka"

    def __init__(self, server: SecureBroker, namespace: str, secret: Any) -> None:
        self._server = server
        self._user = f"{namespace}-reader"
        self._secret = secret
        self.topic = Topic(server.open_address, f"{namespace}-orders", partitions=0)

    def spec(self, **changes: Any) -> dict[str, Any]:
        if "password" in changes:
            login = {"userSecret": self._secret(self._user, "user"), "passwordSecret": changes.pop("password")}
            changes["url"] = self._server.address()
            changes["sasl"] = {"mechanism": MECHANISM, **login}
            changes["tls"] = {"caCertFile": str(self._server.authority)}
        return self.topic.spec(**changes)

    def open(self) -> None:
        self.topic.create(1)

    def send(self, *texts: str) -> None:
        self.topic.send(*texts)

    def unacknowledged(self) -> int:
        return self.topic.unacknowledged()

    def text_of(self, event: Event) -> str:
        return b64decode(body(event)).decode()

    def start(self) -> None:
        self._server.restart()

    def stop(self) -> None:
        self._server.kill()

    def protect(self, password: str) -> None:
        user = User(self._user, password)
        self._server.admit(user)
        reads = (Resource.TOPIC, self.topic.name), (Resource.GROUP, self.topic.group)
        self._server.permit(user, [Permission(resource, name, Operation.READ) for resource, name in reads])


@pytest.fixture
def broker(secure_broker: SecureBroker, namespace: str, secret: Any) -> Iterator[ProtectedTopic]:
    made = ProtectedTopic(secure_broker, namespace, secret)
    yield made
    made.topic.close()


class TestAcknowledging(AcknowledgingContract):
    """See there."""


def test_a_password_is_in_no_line_of_the_log(
    broker: ProtectedTopic, bus: Bus, secret: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    broker.open()
    broker.protect("right-5b1c")
    broker.send("a")
    with fetching(broker.source(password=secret("right-5b1c"), config={"debug": "all"}), bus, IDENTITY) as fetcher:
        fetcher.wait_for(1)
    assert "SASL" in caplog.text
    assert "right-5b1c" not in caplog.text


# --- events ---------------------------------------------------------------------------------------------------------


def test_what_an_event_looks_like(topic: Topic, bus: Bus) -> None:
    headers = [("shop", b"eu"), ("nothing", None), ("twice", b"1"), ("twice", b"2"), ("odd", b"\xff")]
    topic.send(b"\x00hello", key=b"ada", headers=headers, timestamp=1_700_000_000_123)
    with fetching(topic.source(metadata={"team": "a"}), bus, IDENTITY) as fetcher:
        [event] = fetcher.wait_for(1)
    assert event.json() == {
        "topic": topic.name,
        "partition": 0,
        "key": "ada",
        "timestamp": "2023-11-14T22:13:20.123Z",
        "headers": {"shop": "eu", "nothing": "", "twice": "2", "odd": "\ufffd"},
        "body": b64encode(b"\x00hello").decode(),
        "metadata": {"team": "a"},
    }
    assert (event.id, event.source, event.subject, event.type) == (f"{topic.name}-0-0", "orders", "order", "kafka")
    assert event.attributes["time"] == "2023-11-14T22:13:20.123Z"


def test_json_is_kept_digit_by_digit(topic: Topic, bus: Bus) -> None:
    topic.send('{"amount": 1.10, "id": 12345678901234567890}')
    with fetching(topic.source(jsonBody=True), bus, IDENTITY) as fetcher:
        [event] = fetcher.wait_for(1)
    assert b'"body":{"amount": 1.10, "id": 12345678901234567890}' in (event.data or b"")


@pytest.mark.parametrize("json_body", [True, False])
def test_a_tombstone_is_an_event_without_a_body(topic: Topic, bus: Bus, json_body: bool) -> None:
    topic.send(None, key=b"gone")
    topic.send("1")
    with fetching(topic.source(jsonBody=json_body), bus, IDENTITY) as fetcher:
        first, second = fetcher.wait_for(2)
    assert (first.json()["key"], body(first)) == ("gone", None)
    assert (second.json()["key"], body(second)) == (None, 1 if json_body else "MQ==")


def letters(bus: Bus) -> list[tuple[str, bytes | None]]:
    """What is said of each dead letter, and what it was."""
    return [(letter.detail, value) for letter, value in letters_on(bus)]


def test_what_is_not_json_stops_nobody_behind_it(topic: Topic, bus: Bus) -> None:
    topic.send("1", "{", b"\xff", "", "2", "[")
    with fetching(topic.source(jsonBody=True), bus, IDENTITY) as fetcher:
        assert [body(event) for event in fetcher.wait_for(2)] == [1, 2]
        until(lambda: topic.unacknowledged() == 0)
    assert letters(bus) == [
        (f"`{topic.name}-0-{offset}`: {NOT_JSON}", value)
        for offset, value in ((1, b"{"), (2, b"\xff"), (3, b""), (5, b"["))
    ]


def test_what_is_too_large_for_the_bus_stops_nobody_behind_it(topic: Topic, bus: Bus) -> None:
    topic.send(bytes(900_000), "small")
    with running(manifest("kafka", "orders", order=topic.spec()), bus):
        until(lambda: topic.unacknowledged() == 0)
    assert [event.id for event in events_on(bus)] == [f"{topic.name}-0-1"]
    [(detail, _)] = letters(bus)
    assert detail.startswith(f"`{topic.name}-0-0`: it is larger than")


def test_a_header_and_a_time_that_nobody_can_read_stop_nobody(
    kafka_bootstrap_servers: str, namespace: str, bus: Bus
) -> None:
    topic = Topic(kafka_bootstrap_servers, f"{namespace}-odd", partitions=0)
    topic.create(1, message_timestamp_after_max_ms=str(2**63 - 1))
    topic.send("first")  # now the partition has a leader, for whom the next line cannot wait
    raw_kafka.produce(topic.address, topic.name, b"k", b"v", [(b"\xff\xfe", b"x")])
    topic.send("far", timestamp=9_000_000_000_000_000)
    with fetching(topic.source(), bus, IDENTITY) as fetcher:
        _, unreadable, far = fetcher.wait_for(3)
    assert unreadable.json()["headers"] == {"\ufffd": ""}
    assert far.json()["timestamp"] is None
    assert "time" not in far.attributes
    topic.close()


def test_a_records_key_may_be_the_events(topic: Topic, bus: Bus) -> None:
    topic.send("a", key=b"ada")
    topic.send("b")
    with running(manifest("kafka", "orders", order=topic.spec(partitionKey="data.key")), bus):
        until(lambda: len(events_on(bus)) == 2)
    assert [event.attributes.get("partitionkey") for event in events_on(bus)] == ["ada", None]


def avro(number: int, total: Any) -> bytes:
    stream = BytesIO()
    schemaless_writer(stream, SCHEMA, {"total": total})
    return b"\x00" + number.to_bytes(4, "big") + stream.getvalue()


def test_avro_becomes_json_and_what_is_no_avro_stops_nobody(topic: Topic, bus: Bus, registry: str) -> None:
    topic.send(avro(7, 1.5), "plain", b"\x00", avro(10, 1.0), avro(8, 1.0), avro(7, 1.0)[:-1], None, avro(7, 2.5))
    with fetching(topic.source(jsonBody=True, schemaRegistry={"url": registry}), bus, IDENTITY) as fetcher:
        assert [body(event) for event in fetcher.wait_for(3)] == [{"total": 1.5}, None, {"total": 2.5}]
        until(lambda: topic.unacknowledged() == 0)
    assert [path for path, _ in Registry.asked].count("/schemas/ids/7") == 1
    unknown = "it names a schema that cannot be had: the schema registry"
    no_number = "it does not begin with the number of a schema"
    assert [detail for detail, _ in letters(bus)] == [
        f"`{topic.name}-0-1`: {no_number}",
        f"`{topic.name}-0-2`: {no_number}",
        f"`{topic.name}-0-3`: {unknown} answered 404 for {registry}/schemas/ids/10",
        f"`{topic.name}-0-4`: {unknown}'s answer for {registry}/schemas/ids/8 is no Avro schema: 'schema'",
        f"`{topic.name}-0-5`: it does not fit the schema 7: EOFError",
    ]


def test_a_registry_that_does_not_answer_costs_no_record(topic: Topic, bus: Bus, registry: str) -> None:
    topic.send(avro(9, 1.0))
    with fetching(topic.source(jsonBody=True, schemaRegistry={"url": registry}), bus, IDENTITY) as fetcher:
        error = fetcher.failure()
    assert isinstance(error, SourceError)
    assert str(error) == f"the schema registry answered 503 for {registry}/schemas/ids/9"
    assert topic.unacknowledged() == 1


# --- groups ---------------------------------------------------------------------------------------------------------


def test_a_new_group_begins_with_what_comes_after_it_and_misses_nothing_from_then_on(topic: Topic, bus: Bus) -> None:
    topic.send("before")
    newest = topic.source(consumerGroup={"groupName": topic.group})
    with fetching(newest, bus, IDENTITY):
        until(lambda: topic.unacknowledged() == 0)
    topic.send("meanwhile")
    with fetching(newest, bus, IDENTITY) as fetcher:
        assert fetcher.wait_for(1)[0].id == f"{topic.name}-0-1"


def test_two_replicas_share_the_partitions_and_hand_them_over_without_a_repeat(
    kafka_bootstrap_servers: str, namespace: str, bus: Bus
) -> None:
    topic = Topic(kafka_bootstrap_servers, f"{namespace}-shared", partitions=4)
    made = manifest("kafka", "orders", order=topic.spec())
    assert not made.once
    with running(made, bus) as one:
        until(lambda: topic.unacknowledged() == 0 and _published(one) == 0)
        topic.send("a", partition=0)
        until(lambda: _published(one) == 1)
        with running(made, bus) as other:
            rounds = _until_both_have_something(topic, one, other)
        for partition in range(4):
            topic.send("b", partition=partition)
        until(lambda: len(events_on(bus)) == 1 + 4 * rounds + 4)
    assert set(Counter(event.id for event in events_on(bus)).values()) == {1}
    topic.close()


def _published(runner: Any) -> float:
    name = "eventbus_source_events_total"
    return metric(runner, name, eventsource="orders", event="order", outcome="published")


def _until_both_have_something(topic: Topic, *runners: Any) -> int:
    """Sends to all partitions until each of the replicas has got something; returns how often that took."""
    sent = 0

    def shared() -> bool:
        nonlocal sent
        for partition in range(4):
            topic.send("x", partition=partition)
        sent += 1
        until(lambda: sum(map(_published, runners)) >= 1 + 4 * sent)
        assert sum(map(_published, runners)) == 1 + 4 * sent, "something was told twice"
        return _published(runners[1]) > 0

    until(shared)
    return sent


def test_a_commit_that_the_group_does_not_take_is_made_up_for(
    topic: Topic, bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it happens when partitions are just then shared out anew."""
    refused: list[int] = []
    send = Progress._send

    def refuse_twice(self: Progress, client: Consumer) -> None:
        if len(refused) == 2:
            send(self, client)
        else:
            refused.append(1)
            self.answered(KafkaError(KafkaError.REBALANCE_IN_PROGRESS), [TopicPartition(topic.name, 0, 1)])

    monkeypatch.setattr(Progress, "_send", refuse_twice)
    topic.send("a")
    with fetching(topic.source(), bus, IDENTITY):
        until(lambda: topic.unacknowledged() == 0)
    assert len(refused) == 2


def test_members_that_share_in_another_way_are_told_of(topic: Topic, bus: Bus) -> None:
    settings = {"bootstrap.servers": topic.address, "group.id": topic.group}
    eager = Consumer({**settings, "partition.assignment.strategy": "range"})
    eager.subscribe([topic.name])
    until(lambda: eager.poll(0.05) is not None or eager.assignment())
    try:
        with fetching(topic.source(), bus, IDENTITY) as fetcher:
            error = fetcher.failure()
    finally:
        eager.close()
    assert isinstance(error, SourceError)
    assert str(error).endswith(
        "Other members of the group share its partitions in another way: stop them, or name another group."
    )


def test_records_that_were_removed_unread_stop_nobody_behind_them(
    topic: Topic, bus: Bus, caplog: pytest.LogCaptureFixture
) -> None:
    topic.send("a")
    with fetching(topic.source(), bus, IDENTITY) as fetcher:
        fetcher.wait_for(1)
        until(lambda: topic.unacknowledged() == 0)
    topic.send("b", "c", "d")
    topic.remove_before(3)
    with fetching(topic.source(), bus, IDENTITY) as fetcher:
        assert fetcher.wait_for(1)[0].id == f"{topic.name}-0-3"
    assert f"orders/order: {topic.name}/0 has no offset 1 any more" in caplog.text
    assert "going on at 3" in caplog.text


def test_a_topic_that_is_missing_is_told_and_read_as_soon_as_it_is_there(
    kafka_bootstrap_servers: str, namespace: str, bus: Bus, caplog: pytest.LogCaptureFixture
) -> None:
    topic = Topic(kafka_bootstrap_servers, f"{namespace}-late", partitions=0)
    with running(manifest("kafka", "orders", order=topic.spec()), bus):
        until(lambda: "Unknown topic or partition" in caplog.text)
        topic.create(1)
        topic.send("a")
        until(lambda: events_on(bus))
    assert f"orders/order: Kafka, reading {topic.name} on {topic.address}: " in caplog.text
    assert "Traceback" not in caplog.text
    topic.close()


def test_it_reads_no_more_than_it_may(topic: Topic, bus: Bus) -> None:
    clock = SystemClock()
    moments: list[float] = []
    sizes: list[int] = []

    def note(events: Sequence[Event]) -> None:
        moments.append(clock.monotonic())
        sizes.append(len(events))

    topic.send(*map(str, range(9)))
    with fetching(topic.source(limitEventsPerSecond=4), bus, IDENTITY, before=note) as fetcher:
        fetcher.wait_for(9)
    assert max(sizes) <= 4
    assert moments[-1] - moments[0] >= 2.0


def test_a_commit_without_an_answer_keeps_nobody_waiting(broker: ProtectedTopic) -> None:
    """librdkafka would wait for it until the broker is back."""
    broker.open()
    told: list[int] = []
    listener = Mock(assigned=told.extend)
    consumer = broker.topic.cluster.consumer(broker.topic.group, broker.topic.name, listener)
    until(lambda: consumer.poll(1, 0.1) or told)
    consumer.commit({0: 0})
    broker.stop()
    try:
        clock = SystemClock()
        began = clock.monotonic()
        consumer.close()
        assert clock.monotonic() - began < 10
    finally:
        broker.start()


# --- a single partition ---------------------------------------------------------------------------------------------


def test_one_partition_is_read_on_where_it_was_left_and_nothing_is_told_twice(
    kafka_bootstrap_servers: str, namespace: str, bus: Bus
) -> None:
    topic = Topic(kafka_bootstrap_servers, f"{namespace}-two", partitions=2)
    alone = topic.source(consumerGroup=None, partition="1", jsonBody=True)
    topic.send("0", partition=1)
    with fetching(alone, bus, IDENTITY):
        until(lambda: _remembered(bus))
    topic.send("1", "{", partition=1)
    topic.send("9", partition=0)
    with fetching(alone, bus, IDENTITY, after=killed) as fetcher:
        assert isinstance(fetcher.failure(), Killed)
    topic.send("2", partition=1)
    with fetching(alone, bus, IDENTITY) as fetcher:
        fetcher.wait_for(1)
    assert [(event.id, body(event)) for event in events_on(bus)] == [
        (f"{topic.name}-1-1", 1),
        (f"{topic.name}-1-3", 2),
    ]
    assert letters(bus) == [(f"`{topic.name}-1-2`: {NOT_JSON}", b"{")]
    topic.close()


def _remembered(bus: Bus) -> Any:
    """The last that was written to be remembered."""
    ensure_source_topic(bus.cluster, bus.name)
    reader = bus.cluster.reader()
    try:
        start, end = reader.offsets(bus.name.source_topic, 0)
        reader.open(bus.name.source_topic, 0, start)
        found: list[Record] = []
        while reader.position(bus.name.source_topic, 0) < end:
            found += reader.read(100, 1.0)
    finally:
        reader.close()
    return json.loads(found[-1].value or b"") if found else None


def test_what_was_remembered_of_another_topic_does_not_count(topic: Topic, bus: Bus) -> None:
    for memory in (b"1700000000000", b'{"topic":"other","partition":0,"offset":7}'):
        journal = Journal(bus, IDENTITY)
        journal.write([], memory)
        journal.close()
        with fetching(topic.source(consumerGroup=None, partition="0"), bus, IDENTITY):
            until(lambda: _remembered(bus) == {"topic": topic.name, "partition": 0, "offset": 0})


def test_a_topic_or_a_partition_that_is_missing_is_told(topic: Topic, bus: Bus) -> None:
    for name, message in (
        (topic.name, f"the topic `{topic.name}` has 1 partitions, counted from 0"),
        (f"{topic.name}-missing", f"topic {topic.name}-missing does not exist on {topic.address}"),
    ):
        with fetching(topic.source(topic=name, consumerGroup=None, partition="1"), bus, IDENTITY) as fetcher:
            error = fetcher.failure()
        assert isinstance(error, SourceError)
        assert str(error) == message


def test_of_a_single_partition_too_what_was_removed_unread_stops_nobody(topic: Topic, bus: Bus) -> None:
    alone = topic.source(consumerGroup=None, partition="0")
    with fetching(alone, bus, IDENTITY):
        until(lambda: _remembered(bus))
    topic.send("a", "b")
    topic.remove_before(1)
    with fetching(alone, bus, IDENTITY) as fetcher:
        assert fetcher.wait_for(1)[0].id == f"{topic.name}-0-1"


def test_brokers_that_are_not_there(topic: Topic, bus: Bus) -> None:
    with fetching(topic.source(url="127.0.0.1:1", consumerGroup=None, partition="0"), bus, IDENTITY) as fetcher:
        error = fetcher.failure()
    assert isinstance(error, SourceError)
    assert "127.0.0.1:1: no answer. Check that the brokers run and can be reached from here." in str(error)
