"""A client that librdkafka has given up for good: nobody waits for it in vain, and the next one goes on.

In an outage that is a matter of luck. With its gapless guarantee a client gives up when the log refuses a record.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from eventbus import Bus, Event
from eventbus.errors import LogError, UnknownOutcome, UnproducibleError
from eventbus.kafka import KafkaCluster
from eventbus.kafka.connection import Connection
from eventbus.kafka.errors import kafka_error, translated
from eventbus.kafka.publisher import KafkaPublisher
from eventbus.names import BusName
from eventbus.ports import Output, Position, Publisher
from eventsources.metrics import SourceMetrics
from eventsources.sink import Sink
from tests.contract.lab import PATIENCE, Lab, values

pytestmark = pytest.mark.kafka

SMALL, TOO_LARGE = b"small", b"x" * 3000


@pytest.fixture
def connection(kafka_bootstrap_servers: str) -> Connection:
    return Connection(kafka_bootstrap_servers, producer={"enable.gapless.guarantee": "true"})


@pytest.fixture
def lab(connection: Connection, namespace: str) -> Iterator[Lab]:
    lab = Lab(KafkaCluster(connection), namespace)
    yield lab
    lab.close()
    lab.cluster.close()


class Fates:
    """What was told of each record, as often as it was told."""

    def __init__(self, publisher: Publisher, topic: str) -> None:
        self._publisher = publisher
        self._topic = topic
        self.told: defaultdict[int, list[LogError | None]] = defaultdict(list)

    def send(self, number: int, value: bytes = SMALL) -> None:
        def done(error: LogError | None, _: Position | None) -> None:
            self.told[number].append(error)

        self._publisher.send(Output(self._topic, 0, None, value), done)


def flush(publisher: Publisher) -> None:
    publisher.flush(PATIENCE)


def serve(publisher: Publisher) -> None:
    publisher.serve(0.05)


@pytest.mark.parametrize("wait", [flush, serve])
def test_everybody_is_told_once_and_the_next_record_is_written(lab: Lab, wait: Callable[[Publisher], None]) -> None:
    topic = lab.topic(max_message_bytes="2000")
    publisher = lab.publisher()
    fates = Fates(publisher, topic)
    for number in range(1, 20):
        fates.send(number)
    publisher.flush(PATIENCE)
    fates.send(20, TOO_LARGE)
    for number in range(21, 40):
        fates.send(number)
    end = time.monotonic() + PATIENCE
    while len(fates.told) < 39 and time.monotonic() < end:
        wait(publisher)
    fates.send(40)
    publisher.flush(PATIENCE)
    assert {len(errors) for errors in fates.told.values()} == {1}
    errors = [fates.told[number][0] for number in range(1, 41)]
    assert errors[:19] == [None] * 19
    assert isinstance(errors[19], UnknownOutcome | UnproducibleError)
    assert errors[39] is None
    assert values(lab.read_all(topic)) == [SMALL] * errors.count(None)


def is_dead(client: Producer, topic: str) -> bool:
    try:
        client.produce(topic, SMALL, partition=0)
    except KafkaException as exception:
        return kafka_error(exception).code() == KafkaError._FATAL
    return False


def test_who_sends_through_a_dead_client_gets_the_next_one(lab: Lab) -> None:
    """One that has not called back yet: its thread finds out by itself, and nobody has polled since."""
    topic = lab.topic(max_message_bytes="2000")
    publisher = lab.publisher()
    assert isinstance(publisher, KafkaPublisher)
    client = publisher._producer.client
    client.produce(topic, TOO_LARGE, partition=0)
    end = time.monotonic() + PATIENCE
    while not is_dead(client, topic):
        assert time.monotonic() < end, "the client has not given up"
        time.sleep(0.01)
    fates = Fates(publisher, topic)
    fates.send(1)
    assert publisher._producer.client is not client
    assert publisher.flush(PATIENCE) == 0
    assert fates.told == {1: [None]}


def test_a_bus_goes_on(lab: Lab, connection: Connection, namespace: str) -> None:
    topic = lab.topic(max_message_bytes="2000")
    with Bus.on(connection, BusName(namespace)) as bus:
        bus.ensure(1)
        [refused] = bus.write([Output(topic, 0, None, TOO_LARGE)], timeout=PATIENCE)
        assert isinstance(refused, UnknownOutcome | UnproducibleError)
        written = bus.publish(*(Event.new("shop", "order") for _ in range(10)))
        bus.cluster.delete([bus.name.event_topic])
    assert [each.offset for each in written] == list(range(10))


def test_a_sink_of_event_sources_goes_on(lab: Lab, connection: Connection, namespace: str) -> None:
    topic = lab.topic(max_message_bytes="2000")
    with Bus.on(connection, BusName(namespace)) as bus:
        bus.ensure(1)
        with Sink(bus, SourceMetrics()) as sink:
            [refused] = sink.deliver([Output(topic, 0, None, TOO_LARGE)])
            assert isinstance(refused, UnknownOutcome | UnproducibleError)
            assert sink.deliver([bus.output(Event.new("shop", "order"))] * 3) == [None] * 3
        bus.cluster.delete([bus.name.event_topic])


def complaint(error: BaseException) -> SystemError:
    """What Python says when a callback returns though an exception is pending."""
    system_error = SystemError("returned a result with an exception set")
    system_error.__cause__ = error
    return system_error


def test_the_reason_is_found_behind_what_python_complains_about() -> None:
    reason = KafkaError(KafkaError._INCONSISTENT, "lost count", fatal=True)
    nested = complaint(complaint(KafkaException(reason)))
    assert kafka_error(nested) is reason
    with pytest.raises(UnknownOutcome, match="writing: lost count"), translated("writing"):
        raise nested


def test_any_other_complaint_is_not_ours_to_explain() -> None:
    with pytest.raises(SystemError), translated("writing"):
        raise complaint(ValueError())
