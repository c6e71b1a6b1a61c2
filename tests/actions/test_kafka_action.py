"""The `kafka` action: exactly once into the bus's own cluster, at least once and acknowledged into another."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest
from pydantic import ValidationError

from eventbus.cloudevents import from_kafka
from eventbus.errors import ConfigError
from eventbus.hashing import partition_of
from eventbus.kafka import KafkaCluster
from eventbus.ports import Output, Record, TopicSpec
from sensors.actions import kafka_client, make_action
from sensors.actions.base import ActionContext, ActionError, TransactionalAction
from sensors.actions.kafka import KafkaSpec, OtherClusterAction, OwnClusterAction
from tests.actions.conftest import CONTEXT, make_call

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
PAYLOAD = [{"src": {"dependencyName": "paid", "dataKey": "total", "useRawData": True}, "dest": "total"}]


def _spec(**fields: Any) -> KafkaSpec:
    return KafkaSpec.model_validate({"topic": "out", **fields})


def _output(call: Any = None, **fields: Any) -> Output:
    (output,) = OwnClusterAction(_spec(**fields), CONTEXT).outputs(call or make_call())
    return output


# --- which cluster --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "bus", "own"),
    [
        (None, "bus:9092", True),
        (None, "", True),
        ("bus:9092", "bus:9092", True),
        ("bus", "bus:9092", True),
        ("BUS:9092", "bus:9092", True),
        ("two:9092, one:9092", "one:9092,two:9092", True),
        ("two:9092", "one:9092,two:9092", True),
        ("[::1]:9092", "[::1]:9092", True),
        ("bus:9093", "bus:9092", False),
        ("other:9092", "bus:9092", False),
        ("other:9092", "", False),
    ],
)
def test_one_broker_in_common_makes_it_the_bus_itself(url: str | None, bus: str, own: bool) -> None:
    assert _spec(url=url).is_own_cluster(bus) is own


def test_the_registry_makes_the_action_with_the_stronger_guarantee_where_it_can() -> None:
    own = make_action("kafka", _spec(), CONTEXT)
    other = make_action("kafka", _spec(url="other:9092"), CONTEXT)
    assert isinstance(own, OwnClusterAction)
    assert isinstance(own, TransactionalAction)
    assert isinstance(other, OtherClusterAction)
    assert not isinstance(other, TransactionalAction)
    own.close()
    other.close()


def test_a_topic_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigError, match="the topic `nowhere`, which a `kafka` action writes to, does not exist"):
        OwnClusterAction(_spec(topic="nowhere"), CONTEXT)


# --- the record -----------------------------------------------------------------------------------------------------


def test_the_record_is_a_cloudevent_whose_id_is_the_action_id() -> None:
    output = _output(make_call(traceparent=PARENT, tracestate="v=1"), payload=PAYLOAD)
    event = from_kafka(output.headers, output.value)
    assert event.attributes == {
        "specversion": "1.0",
        "id": "action-1",
        "source": "/shop/orders",
        "type": "dev.eventbus.action",
        "subject": "ship",
        "datacontenttype": "application/json",
        "traceparent": PARENT,
        "tracestate": "v=1",
    }
    assert event.data == b'{"total":12}'


def test_without_a_payload_the_value_holds_the_events_of_all_dependencies() -> None:
    document = json.loads(_output().value or b"")
    assert document["paid"]["data"] == {"total": 12}
    assert document["paid"]["id"] == "e-1"


def test_configured_headers_come_with_it_and_may_replace_the_content_type() -> None:
    headers = _output(headers={"team": "shop", "Content-Type": "text/plain"}).headers
    assert ("team", b"shop") in headers
    assert [value for name, value in headers if name.lower() == "content-type"] == [b"text/plain"]


def test_the_partition_is_computed_from_the_key() -> None:
    output = _output(partitioningKey="customer")
    assert (output.topic, output.key, output.partition) == ("out", b"customer", partition_of(b"customer", 8))


def test_without_a_key_actions_spread_by_their_id_and_repetitions_stay_together() -> None:
    outputs = [_output(make_call(id=f"a-{number}")) for number in range(400)]
    assert {output.key for output in outputs} == {None}
    assert Counter(output.partition for output in outputs).keys() == set(range(8))
    assert [_output(make_call(id=f"a-{number}")) for number in range(400)] == outputs


def test_a_payload_that_cannot_be_made_is_a_permanent_error() -> None:
    with pytest.raises(ActionError) as caught:
        _output(payload=[{"src": {"dependencyName": "paid", "dataKey": "x"}, "dest": "y"}])
    assert (caught.value.retriable, caught.value.sent) == (False, False)


# --- mistakes that the manifest's reader finds ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"topic": ""}, "must consist of letters, digits"),
        ({"topic": "a b"}, "must consist of letters, digits"),
        ({"topic": ".."}, "must consist of letters, digits"),
        ({"topic": "x" * 250}, "at most 249 characters"),
        ({"url": ""}, "must be one or more Kafka brokers"),
        ({"url": "http://h:1"}, "must be one or more Kafka brokers"),
        ({"url": "a:1,,b:2"}, "must be one or more Kafka brokers"),
        ({"partitioningKey": ""}, "at least 1 character"),
        ({"headers": {"ce_id": "x"}}, "the header `ce_id` is not allowed"),
        ({"headers": {"CE_source": "x"}}, "is for CloudEvents attributes"),
    ],
)
def test_settings_that_cannot_work_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        _spec(**fields)


# --- another cluster ------------------------------------------------------------------------------------------------


@pytest.fixture
def topic(kafka_cluster: KafkaCluster, namespace: str) -> Iterator[str]:
    name = f"{namespace}-out"
    kafka_cluster.create([TopicSpec(name, 3, {"max.message.bytes": "100000"})])
    yield name
    kafka_cluster.delete([name])


@pytest.fixture
def other(kafka_bootstrap_servers: str, topic: str) -> Iterator[OtherClusterAction]:
    spec = _spec(
        url=kafka_bootstrap_servers, topic=topic, payload=PAYLOAD, partitioningKey="k", headers={"team": "shop"}
    )
    action = OtherClusterAction(spec, CONTEXT)
    yield action
    action.close()


def _read_all(cluster: KafkaCluster, topic: str, count: int) -> list[Record]:
    reader = cluster.reader()
    for partition in range(3):
        reader.open(topic, partition, 0)
    records: list[Record] = []
    while len(records) < count:
        records += reader.read(1000, 1.0)
    reader.close()
    return records


@pytest.mark.kafka
def test_a_record_for_another_cluster_is_there_when_the_action_is_done(
    other: OtherClusterAction, kafka_cluster: KafkaCluster, topic: str
) -> None:
    status = other.invoke(make_call())
    (record,) = _read_all(kafka_cluster, topic, 1)
    assert status == f"{topic}-{record.partition}@{record.offset}"
    assert record.key == b"k"
    assert ("team", b"shop") in record.headers
    event = from_kafka(record.headers, record.value)
    assert (event.id, event.source, event.subject, event.data) == ("action-1", "/shop/orders", "ship", b'{"total":12}')


@pytest.mark.kafka
def test_calls_to_another_cluster_run_in_parallel(
    other: OtherClusterAction, kafka_cluster: KafkaCluster, topic: str
) -> None:
    with ThreadPoolExecutor(8) as workers:
        places = list(workers.map(lambda number: other.invoke(make_call(id=f"a-{number}")), range(64)))
    records = _read_all(kafka_cluster, topic, 64)
    assert len(set(places)) == 64
    assert {from_kafka(record.headers, record.value).id for record in records} == {f"a-{n}" for n in range(64)}


@pytest.mark.kafka
def test_a_record_that_the_broker_refuses_is_a_permanent_error_and_not_sent(
    kafka_bootstrap_servers: str, topic: str
) -> None:
    action = OtherClusterAction(_spec(url=kafka_bootstrap_servers, topic=topic), CONTEXT)
    event = msgspec.structs.replace(make_call().events["paid"], data=b'"' + b"x" * 200_000 + b'"')
    with pytest.raises(ActionError) as caught:
        action.invoke(make_call(events={"paid": event}))
    action.close()
    assert caught.value.status == "MSG_SIZE_TOO_LARGE"
    assert (caught.value.retriable, caught.value.sent) == (False, False)


def test_a_record_that_is_too_large_for_the_client_is_a_permanent_error_and_not_sent() -> None:
    action = OtherClusterAction(_spec(url="localhost:1"), CONTEXT)
    event = msgspec.structs.replace(make_call().events["paid"], data=b'"' + b"x" * 2_000_000 + b'"')
    with pytest.raises(ActionError) as caught:
        action.invoke(make_call(events={"paid": event}))
    action.close()
    assert caught.value.status == "MSG_SIZE_TOO_LARGE"
    assert (caught.value.retriable, caught.value.sent) == (False, False)


def test_a_cluster_that_does_not_answer_is_an_error_that_may_be_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_client, "DELIVERY_SECONDS", 1)
    context = ActionContext(sensor="s", namespace="n", bootstrap_servers="", partitions={})
    action = make_action("kafka", _spec(url="localhost:1"), context)
    assert isinstance(action, OtherClusterAction)
    with pytest.raises(ActionError) as caught:
        action.invoke(make_call())
    action.close()
    assert str(caught.value).startswith("Kafka: ")
    assert caught.value.status == "_MSG_TIMED_OUT"
    assert (caught.value.retriable, caught.value.sent) == (True, True)


@pytest.mark.kafka
def test_a_producer_that_has_given_up_is_replaced(kafka_bootstrap_servers: str, topic: str) -> None:
    """In an outage that is a matter of luck; with its gapless guarantee it does when the log refuses a record."""
    settings = {"bootstrap.servers": kafka_bootstrap_servers, "enable.gapless.guarantee": True}
    delivery = kafka_client.DeliveryProducer(settings)
    with pytest.raises(ActionError, match="too large") as caught:
        delivery.deliver(topic, b"k", b"x" * 200_000, [])
    assert caught.value.status == "_GAPLESS_GUARANTEE"
    assert (caught.value.retriable, caught.value.sent) == (True, True)
    with ThreadPoolExecutor(8) as workers:
        places = list(workers.map(lambda _: delivery.deliver(topic, b"k", b"small", []), range(16)))
    delivery.close()
    assert sorted(int(place.rpartition("@")[2]) for place in places) == list(range(16))


@pytest.mark.kafka
def test_nobody_waits_for_the_reports_of_a_producer_that_has_given_up(kafka_bootstrap_servers: str, topic: str) -> None:
    settings = {"bootstrap.servers": kafka_bootstrap_servers, "enable.gapless.guarantee": True}
    delivery = kafka_client.DeliveryProducer(settings)

    def outcome(size: int) -> str | None:
        try:
            return delivery.deliver(topic, b"k", b"x" * size, [])
        except ActionError as error:
            return error.status

    with ThreadPoolExecutor(8) as workers:
        outcomes = set(workers.map(outcome, [200_000 if number % 20 == 10 else 10 for number in range(100)]))
    delivery.close()
    failures = {each for each in outcomes if not str(each).startswith(topic)}
    assert failures <= {"_GAPLESS_GUARANTEE", "_FATAL", "MSG_SIZE_TOO_LARGE"}
    assert len(outcomes) > len(failures)


# --- argo-events' other fields --------------------------------------------------------------------------------------


def test_what_there_is_no_need_for_is_accepted_and_said() -> None:
    spec = _spec(partition=0, requiredAcks=1, flushFrequency=500, version="2.5.0")
    assert [(flaw.path, flaw.message.partition(":")[0]) for flaw in spec.warnings()] == [
        ((field,), f"`{field}` does nothing") for field in ("partition", "requiredAcks", "flushFrequency", "version")
    ]
    assert not list(_spec().warnings())


def test_records_for_another_cluster_are_compressed_where_that_is_asked_for() -> None:
    settings = {compress: _spec(url="h:1", compress=compress) for compress in (True, False)}
    found = {key: spec.connection(spec.credentials()).get("compression.type") for key, spec in settings.items()}
    assert found == {True: "snappy", False: None}
