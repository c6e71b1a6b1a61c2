"""Events from queues of AMQP 0-9-1, which RabbitMQ speaks: at least once, because a message is acknowledged after its
event is delivered.

AMQP numbers messages only within a connection. What is sent again is therefore recognised by the property `message-id`
alone, which publishers may set: it is the event's id then, with the exchange. Without one the id is random, and a
message that was delivered and not acknowledged before the connection broke becomes a second event with another id.
A digest of the message would not do: two equal messages are two, and one would be taken for a repeat of the other.

As with argo-events, exchange and queue are declared, and the queue is gone with the connection unless `queueDeclare`
says otherwise: what is published while nobody is connected is lost then. A durable queue with a name keeps it.

As with argo-events, the body is in base64; with `jsonBody` it is the JSON itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple
from urllib.parse import unquote, urlsplit
from uuid import uuid4

import yaml
from pydantic import AfterValidator, Field

from eventbus.errors import ConfigError
from eventsources.base import Context, Identity, SourceSpec, Stop, Told, Unusable
from eventsources.sources.messages import NOT_JSON, as_body, as_text
from sensors.actions.http import BasicAuth
from sensors.actions.tls import Tls
from sensors.secrets import Secret, SecretKeySelector
from sensors.spec.base import Flaw, SpecModel, get
from sensors.spec.fields import Bool, Text
from sensors.spec.policy import Backoff

if TYPE_CHECKING:
    from eventsources.sources.amqp_client import AmqpConsumer, AmqpMessage, AmqpServer

_WAIT_SECONDS = 0.5
"""How long to wait for messages before looking whether to stop."""
_GUEST = Secret("guest")
"""Who one is with AMQP, by name and password, who does not say it."""


# --- manifest -------------------------------------------------------------------------------------------------------


class _Address(NamedTuple):
    """What a URL says."""

    tls: bool
    host: str
    port: int
    virtual_host: str
    username: Secret
    password: Secret


def _address(text: str) -> _Address:
    try:
        parts = urlsplit(text)
        complete = parts.scheme in ("amqp", "amqps") and parts.hostname and not parts.query and not parts.fragment
        tls = parts.scheme == "amqps"
        port = parts.port or (5671 if tls else 5672)
    except ValueError:
        complete = None
    if not complete or parts.path.count("/") > 1:
        raise ValueError("must be the server as `amqp://host:port/vhost`, or `amqps://` with TLS")
    named = parts.username is not None
    username, password = (Secret(unquote(part or "")) if named else _GUEST for part in (parts.username, parts.password))
    return _Address(tls, parts.hostname or "", port, unquote(parts.path[1:]) or "/", username, password)


def _url(text: str) -> str:
    _address(text)
    if "@" in text:
        raise ValueError("must not contain a user name or password: they would show up in logs; use `auth`")
    return text


def _arguments(text: str) -> str:
    try:
        table = yaml.safe_load(text)
    except yaml.YAMLError:
        table = ()
    if table is not None and not _is_table(table):
        raise ValueError("must be a YAML mapping as text, with texts, whole numbers, `true` and `false` in it")
    return text


def _is_table(value: Any) -> bool:
    """Whether AMQP, or pika, can say it."""
    return isinstance(value, dict) and all(
        isinstance(name, str) and (isinstance(each, str | int) or _is_table(each)) for name, each in value.items()
    )


def _name(text: str) -> str:
    if len(text.encode()) > 255:
        raise ValueError("must have at most 255 bytes")
    return text


_Name = Annotated[Text, AfterValidator(_name)]


class AmqpExchangeDeclare(SpecModel):
    """How the exchange is declared. One that is there must be the same."""

    durable: Bool = False
    """Whether it is still there after a restart of the server."""
    autoDelete: Bool = False
    """Whether it goes with its last queue."""
    internal: Bool = False
    """Whether only other exchanges may publish to it."""
    noWait: Bool = False
    """The server's answer is always waited for, so that a refusal is told; this is not used."""


class AmqpQueueDeclare(SpecModel):
    """How the queue is declared. One that is there must be the same."""

    name: _Name = ""
    """Without it the server makes one up, anew with every connection."""
    durable: Bool = False
    """Whether it is still there after a restart of the server."""
    autoDelete: Bool = False
    """Whether it goes with its last consumer."""
    exclusive: Bool = False
    """Whether it belongs to one connection, and goes with it."""
    noWait: Bool = False
    """The server's answer is always waited for, so that a refusal is told; this is not used."""
    arguments: Annotated[Text, AfterValidator(_arguments)] = ""
    """What else the server is told, a YAML mapping as text: `x-queue-type: quorum`."""

    @property
    def keeps(self) -> bool:
        """Whether it has what is published while nobody is connected."""
        return bool(self.name) and not self.autoDelete and not self.exclusive


class AmqpQueueBind(SpecModel):
    """How the queue is bound to the exchange."""

    noWait: Bool = False
    """The server's answer is always waited for, so that a refusal is told; this is not used."""


class AmqpConsume(SpecModel):
    """How the queue is read."""

    consumerTag: _Name = ""
    """What its operators see of us; without it the server makes one up."""
    autoAck: Bool = False
    """Messages are always acknowledged after their events are delivered, and never before; this is not used."""
    exclusive: Bool = False
    """Whether nobody else may read the queue."""
    noLocal: Bool = False
    """Nothing is published over this connection, and RabbitMQ knows nothing of it; this is not used."""
    noWait: Bool = False
    """The server's answer is always waited for, so that a refusal is told; this is not used."""


