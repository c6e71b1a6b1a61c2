"""Messages of MQTT become events, at least once."""

from __future__ import annotations

import socket
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from select import select
from typing import Any

import pytest
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from eventbus import Bus, Event
from eventsources.base import SourceError
from eventsources.sources import mqtt_client
from tests.actions.conftest import Certificate, RawServer, raw_server
from tests.eventsources.acknowledging_contract import AcknowledgingContract, Broker
from tests.eventsources.fetching import Killed, fetching, killed, until
from tests.eventsources.mosquitto_server import USER, MosquittoServer
from tests.eventsources.relay import Relay
from tests.eventsources.serving import events_on, letters_on

__all__ = ["raw_server"]

CLIENT = "till-1"


class Topic(Broker):
    """The topic `orders/eu`, in the session of `CLIENT`."""

    kind = "mqtt"

    def __init__(self, server: MosquittoServer, secret: Any) -> None:
        self.server = server
        self._secret = secret

    def spec(self, *, password: Any = None, **changes: Any) -> dict[str, Any]:
        auth = None if password is None else {"username": self._secret(USER, "user"), "password": password}
        url = f"tcp://localhost:{self.server.port}"
        return {"url": url, "topic": "orders/+", "clientId": CLIENT, "auth": auth, **changes}

    def open(self) -> None:
        with self.client(CLIENT) as client:
            subscribed: list[Any] = []
            client.on_subscribe = lambda *_: subscribed.append(True)
            client.subscribe("orders/+", 1)
            until(lambda: subscribed)

    def send(self, *texts: str) -> None:
        self.publish(*(text.encode() for text in texts))

    def publish(self, *bodies: bytes, topic: str = "orders/eu", qos: int = 1, retain: bool = False) -> None:
        with self.client("") as client:
            for body in bodies:
                client.publish(topic, body, qos, retain).wait_for_publish(20)

    @contextmanager
    def client(self, id: str) -> Iterator[Client]:
        client = Client(CallbackAPIVersion.VERSION2, id, clean_session=not id, protocol=MQTTProtocolVersion.MQTTv311)
        if self.server.password is not None:
            client.username_pw_set(USER, self.server.password)
        client.connect("127.0.0.1", self.server.port)
        client.loop_start()
        until(client.is_connected)
        try:
            yield client
        finally:
            client.disconnect()
            client.loop_stop()

    def unacknowledged(self) -> int:
        return self.server.messages()

    def text_of(self, event: Event) -> str:
        return b64decode(event.json()["body"]).decode()

    def start(self) -> None:
        self.server.start()

    def stop(self) -> None:
        self.server.stop()

    def protect(self, password: str) -> None:
        self.server.protect(password)


@pytest.fixture
def broker(tmp_path_factory: pytest.TempPathFactory, certificate: Certificate, secret: Any) -> Iterator[Topic]:
    server = MosquittoServer(tmp_path_factory.mktemp("mosquitto"), certificate)
    yield Topic(server, secret)
    server.stop()


class TestAcknowledging(AcknowledgingContract):
    """See there."""


# --- events ---------------------------------------------------------------------------------------------------------


def test_what_an_event_looks_like(broker: Topic, bus: Bus) -> None:
    broker.open()
    broker.publish(b"\xff{}")
    with fetching(broker.source(metadata={"shop": "eu"}), bus, broker.identity) as fetcher:
        [event] = fetcher.wait_for(1)
    assert event.json() == {
        "topic": "orders/eu",
        "messageId": 1,
        "body": b64encode(b"\xff{}").decode(),
        "metadata": {"shop": "eu"},
    }
    assert (event.source, event.subject, event.type) == ("orders", "order", "mqtt")


def test_a_json_body_and_what_is_none(broker: Topic, bus: Bus) -> None:
    broker.open()
    broker.publish(b"{", b"\xff", b"", b"[" * 100_000, b'{"n": 1.10}')
    with fetching(broker.source(jsonBody=True), bus, broker.identity) as fetcher:
        [event] = fetcher.wait_for(1)
        until(lambda: broker.unacknowledged() == 0)
    assert b'"body":{"n": 1.10}' in (event.data or b"")
    assert [value for _, value in letters_on(bus)] == [b"{", b"\xff", b"", b"[" * 100_000]


