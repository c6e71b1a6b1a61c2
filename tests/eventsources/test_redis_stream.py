"""Messages of Redis streams become events, at least once."""

from __future__ import annotations

from typing import Any

import pytest

from eventbus import Bus, Event
from eventsources.base import SourceError
from eventsources.sources.redis_stream import CONSUMER
from sensors.spec.problems import ManifestError
from tests.actions.conftest import Certificate
from tests.eventsources.acknowledging_contract import AcknowledgingContract, Broker
from tests.eventsources.fetching import fetching, until
from tests.eventsources.redis_server import RedisServer
from tests.eventsources.serving import manifest

GROUP = "argo-events-cg"


class Streams(Broker):
    """The stream `orders`."""

    kind = "redisStream"

    def __init__(self, server: RedisServer) -> None:
        self.server = server

    def spec(self, **changes: Any) -> dict[str, Any]:
        return {"hostAddress": self.server.address, "streams": ["orders"], **changes}

    def open(self) -> None:
        self.server.client.xgroup_create("orders", GROUP, "$", mkstream=True)

    def send(self, *texts: str) -> None:
        for text in texts:
            self.server.client.xadd("orders", {"text": text})

    def unacknowledged(self) -> int:
        [group] = self.server.client.xinfo_groups("orders")
        behind = f"({group['last-delivered-id']}"
        return int(group["pending"]) + len(self.server.client.xrange("orders", behind))

    def text_of(self, event: Event) -> str:
        return str(event.json()["values"]["text"])

    def start(self) -> None:
        self.server.start()

    def stop(self) -> None:
        self.server.stop()

    def protect(self, password: str) -> None:
        self.server.client.config_set("requirepass", password)


@pytest.fixture
def broker(redis_server: RedisServer) -> Streams:
    return Streams(redis_server)


class TestAcknowledging(AcknowledgingContract):
    """See there."""


def test_what_an_event_looks_like(broker: Streams, bus: Bus) -> None:
    broker.open()
    id = broker.server.client.xadd("orders", {"text": "hello", "amount": b"\xff1"})
    with fetching(broker.source(metadata={"shop": "eu"}), bus, broker.identity) as fetcher:
        [event] = fetcher.wait_for(1)
    assert event.json() == {
        "stream": "orders",
        "message_id": id,
        "values": {"text": "hello", "amount": "\ufffd1"},
        "metadata": {"shop": "eu"},
    }
    assert (event.id, event.source, event.subject, event.type) == (f"orders {id}", "orders", "order", "redisStream")


def test_streams_that_are_not_there_yet_are_made_and_what_was_before_is_not_told(broker: Streams, bus: Bus) -> None:
    client = broker.server.client
    client.xadd("old", {"text": "before"})
    with fetching(broker.source(streams=["old", "new"], consumerGroup="g", db=0), bus, broker.identity) as fetcher:
        until(lambda: client.exists("new") and client.xinfo_groups("new"))
        client.xadd("old", {"text": "a"})
        client.xadd("new", {"text": "b"})
        assert sorted(broker.texts(fetcher.wait_for(2))) == ["a", "b"]


def test_a_group_that_got_lost_is_made_anew_behind_what_was_delivered(broker: Streams, bus: Bus) -> None:
    broker.open()
    broker.send("a")
    with fetching(broker.source(), bus, broker.identity) as fetcher:
        fetcher.wait_for(1)
        broker.server.client.xgroup_destroy("orders", GROUP)
        assert "NOGROUP" in str(fetcher.failure())
    broker.send("b")
    with fetching(broker.source(), bus, broker.identity) as fetcher:
        assert broker.texts(fetcher.wait_for(1)) == ["b"]


def test_a_message_that_was_deleted_while_it_was_pending_holds_nobody_up(
    broker: Streams, bus: Bus, caplog: pytest.LogCaptureFixture
) -> None:
    broker.open()
    broker.send("a", "b")
    [[_, messages]] = broker.server.client.xreadgroup(GROUP, CONSUMER, {"orders": ">"})
    broker.server.client.xdel("orders", messages[0][0])
    with fetching(broker.source(), bus, broker.identity) as fetcher:
        assert broker.texts(fetcher.wait_for(1)) == ["b"]
        until(lambda: broker.unacknowledged() == 0)
    assert "orders/order: 1 messages of the stream `orders` were deleted before" in caplog.text


def test_it_reads_no_more_than_it_may(broker: Streams, bus: Bus) -> None:
    sizes: list[int] = []
    broker.open()
    broker.send(*"abcde")
    source = broker.source(maxMsgCountPerRead=2)
    with fetching(source, bus, broker.identity, after=lambda events: sizes.append(len(events))) as fetcher:
        fetcher.wait_for(5)
    assert sizes == [2, 2, 1]


def test_a_server_that_is_not_there(broker: Streams, bus: Bus) -> None:
    broker.stop()
    with fetching(broker.source(), bus, broker.identity) as fetcher:
        error = fetcher.failure()
    assert isinstance(error, SourceError)
    assert str(error).startswith(f"Redis at {broker.server.address}: ")
    assert "Connection refused" in str(error)


def test_tls(tmp_path: Any, certificate: Certificate, bus: Bus) -> None:
    try:
        broker = Streams(RedisServer(tmp_path, certificate))
    except RuntimeError:
        pytest.skip("this redis-server knows no TLS")
    try:
        broker.open()
        broker.send("a")
        with fetching(broker.source(tls={"caCertFile": str(certificate.cert)}), bus, broker.identity) as fetcher:
            assert broker.texts(fetcher.wait_for(1)) == ["a"]
        with fetching(broker.source(tls={}), bus, broker.identity) as fetcher:
            assert "certificate" in str(fetcher.failure())
    finally:
        broker.server.close()


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"hostAddress": "redis", "streams": ["s"]}, "must be the server as `host:port`"),
        ({"hostAddress": "redis:1", "streams": []}, "must be one or more different names"),
        ({"hostAddress": "redis:1", "streams": ["s", "s"]}, "must be one or more different names"),
        ({"hostAddress": "redis:1", "streams": ["s"], "db": -1}, "db"),
        ({"hostAddress": "redis:1", "streams": ["s"], "stream": "s"}, "streams"),
    ],
)
def test_what_is_wrong_is_told(spec: dict[str, Any], message: str) -> None:
    with pytest.raises(ManifestError) as error:
        manifest("redisStream", order=spec)
    assert message in str(error.value)
