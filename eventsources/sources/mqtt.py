"""Events from topics of MQTT: at least once, because a message is acknowledged after its event is delivered.

The server keeps a session for `clientId`: what is published with QoS 1 or 2 while nobody is connected waits there, and
so does what was not acknowledged. (What is published with QoS 0 is sent once, and lost with the connection.) All
replicas are this client, one after the other; who connects last has the session, and the server sends the other away.

MQTT gives messages no names that would last: the number of a message is free again when it is acknowledged. So events
are counted, under a random name for the session. What is sent again says so, and has the number that it had: this, and
that it is equal to what had the number, is how a repeat is recognised, and its event gets the id that it had. For this
the numbers that the server may not know to be acknowledged are remembered with the events. What a publisher sends
twice is two messages, and two events.

As with argo-events, the body is in base64; with `jsonBody` it is the JSON itself.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit
from uuid import uuid4

import msgspec
from pydantic import AfterValidator

from eventsources.base import Context, SourceSpec, Stop, Told, Unusable
from eventsources.sources.messages import NOT_JSON, as_body
from sensors.actions.http import BasicAuth
from sensors.actions.tls import Tls
from sensors.spec.fields import Bool, Text
from sensors.spec.policy import Backoff

if TYPE_CHECKING:
    from eventsources.sources.mqtt_client import MqttMessage, MqttServer, MqttSession

_WAIT_SECONDS = 0.5
"""How long to wait for messages before looking whether to stop."""
_PLAIN, _SECURE = ("tcp", "mqtt"), ("ssl", "tls", "mqtts", "tcps")
_MOST_REMEMBERED = 100
_MOST_BYTES = 65_535


# --- manifest -------------------------------------------------------------------------------------------------------


def _url(text: str) -> str:
    if "@" in text:
        raise ValueError("must not contain a user name or password: they would show up in logs; use `auth`")
    try:
        parts = urlsplit(text)
        bare = not (parts.path.strip("/") or parts.query or parts.fragment)
        complete = parts.scheme in (*_PLAIN, *_SECURE) and parts.hostname and parts.port != 0 and bare
    except ValueError:
        complete = False
    if not complete:
        raise ValueError("must be the server as `tcp://host:port`, or `ssl://host:port` with TLS")
    return text


def _topic(text: str) -> str:
    levels = text.split("/")
    wild = any("+" in level and level != "+" for level in levels) or "#" in text[:-1] or "#" in levels[-1][1:]
    if not text or wild or "\0" in text or len(text.encode()) > _MOST_BYTES:
        raise ValueError("must be levels or `+` with `/` between them, and may end with `#`")
    return text


def _client_id(text: str) -> str:
    if not text or "\0" in text or len(text.encode()) > _MOST_BYTES:
        raise ValueError("must be a name that no other client of this server has")
    return text


class MqttSpec(SourceSpec):
    """Messages of a topic."""

    url: Annotated[Text, AfterValidator(_url)]
    """The server, `tcp://host:port`; `ssl://` with TLS."""
    topic: Annotated[Text, AfterValidator(_topic)]
    """What to subscribe to; `+` is any level, and `#` at the end any levels."""
    clientId: Annotated[Text, AfterValidator(_client_id)]
    """By which the server knows the session. No other client may have it."""
    connectionBackoff: Backoff | None = None
    """argo-events' pauses between attempts to connect; here they are the same for all sources, and it is not used."""
    jsonBody: Bool = False
    """Messages are JSON."""
    tls: Tls | None = None
    auth: BasicAuth | None = None

    def server(self) -> MqttServer:
        """Raises `ConfigError` when a secret is not there."""
        from eventsources.sources.mqtt_client import MqttServer  # noqa: PLC0415 - an optional package

        parts = urlsplit(self.url)
        tls = self.tls or (Tls() if parts.scheme in _SECURE else None)
        return MqttServer(
            host=parts.hostname or "",
            port=parts.port or (1883 if tls is None else 8883),
            client_id=self.clientId,
            username=None if self.auth is None else self.auth.username.read(),
            password=None if self.auth is None else self.auth.password.read(),
            tls=None if tls is None else tls.context(tls.secrets()),
        )


# --- source ---------------------------------------------------------------------------------------------------------


class _Told(msgspec.Struct, array_like=True):
    """What had a number when it was last delivered."""

    count: int
    digest: str


class _Memory(msgspec.Struct):
    """What has to be known of a session to recognise what it repeats."""

    topic: str
    name: str = msgspec.field(default_factory=lambda: uuid4().hex)
    count: int = 0
    told: dict[int, _Told] = {}
    """By the numbers that the server may not know to be acknowledged, the latest last."""

    def id_of(self, message: MqttMessage) -> str:
        digest = blake2b(message.topic.encode() + b"\0" + message.payload, digest_size=8).hexdigest()
        before = self.told.pop(message.number, None)
        if before is None or not message.again or before.digest != digest:
            self.count += 1
            before = _Told(self.count, digest)
        if message.number:
            self.told[message.number] = before
        while len(self.told) > _MOST_REMEMBERED:
            del self.told[next(iter(self.told))]
        return f"{self.name}-{before.count}"


class MqttSource:
    """Reads, delivers, acknowledges."""

    def __init__(self, spec: MqttSpec) -> None:
        self._spec = spec

    def run(self, context: Context, stop: Stop) -> None:
        from eventsources.sources.mqtt_client import open_session  # noqa: PLC0415 - an optional package

        with open_session(self._spec.server()) as session:
            memory = self._subscribed(context, session)
            while not stop.is_set():
                messages = session.read(_WAIT_SECONDS)
                told = [self._told(context, memory, message) for message in messages]
                if told:
                    context.deliver(told, msgspec.json.encode(memory))
                session.acknowledge(messages)

    def _subscribed(self, context: Context, session: MqttSession) -> _Memory:
        memory = _Memory(self._spec.topic)
        if session.present and context.remembered is not None:
            memory = msgspec.json.decode(context.remembered, type=_Memory)
        if memory.topic != self._spec.topic:  # the session would go on with both
            session.unsubscribe(memory.topic)
            memory.topic = self._spec.topic
        session.subscribe(memory.topic)
        remember = msgspec.json.encode(memory)
        if remember != context.remembered:
            context.deliver([], remember)
        return memory

    def _told(self, context: Context, memory: _Memory, message: MqttMessage) -> Told:
        id = memory.id_of(message)
        body = as_body(message.payload, json=self._spec.jsonBody)
        if body is None:
            return Unusable(id, NOT_JSON, message.payload)
        data = {"topic": message.topic, "messageId": message.number, "body": body}
        return context.identity.event(id, self._spec.described(data))