class AmqpSpec(SourceSpec):
    """Messages of a queue."""

    url: Annotated[Text, AfterValidator(_url)] | None = None
    """The server, `amqp://host:port/vhost`; `amqps://` with TLS."""
    urlSecret: SecretKeySelector | None = None
    """The secret with the same; there it may have a user name and a password."""
    exchangeName: Annotated[_Name, Field(min_length=1)]
    exchangeType: Annotated[_Name, Field(min_length=1)]
    """`direct`, `fanout`, `topic`, `headers`, or one that a plugin of the server brings."""
    routingKey: _Name = ""
    """By which the queue is bound to the exchange."""
    connectionBackoff: Backoff | None = None
    """argo-events' pauses between attempts to connect; here they are the same for all sources, and it is not used."""
    jsonBody: Bool = False
    """Messages are JSON."""
    tls: Tls | None = None
    exchangeDeclare: AmqpExchangeDeclare = AmqpExchangeDeclare(durable=True)
    queueDeclare: AmqpQueueDeclare = AmqpQueueDeclare(exclusive=True)
    queueBind: AmqpQueueBind = AmqpQueueBind()
    consume: AmqpConsume = AmqpConsume()
    auth: BasicAuth | None = None
    """Who we are; without it, who the URL says, or `guest`."""

    @classmethod
    def flaws(cls, data: Any) -> Iterator[Flaw]:
        if isinstance(data, Mapping) and (get(data, "url") is None) == (get(data, "urlSecret") is None):
            yield Flaw((), "must have exactly one of `url` and `urlSecret`")

    def advice(self) -> Iterator[Flaw]:
        if not self.queueDeclare.keeps:
            lost = "what is published while nobody is connected is lost; `queueDeclare` with a `name`, `durable: true`"
            yield Flaw(("queueDeclare",), f"{lost} and without `exclusive` and `autoDelete` keeps it")
        if self.consume.autoAck:
            told = "`autoAck` is not used: messages are acknowledged when their events are delivered"
            yield Flaw(("consume", "autoAck"), told)

    def server(self, identity: Identity) -> AmqpServer:
        """Raises `ConfigError` when a secret is not there, or is not what it has to be."""
        from eventsources.sources.amqp_client import AmqpServer  # noqa: PLC0415 - an optional package

        try:
            address = _address(self.urlSecret.read().reveal() if self.urlSecret is not None else self.url or "")
        except ValueError as error:
            raise ConfigError(f"the secret of `urlSecret` {error}") from None
        username, password = address.username, address.password
        if self.auth is not None:
            username, password = self.auth.username.read(), self.auth.password.read()
        tls = self.tls or (Tls() if address.tls else None)
        context = None if tls is None else tls.context(tls.secrets())
        place = (address.host, address.port, address.virtual_host)
        return AmqpServer(*place, username, password, context, str(identity))


# --- source ---------------------------------------------------------------------------------------------------------


class AmqpSource:
    """Reads, delivers, acknowledges."""

    def __init__(self, spec: AmqpSpec) -> None:
        self._spec = spec

    def run(self, context: Context, stop: Stop) -> None:
        with self._open(context.identity) as consumer:
            while not stop.is_set():
                messages = consumer.read(_WAIT_SECONDS)
                if messages:
                    context.deliver([self._told(context, message) for message in messages])
                    consumer.acknowledge(messages[-1].tag)

    def _open(self, identity: Identity) -> AbstractContextManager[AmqpConsumer]:
        from eventsources.sources.amqp_client import AmqpQueue, open_queue  # noqa: PLC0415 - an optional package

        spec = self._spec
        exchange, queue = spec.exchangeDeclare, spec.queueDeclare
        wanted = AmqpQueue(
            exchange=spec.exchangeName,
            exchange_type=spec.exchangeType,
            exchange_options={
                "durable": exchange.durable,
                "auto_delete": exchange.autoDelete,
                "internal": exchange.internal,
            },
            queue=queue.name,
            queue_options={
                "durable": queue.durable,
                "auto_delete": queue.autoDelete,
                "exclusive": queue.exclusive,
            },
            arguments=yaml.safe_load(queue.arguments) or {},
            routing_key=spec.routingKey,
            consumer_tag=spec.consume.consumerTag,
            exclusive=spec.consume.exclusive,
        )
        return open_queue(spec.server(identity), wanted)

    def _told(self, context: Context, message: AmqpMessage) -> Told:
        properties, exchange = message.properties, _text(message.exchange)
        own = _text(properties.message_id)
        id = f"{exchange} {own}" if own else uuid4().hex
        body = as_body(message.body, json=self._spec.jsonBody)
        if body is None:
            return Unusable(id, NOT_JSON, message.body)
        data = {
            "contentType": _text(properties.content_type),
            "contentEncoding": _text(properties.content_encoding),
            "deliveryMode": properties.delivery_mode or 0,
            "priority": properties.priority or 0,
            "correlationId": _text(properties.correlation_id),
            "replyTo": _text(properties.reply_to),
            "expiration": _text(properties.expiration),
            "messageId": own,
            "timestamp": _time(properties.timestamp),
            "type": _text(properties.type),
            "appId": _text(properties.app_id),
            "exchange": exchange,
            "routingKey": _text(message.routing_key),
            "body": body,
        }
        return context.identity.event(id, self._spec.described(data))


def _text(value: str | bytes | None) -> str:
    """As Go writes it into JSON: what is not UTF-8 is replaced."""
    return as_text(value) if isinstance(value, bytes) else value or ""


def _time(seconds: int | None) -> str:
    """In RFC 3339; empty where there is none, or none that a calendar has."""
    try:
        return "" if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return ""
