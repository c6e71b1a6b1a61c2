"""Messages of RabbitMQ become events, at least once."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from itertools import count
from typing import Any

import pika
import pytest
from pika.data import decode_table

from eventbus import Bus, Event
from eventsources.base import SourceError
from eventsources.sources import amqp_client
from tests.actions.conftest import Certificate
from tests.eventsources.acknowledging_contract import AcknowledgingContract, Broker
from tests.eventsources.fetching import Killed, fetching, killed, until
from tests.eventsources.rabbitmq_server import PASSWORD, USER, RabbitServer
from tests.eventsources.relay import Relay
from tests.eventsources.serving import events_on, letters_on

_numbers = count()


class Queue(Broker):
    """A durable queue of its own, which is bound to a topic exchange of its own."""

    kind = "amqp"

    def __init__(self, server: RabbitServer, secret: Any) -> None:
        self.server = server
        self.name = f"orders-{next(_numbers)}"
        self.relay = Relay("127.0.0.1", server.port)
        self.user = secret(USER, "user")
        self.password = secret(PASSWORD, "password")

    def spec(self, *, password: Any = None, **changes: Any) -> dict[str, Any]:
        return {
            "url": f"amqp://localhost:{self.relay.port}",
            "exchangeName": self.name,
            "exchangeType": "topic",
            "routingKey": "order.*",
            "queueDeclare": {"name": self.name, "durable": True},
            "auth": {"username": self.user, "password": password or self.password},
            **changes,
        }

    def open(self) -> None:
        with self.channel() as channel:
            channel.exchange_declare(self.name, "topic", durable=True)
            channel.queue_declare(self.name, durable=True)
            channel.queue_bind(self.name, self.name, "order.*")

    def send(self, *texts: str) -> None:
        self._publish((text.encode(), {"message_id": f"m-{text}"}) for text in texts)

    def publish(self, *bodies: bytes, **properties: Any) -> None:
        self._publish((body, properties) for body in bodies)

    def _publish(self, messages: Iterable[tuple[bytes, dict[str, Any]]]) -> None:
        with self.channel() as channel:
            channel.confirm_delivery()
            for body, properties in messages:
                channel.basic_publish(self.name, "order.eu", body, pika.BasicProperties(**properties))

    @contextmanager
    def channel(self) -> Iterator[Any]:
        credentials = pika.PlainCredentials(USER, self.server.password)
        with pika.BlockingConnection(
            pika.ConnectionParameters("127.0.0.1", self.server.port, credentials=credentials)
        ) as connection:
            yield connection.channel()

    def unacknowledged(self) -> int:
        return self.server.messages(self.name)

    def text_of(self, event: Event) -> str:
        return b64decode(event.json()["body"]).decode()

    def start(self) -> None:
        self.relay.mend()

    def stop(self) -> None:
        self.relay.cut()

    def protect(self, password: str) -> None:
        self.server.set_password(password)


@pytest.fixture(scope="module")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory, certificate: Certificate) -> Iterator[RabbitServer]:
    server = RabbitServer(tmp_path_factory.mktemp("rabbitmq"), certificate)
    yield server
    server.close()


@pytest.fixture
def broker(rabbitmq: RabbitServer, secret: Any) -> Iterator[Queue]:
    made = Queue(rabbitmq, secret)
    yield made
    made.relay.cut()
    rabbitmq.set_password(PASSWORD)


class TestAcknowledging(AcknowledgingContract):
    """See there."""


# --- events ---------------------------------------------------------------------------------------------------------


def test_what_an_event_looks_like(broker: Queue, bus: Bus) -> None:
    broker.open()
    broker.publish(
        b"\xff{}",
        content_type="text/plain",
        content_encoding="gzip",
        delivery_mode=2,
        priority=3,
        correlation_id="c-1",
        reply_to="answers",
        expiration="60000",
        message_id="17",
        timestamp=1_700_000_000,
        type="paid",
        app_id="till",
    )
    with fetching(broker.source(metadata={"shop": "eu"}), bus, broker.identity) as fetcher:
        [event] = fetcher.wait_for(1)
    assert event.json() == {
        "contentType": "text/plain",
        "contentEncoding": "gzip",
        "deliveryMode": 2,
        "priority": 3,
        "correlationId": "c-1",
        "replyTo": "answers",
        "expiration": "60000",
        "messageId": "17",
        "timestamp": "2023-11-14T22:13:20Z",
        "type": "paid",
        "appId": "till",
        "exchange": broker.name,
        "routingKey": "order.eu",
        "body": b64encode(b"\xff{}").decode(),
        "metadata": {"shop": "eu"},
    }
    assert (event.id, event.source, event.subject, event.type) == (f"{broker.name} 17", "orders", "order", "amqp")


def test_a_message_that_says_nothing_of_itself(broker: Queue, bus: Bus) -> None:
    broker.open()
    broker.publish(b"", b"")
    with fetching(broker.source(), bus, broker.identity) as fetcher:
        first, second = fetcher.wait_for(2)
    assert first.id != second.id
    data = first.json()
    assert (data["body"], data["messageId"], data["timestamp"], data["priority"]) == ("", "", "", 0)


def test_without_a_message_id_nothing_is_lost_and_a_repeat_has_another_id(broker: Queue, bus: Bus) -> None:
    broker.open()
    broker.publish(b"a", b"a")
    with fetching(broker.source(), bus, broker.identity, after=killed) as first:
        assert isinstance(first.failure(), Killed)
    with fetching(broker.source(), bus, broker.identity) as second:
        assert broker.texts(second.wait_for(2)) == ["a", "a"]
    assert len({event.id for event in [*first.events, *second.events]}) == len(first.events) + 2


def test_a_json_body_and_what_is_none(broker: Queue, bus: Bus) -> None:
    broker.open()
    broker.publish(b"{", b"\xff", b"", b"[" * 100_000, b'{"n": 1.10}')
    with fetching(broker.source(jsonBody=True), bus, broker.identity) as fetcher:
        [event] = fetcher.wait_for(1)
        until(lambda: broker.unacknowledged() == 0)
    assert b'"body":{"n": 1.10}' in (event.data or b"")
    assert [value for _, value in letters_on(bus)] == [b"{", b"\xff", b"", b"[" * 100_000]


def test_properties_that_nobody_can_read_hold_nobody_up(
    broker: Queue, bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.open()
    encode = pika.BasicProperties.encode

    def oddly(properties: Any) -> list[bytes]:
        """What pika itself would not say: a text that is not UTF-8, and a time that no calendar has."""
        said = b"".join(encode(properties))
        return [said.replace(b"text", b"\xff\xfe\xfd\xfc").replace(b"T\0\0\0\0\0\0\0\7", b"T" + b"\xff" * 8)]

    with monkeypatch.context() as patched, broker.channel() as channel:
        patched.setattr(pika.BasicProperties, "encode", oddly)
        headers = {"at": datetime.fromtimestamp(7, UTC), "more": ["x"]}
        odd = pika.BasicProperties(content_type="text", headers=headers, timestamp=2**64 - 1)
        channel.basic_publish(broker.name, "order.eu", b"a", odd)
    broker.send("b")
    with fetching(broker.source(), bus, broker.identity) as fetcher:
        events = fetcher.wait_for(2)
    assert broker.texts(events) == ["a", "b"]
    assert (events[0].json()["contentType"], events[0].json()["timestamp"]) == ("\ufffd" * 4, "")


@pytest.mark.parametrize("value", [b"f\x7f\xc0\0\0", b"d\x7f\xf0\0\0\0\0\0\0", b"T" + b"\xff" * 8])
def test_headers_that_python_has_no_value_for(value: bytes) -> None:
    """RabbitMQ lets only the last of them through; others are not so strict."""
    items = b"\1n" + value + b"\1mt\1"
    assert decode_table(len(items).to_bytes(4) + items, 0) == ({"n": None, "m": True}, 4 + len(items))


def test_it_reads_no_more_ahead_than_it_may(broker: Queue, bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(amqp_client, "MOST_UNACKNOWLEDGED", 2)
    sizes: list[int] = []
    broker.open()
    broker.send(*"abcde")
    with fetching(broker.source(), bus, broker.identity, after=lambda events: sizes.append(len(events))) as fetcher:
        assert broker.texts(fetcher.wait_for(5)) == list("abcde")
    assert max(sizes) <= 2


# --- exchange and queue ---------------------------------------------------------------------------------------------


def test_what_is_not_there_is_declared_and_a_queue_without_a_name_is_gone_afterwards(broker: Queue, bus: Bus) -> None:
    with fetching(broker.source(queueDeclare={"exclusive": True}), bus, broker.identity) as fetcher:
        until(lambda: _heard(broker, fetcher.events))
    broker.send("lost")
    with fetching(broker.source(queueDeclare={"exclusive": True}), bus, broker.identity) as fetcher:
        until(lambda: _heard(broker, fetcher.events))
        assert "lost" not in broker.texts(fetcher.events)


def _heard(broker: Queue, events: Sequence[Event]) -> bool:
    """Publishes until somebody listens: to an exchange that may not be there yet."""
    with suppress(pika.exceptions.AMQPError):
        broker.send("hello")
    return bool(events)


def test_arguments_and_options_are_those_of_the_manifest(broker: Queue, bus: Bus) -> None:
    declared = {"name": broker.name, "durable": True, "arguments": "x-max-length: 5\nx-overflow: reject-publish"}
    options = {
        "exchangeDeclare": {"durable": False, "autoDelete": True},
        "queueDeclare": declared,
        "consume": {"consumerTag": "till", "exclusive": True},
    }
    with fetching(broker.source(**options), bus, broker.identity) as fetcher:
        until(lambda: _heard(broker, fetcher.events))
        with broker.channel() as channel:
            arguments = {"x-max-length": 5, "x-overflow": "reject-publish"}
            made = channel.queue_declare(broker.name, durable=True, arguments=arguments)
            assert made.method.consumer_count == 1
        with broker.channel() as channel, pytest.raises(pika.exceptions.ChannelClosedByBroker, match="exclusive"):
            channel.basic_consume(broker.name, lambda *_: None)


def test_a_queue_that_is_deleted_while_it_is_read(broker: Queue, bus: Bus) -> None:
    broker.open()
    broker.send("a")
    with fetching(broker.source(), bus, broker.identity) as fetcher:
        fetcher.wait_for(1)
        with broker.channel() as channel:
            channel.queue_delete(broker.name)
        error = fetcher.failure()
    assert isinstance(error, SourceError)
    assert str(error) == f"the queue `{broker.name}` was deleted, or its server gave it up"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"exchangeType": "fanout"}, "PRECONDITION_FAILED - inequivalent arg 'type' for exchange"),
        ({"exchangeType": "nope"}, "unknown exchange type 'nope'"),
        ({"exchangeName": "amq.nope"}, "exchange name 'amq.nope' contains reserved prefix"),
        ({"queueDeclare": {"name": "amq.nope"}}, "queue name 'amq.nope' contains reserved prefix"),
        ({"queueDeclare": {"name": "q", "arguments": "x-max-length: many"}}, "invalid arg 'x-max-length'"),
    ],
)
def test_what_the_server_refuses_is_told(broker: Queue, bus: Bus, changes: dict[str, Any], message: str) -> None:
    broker.open()
    told = broker.failure(bus, **changes)
    assert told.startswith("AMQP at localhost:")
    assert message in told


# --- connections ----------------------------------------------------------------------------------------------------


def test_a_connection_that_breaks_within_a_message(broker: Queue, bus: Bus) -> None:
    broker.open()
    broker.publish(b"x" * 1_000_000, message_id="m")
    broker.relay.break_after = 200_000
    assert broker.failure(bus).startswith("AMQP at localhost:")
    assert (broker.unacknowledged(), events_on(bus)) == (1, [])
    broker.relay.break_after = None
    with fetching(broker.source(), bus, broker.identity) as fetcher:
        [event] = fetcher.wait_for(1)
    assert len(broker.text_of(event)) == 1_000_000


def test_a_server_that_is_not_there(broker: Queue, bus: Bus) -> None:
    broker.stop()
    assert "Connection refused" in broker.failure(bus)
    broker.start()


def test_a_host_that_is_not_there(broker: Queue, bus: Bus) -> None:
    assert broker.failure(bus, url="amqp://no.such.host.invalid").startswith("AMQP at no.such.host.invalid:5672: ")


def test_a_virtual_host_that_is_not_there(broker: Queue, bus: Bus) -> None:
    assert "vhost a/b not found" in broker.failure(bus, url=f"amqp://localhost:{broker.relay.port}/a%2Fb")


def test_tls(broker: Queue, bus: Bus, certificate: Certificate) -> None:
    broker.open()
    broker.send("a")
    url = f"amqps://localhost:{broker.server.tls_port}"
    assert "certificate verify failed" in broker.failure(bus, url=url)
    assert "is it the one for TLS?" in broker.failure(bus, url=url.replace("amqps", "amqp"))
    trusted = {"caCertFile": str(certificate.cert)}
    with fetching(broker.source(url=url, tls=trusted), bus, broker.identity) as fetcher:
        assert broker.texts(fetcher.wait_for(1)) == ["a"]


def test_a_url_in_a_secret_has_user_and_password(broker: Queue, bus: Bus, secret: Any) -> None:
    broker.open()
    broker.send("a")
    broker.server.set_password("p/w@1")
    changes = {"url": None, "auth": None, "urlSecret": secret(f"amqp://{USER}:wr@ng@localhost:{broker.relay.port}/")}
    told = broker.failure(bus, **changes)
    assert "ACCESS_REFUSED" in told
    assert "wr@ng" not in told
    secret(f"amqp://{USER}:p%2Fw%401@localhost:{broker.relay.port}/")
    with fetching(broker.source(**changes), bus, broker.identity) as fetcher:
        assert broker.texts(fetcher.wait_for(1)) == ["a"]


def test_a_secret_that_is_no_url_is_told_without_it(broker: Queue, bus: Bus, secret: Any) -> None:
    with fetching(broker.source(url=None, urlSecret=secret("http://u:s-9@h")), bus, broker.identity) as fetcher:
        told = str(fetcher.failure())
    assert told == "the secret of `urlSecret` must be the server as `amqp://host:port/vhost`, or `amqps://` with TLS"
