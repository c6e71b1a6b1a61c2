"""Events from channels of Redis: at most once, because nobody can acknowledge anything there.

What is published while nobody listens is gone, and so is what was on its way when a connection broke or a delivery
failed. Where that matters, use `redisStream`. While events are delivered, Redis keeps what comes meanwhile, up to its
own limit (`client-output-buffer-limit pubsub`); then it hangs up.

As with argo-events, the body is text; with `jsonBody` it is the JSON itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

from eventsources.base import Context, Stop, Told, Unusable
from eventsources.sources.messages import NOT_JSON, as_json, as_text
from eventsources.sources.redis_server import WAIT_SECONDS, Names, RedisServerSpec
from sensors.spec.fields import Bool, Text

if TYPE_CHECKING:
    from redis.client import PubSub

MOST_AT_ONCE = 100
"""Messages that are delivered in one go."""


class RedisSpec(RedisServerSpec):
    """Messages of channels."""

    channels: Names
    """Which ones to listen to."""
    jsonBody: Bool = False
    """Messages are JSON."""
    namespace: Text = ""
    """Where argo-events finds the secret; secrets are mounted here, and it is not used."""


class RedisSource:
    """Subscribes, and delivers."""

    def __init__(self, spec: RedisSpec) -> None:
        self._spec = spec

    def run(self, context: Context, stop: Stop) -> None:
        from eventsources.sources.redis_client import read_messages  # noqa: PLC0415 - an optional package

        with self._spec.connected() as client:
            subscription: PubSub = client.pubsub()  # type: ignore[no-untyped-call]
            subscription.subscribe(*self._spec.channels)
            while not stop.is_set():
                messages = read_messages(subscription, MOST_AT_ONCE, WAIT_SECONDS)
                if messages:
                    context.deliver([self._told(context, each["channel"], each["data"]) for each in messages])

    def _told(self, context: Context, channel: bytes, payload: bytes) -> Told:
        id = uuid4().hex
        body = as_json(payload) if self._spec.jsonBody else as_text(payload)
        if body is None:
            return Unusable(f"{as_text(channel)} {id}", NOT_JSON, payload)
        data = {"channel": as_text(channel), "pattern": "", "body": body}
        return context.identity.event(id, self._spec.described(data))
