"""Events from streams of Redis: at least once, because a message is acknowledged after its event is delivered.

A message that was read and not acknowledged stays with the consumer group as pending. All replicas are the same
consumer, one after the other, so that whoever begins takes up first what a predecessor has left pending. The id of an
event is made of the stream and the message's id: what is told twice is recognised.

Groups begin with what comes after them; streams that are not there yet are made. Should a group get lost, with a
server that keeps nothing on disk, it is made anew behind the last message that was delivered.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import msgspec
from pydantic import Field, StrictInt

from eventbus.events import Event
from eventsources.base import Context, Stop
from eventsources.sources.messages import as_text
from eventsources.sources.redis_server import WAIT_SECONDS, Names, RedisServerSpec
from sensors.spec.fields import Text

if TYPE_CHECKING:
    from redis import Redis

CONSUMER = "argo-events-worker"
"""argo-events' own, so that what it has left pending is taken up, too."""
_BATCH = 10

Message: TypeAlias = tuple[bytes, dict[bytes, bytes]]
"""The id, and the fields; no fields where it was deleted while it was pending."""
Messages: TypeAlias = Sequence[tuple[bytes, Sequence[Message]]]
"""By stream."""

log = logging.getLogger("eventbus.source")


class RedisStreamSpec(RedisServerSpec):
    """Messages of streams."""

    streams: Names
    """Which ones to read."""
    consumerGroup: Annotated[Text, Field(min_length=1)] = "argo-events-cg"
    """On all streams. Who shares it shares the messages."""
    maxMsgCountPerRead: Annotated[StrictInt, Field(ge=0, le=10_000)] = 0
    """Of each stream; 0 is 10."""


class RedisStreamSource:
    """Reads, delivers, acknowledges."""

    def __init__(self, spec: RedisStreamSpec) -> None:
        self._spec = spec

    def run(self, context: Context, stop: Stop) -> None:
        with self._spec.connected() as client:
            _Session(self._spec, context, client).run(stop)


class _Session:
    """While there is one connection."""

    def __init__(self, spec: RedisStreamSpec, context: Context, client: Redis) -> None:
        self._spec = spec
        self._context = context
        self._client = client
        self._delivered: dict[str, str] = msgspec.json.decode(context.remembered or b"{}", type=dict[str, str])
        """The last message of each stream."""

    def run(self, stop: Stop) -> None:
        for stream in self._spec.streams:
            self._ensure_group(stream)
            while not stop.is_set() and self._settle(self._read([stream], "0", None)):
                pass
        while not stop.is_set():
            self._settle(self._read(self._spec.streams, ">", round(WAIT_SECONDS * 1000)))

    def _ensure_group(self, stream: str) -> None:
        from redis import ResponseError  # noqa: PLC0415 - an optional package

        behind = self._delivered.get(stream, "$")
        try:
            self._client.xgroup_create(stream, self._spec.consumerGroup, behind, mkstream=True)
        except ResponseError as error:
            if not str(error).startswith("BUSYGROUP"):
                raise

    def _read(self, streams: Iterable[str], behind: str, wait_ms: int | None) -> Messages:
        count = self._spec.maxMsgCountPerRead or _BATCH
        wanted: dict[Any, Any] = dict.fromkeys(streams, behind)
        found: Any = self._client.xreadgroup(self._spec.consumerGroup, CONSUMER, wanted, count, wait_ms)
        return [each for each in found or [] if each[1]]

    def _settle(self, found: Messages) -> bool:
        """Whether there was anything."""
        events = [self._event(stream, id, values) for stream, messages in found for id, values in messages if values]
        last = {as_text(stream): as_text(messages[-1][0]) for stream, messages in found}
        if events:
            self._context.deliver(events, msgspec.json.encode(self._delivered | last))
            self._delivered |= last
        for stream, messages in found:
            self._client.xack(stream, self._spec.consumerGroup, *(id for id, _ in messages))
            gone = sum(not values for _, values in messages)
            if gone:
                lost = "%s: %d messages of the stream `%s` were deleted before they could be delivered"
                log.warning(lost, self._context.identity, gone, as_text(stream))
        return bool(found)

    def _event(self, stream: bytes, id: bytes, values: dict[bytes, bytes]) -> Event:
        data = {
            "stream": as_text(stream),
            "message_id": as_text(id),
            "values": {as_text(name): as_text(value) for name, value in values.items()},
        }
        return self._context.identity.event(f"{as_text(stream)} {as_text(id)}", self._spec.described(data))
