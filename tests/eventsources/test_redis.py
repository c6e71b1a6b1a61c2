"""Messages of Redis channels become events while somebody listens."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from redis import ConnectionError as RedisConnectionError

from eventbus import Bus
from eventsources.base import Identity, SourceError
from eventsources.sources import redis
from eventsources.sources.redis import RedisSource, RedisSpec
from eventsources.sources.redis_client import read_messages
from sensors import extras
from sensors.spec.problems import ManifestError
from tests.eventsources.fetching import fetching, running, until
from tests.eventsources.redis_server import RedisServer
from tests.eventsources.serving import events_on, letters_on, manifest

IDENTITY = Identity("news", "item", "redis")


def source(server: RedisServer, **spec: Any) -> RedisSource:
    return RedisSource(RedisSpec.model_validate({"hostAddress": server.address, "channels": ["a", "b"], **spec}))


def publish(server: RedisServer, channel: str, text: bytes | str) -> None:
    """As soon as somebody listens."""
    until(lambda: server.client.publish(channel, text))


def test_what_an_event_looks_like(redis_server: RedisServer, bus: Bus) -> None:
    with fetching(source(redis_server, metadata={"shop": "eu"}, namespace="x"), bus, IDENTITY) as fetcher:
        publish(redis_server, "a", b'{"n": 1}\xff')
        publish(redis_server, "b", "text")
        first, second = fetcher.wait_for(2)
    assert first.json() == {"channel": "a", "pattern": "", "body": '{"n": 1}\ufffd', "metadata": {"shop": "eu"}}
    assert second.json()["body"] == "text"
    assert first.id != second.id
    until(lambda: redis_server.client.pubsub_numsub("a") == [("a", 0)])


def test_a_json_body_and_what_is_none(redis_server: RedisServer, bus: Bus) -> None:
    with fetching(source(redis_server, jsonBody=True), bus, IDENTITY) as fetcher:
        for text in ("{", b"\xff", '{"n": 1.10}'):
            publish(redis_server, "a", text)
        [event] = fetcher.wait_for(1)
    assert b'"body":{"n": 1.10}' in (event.data or b"")
    assert [(letter.reason, value) for letter, value in letters_on(bus)] == [("no-event", b"{"), ("no-event", b"\xff")]


def test_many_come_in_portions(redis_server: RedisServer, bus: Bus) -> None:
    sizes: list[int] = []

    def more(events: Any) -> None:
        """While the first is delivered, many come."""
        sizes.append(len(events))
        if len(sizes) == 1:
            for number in range(2 * redis.MOST_AT_ONCE):
                redis_server.client.publish("a", number)

    with fetching(source(redis_server), bus, IDENTITY, before=more) as fetcher:
        publish(redis_server, "a", "first")
        events = fetcher.wait_for(1 + 2 * redis.MOST_AT_ONCE)
    assert [event.json()["body"] for event in events[1:]] == [str(n) for n in range(2 * redis.MOST_AT_ONCE)]
    assert max(sizes) <= redis.MOST_AT_ONCE


def test_it_goes_on_when_the_server_has_been_away(redis_server: RedisServer, bus: Bus) -> None:
    spec = {"hostAddress": redis_server.address, "channels": ["a"]}
    with running(manifest("redis", "news", item=spec), bus):
        publish(redis_server, "a", "before")
        until(lambda: events_on(bus))
        redis_server.stop()
        redis_server.start()
        publish(redis_server, "a", "after")
        until(lambda: {"before", "after"} == {event.json()["body"] for event in events_on(bus)})


def test_a_wrong_password_is_told_in_one_line_without_it(redis_server: RedisServer, bus: Bus, secret: Any) -> None:
    redis_server.client.config_set("requirepass", "right-5b1c")
    with fetching(source(redis_server, password=secret("wrong-7c2e")), bus, IDENTITY) as fetcher:
        error = fetcher.failure()
    assert isinstance(error, SourceError)
    assert str(error).startswith(f"Redis at {redis_server.address}: ")
    assert "wrong-7c2e" not in str(error)
    with fetching(source(redis_server, username="default", password=secret("right-5b1c")), bus, IDENTITY) as fetcher:
        publish(redis_server, "a", "in")
        fetcher.wait_for(1)


@pytest.mark.parametrize("kind", ["redis", "redisStream"])
def test_a_client_that_is_not_installed_is_told(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda _: None)
    with pytest.raises(ManifestError) as error:
        manifest(kind, item={"hostAddress": "h:1", "channels" if kind == "redis" else "streams": ["a"]})
    assert "this needs packages that are not installed: install `kafka-eventbus[redis]`" in str(error.value)


def test_what_was_read_before_a_connection_broke_is_kept() -> None:
    class Breaking:
        """One message, and then the end."""

        said: ClassVar[list[Any]] = [{"type": "message", "data": b"a"}]

        def get_message(self, timeout: float) -> Any:
            if not self.said:
                raise RedisConnectionError("gone")
            return self.said.pop()

    subscription: Any = Breaking()
    assert [each["data"] for each in read_messages(subscription, 10, 0.1)] == [b"a"]
    with pytest.raises(RedisConnectionError):
        read_messages(subscription, 10, 0.1)