def test_equal_messages_are_as_many_events_also_when_they_are_sent_again(broker: Topic, bus: Bus) -> None:
    broker.open()
    broker.send("a", "a", "a")
    with fetching(broker.source(), bus, broker.identity, after=killed) as first:
        assert isinstance(first.failure(), Killed)
    with fetching(broker.source(), bus, broker.identity) as second:
        second.wait_for(3)
    ids = [event.id for event in second.events]
    assert len(set(ids)) == 3
    assert [event.id for event in first.events] == ids[: len(first.events)]


def test_numbers_that_are_used_again_are_not_taken_for_repeats(broker: Topic, bus: Bus) -> None:
    """With every server that starts without a memory they begin with 1 again."""
    for _ in range(2):
        broker.open()
        broker.send("a")
        with fetching(broker.source(), bus, broker.identity) as fetcher:
            fetcher.wait_for(1)
            until(lambda: broker.unacknowledged() == 0)
        broker.stop()
        broker.server.forget()
        broker.start()
    assert [event.json()["messageId"] for event in events_on(bus)] == [1, 1]
    assert len({event.id for event in events_on(bus)}) == 2


def test_qos_0_and_2(broker: Topic, bus: Bus) -> None:
    with fetching(broker.source(), bus, broker.identity) as fetcher:
        until(lambda: _heard(broker, fetcher.events))
        before = len(fetcher.events)
        broker.publish(b"a", qos=0)
        broker.publish(b"b", qos=2)
        until(lambda: broker.texts(fetcher.events)[before:] == ["a", "b"])
        until(lambda: broker.unacknowledged() == 0)
    assert fetcher.events[before].json()["messageId"] == 0


def _heard(broker: Topic, events: Sequence[Event]) -> bool:
    broker.publish(b"hello", qos=0)
    until(lambda: events or broker.unacknowledged() == 0)
    return bool(events)


def test_what_is_retained_is_told_once(broker: Topic, bus: Bus) -> None:
    broker.publish(b"state", retain=True)
    with fetching(broker.source(), bus, broker.identity) as fetcher:
        fetcher.wait_for(1)
        until(lambda: broker.unacknowledged() == 0)
    with fetching(broker.source(), bus, broker.identity) as fetcher:
        broker.send("a")
        assert broker.texts(fetcher.wait_for(1)) == ["a"]


def test_it_reads_no_more_ahead_than_it_may(broker: Topic, bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mqtt_client, "MOST_UNACKNOWLEDGED", 2)
    sizes: list[int] = []
    broker.open()
    broker.send(*"abcde")
    with fetching(broker.source(), bus, broker.identity, after=lambda events: sizes.append(len(events))) as fetcher:
        assert broker.texts(fetcher.wait_for(5)) == list("abcde")
    assert max(sizes) <= 2


def test_it_tells_the_server_how_much_to_send_ahead(
    broker: Topic, bus: Bus, raw_server: Callable[..., RawServer]
) -> None:
    said: list[bytes] = []
    url = raw_server(lambda connection: said.append(connection.recv(4096))).url
    broker.failure(bus, url=url.replace("http", "tcp").removesuffix("/hook"))
    for_ever, receive_maximum = b"\x11\xff\xff\xff\xff", b"\x21\x00\x32"
    assert for_ever + receive_maximum in said[0]


# --- sessions -------------------------------------------------------------------------------------------------------


def test_nothing_of_a_session_that_the_server_has_forgotten_is_taken_for_a_repeat(broker: Topic, bus: Bus) -> None:
    def refused(_: Sequence[Event]) -> None:
        raise SourceError("no broker")

    broker.open()
    broker.send("a")
    with fetching(broker.source(), bus, broker.identity) as fetcher:
        [first] = fetcher.wait_for(1)
    broker.stop()
    broker.server.forget()
    broker.start()
    with fetching(broker.source(), bus, broker.identity) as fetcher:
        until(lambda: _heard(broker, fetcher.events))
    broker.send("a")
    with fetching(broker.source(), bus, broker.identity, before=refused) as fetcher:
        fetcher.failure()
    with fetching(broker.source(), bus, broker.identity) as fetcher:
        [second] = fetcher.wait_for(1)
    assert first.data == second.data
    assert first.id != second.id


def test_a_topic_that_is_not_wanted_any_more_is_left(broker: Topic, bus: Bus) -> None:
    with fetching(broker.source(topic="old"), bus, broker.identity):
        until(lambda: _remembers(bus))
    with fetching(broker.source(), bus, broker.identity) as fetcher:
        until(lambda: _heard(broker, fetcher.events))
        broker.publish(b"old", topic="old")
        broker.send("new")
        until(lambda: "new" in broker.texts(fetcher.events))
    assert "old" not in broker.texts(fetcher.events)


def _remembers(bus: Bus) -> bool:
    reader = bus.cluster.reader()
    try:
        return reader.offsets(bus.name.source_topic, 0)[1] > 0
    finally:
        reader.close()


def test_another_client_of_that_name_is_told(broker: Topic, bus: Bus) -> None:
    broker.open()
    broker.send("a")
    with fetching(broker.source(), bus, broker.identity) as fetcher:
        fetcher.wait_for(1)
        with broker.client(CLIENT):
            assert str(fetcher.failure()).endswith(": The connection was lost")


# --- connections ----------------------------------------------------------------------------------------------------


def test_a_server_of_version_3_1_1(broker: Topic, bus: Bus, raw_server: Callable[..., RawServer]) -> None:
    def old(connection: socket.socket) -> None:
        """Refuses version 5, and passes on what is older."""
        first = connection.recv(4096)
        if first[8] == 5:
            connection.sendall(b"\x20\x02\x00\x01")
            return
        with socket.create_connection(("127.0.0.1", broker.server.port)) as server:
            server.sendall(first)
            _pass_on(connection, server)

    broker.open()
    broker.send("a", "b")
    url = raw_server(old).url.replace("http", "tcp").removesuffix("/hook")
    with fetching(broker.source(url=url), bus, broker.identity, after=killed) as first:
        assert isinstance(first.failure(), Killed)
    with fetching(broker.source(url=url), bus, broker.identity) as second:
        assert broker.texts(second.wait_for(2)) == ["a", "b"]
        until(lambda: broker.unacknowledged() == 0)
    assert [event.id for event in first.events] == [event.id for event in second.events[: len(first.events)]]


def _pass_on(one: socket.socket, other: socket.socket) -> None:
    ends = {one: other, other: one}
    while True:
        for ready in select([one, other], [], [])[0]:
            chunk = ready.recv(65536)
            if not chunk:
                return
            ends[ready].sendall(chunk)


WELCOME = b"\x20\x03\x00\x00\x00"


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ([b""], "The connection was lost"),
        ([b"HTTP/1.1 400 Bad Request\r\n\r\n"], "The connection was lost"),
        ([b"\x20\x03\x00\x87\x00"], "it does not let us in: Not authorized"),
        ([WELCOME, b"\x90\x04\x00\x01\x00\x87"], "it does not let us subscribe to `orders/+`: Not authorized"),
        ([WELCOME, b"\x30\x05\x00\x02\xff\xfe\x00"], "what it says is not MQTT"),
        ([WELCOME, b"\xe0\x01\x8e"], "it has ended the connection: Session taken over"),
    ],
)
def test_a_server_that_misbehaves_or_refuses(
    broker: Topic, bus: Bus, raw_server: Callable[..., RawServer], answers: list[bytes], message: str
) -> None:
    def behave(connection: socket.socket) -> None:
        for answer in answers:
            connection.recv(4096)
            connection.sendall(answer)

    url = raw_server(behave).url.replace("http", "tcp").removesuffix("/hook")
    told = broker.failure(bus, url=url)
    assert told.startswith("MQTT at 127.0.0.1:")
    assert message in told


def test_a_connection_that_breaks_within_a_message(broker: Topic, bus: Bus) -> None:
    broker.open()
    broker.publish(b"x" * 1_000_000)
    relay = Relay("127.0.0.1", broker.server.port)
    relay.break_after = 200_000
    assert broker.failure(bus, url=f"tcp://localhost:{relay.port}").startswith("MQTT at localhost:")
    relay.cut()
    assert (broker.unacknowledged(), events_on(bus)) == (1, [])
    with fetching(broker.source(), bus, broker.identity) as fetcher:
        [event] = fetcher.wait_for(1)
    assert len(broker.text_of(event)) == 1_000_000


def test_a_server_that_is_not_there(broker: Topic, bus: Bus) -> None:
    broker.stop()
    told = broker.failure(bus)
    assert told.startswith(f"MQTT at localhost:{broker.server.port}: ")
    assert "Connection refused" in told
    broker.start()


def test_tls(broker: Topic, bus: Bus, certificate: Certificate) -> None:
    broker.open()
    broker.send("a")
    url = f"ssl://localhost:{broker.server.tls_port}"
    assert "certificate verify failed" in broker.failure(bus, url=url)
    trusted = {"caCertFile": str(certificate.cert)}
    with fetching(broker.source(url=url, tls=trusted), bus, broker.identity) as fetcher:
        assert broker.texts(fetcher.wait_for(1)) == ["a"]
