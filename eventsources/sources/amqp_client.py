"""A queue of an AMQP 0-9-1 server such as RabbitMQ: declared, bound, and read over one connection.

pika has no types: nobody but this file knows it.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import msgspec
from pika import BlockingConnection, ConnectionParameters, PlainCredentials, SSLOptions
from pika import data as wire
from pika import exceptions as errors
from pika.adapters.utils import connection_workflow as connecting

from eventsources.base import SourceError
from sensors.actions.replies import excerpt
from sensors.secrets import Secret

MOST_UNACKNOWLEDGED = 100
"""Messages that the server sends ahead."""
_TIMEOUT_SECONDS = 10.0
_UNREADABLE = {b"T": 8, b"d": 8, b"f": 4}
"""Bytes of a time or a number that Python may have no value for."""

logging.getLogger("pika").setLevel(logging.CRITICAL)  # every failure is told at length there, and by us in one line


class AmqpServer(msgspec.Struct, frozen=True):
    """Where it is, and who we are."""

    host: str
    port: int
    virtual_host: str
    username: Secret
    password: Secret
    tls: ssl.SSLContext | None
    client: str
    """What its operators see of us."""


class AmqpQueue(msgspec.Struct, frozen=True):
    """What to declare, and how to read."""

    exchange: str
    exchange_type: str
    exchange_options: Mapping[str, bool]
    queue: str
    """Empty for a name that the server makes up."""
    queue_options: Mapping[str, bool]
    arguments: Mapping[str, Any]
    routing_key: str
    consumer_tag: str
    exclusive: bool


class AmqpMessage(msgspec.Struct, frozen=True):
    """As it was published, and by which number to acknowledge it. Texts that are not UTF-8 are bytes."""

    tag: int
    exchange: str | bytes
    routing_key: str | bytes
    properties: Any
    body: bytes


@contextmanager
def open_queue(server: AmqpServer, queue: AmqpQueue) -> Iterator[AmqpConsumer]:
    """Whatever goes wrong with it is a `SourceError`."""
    try:
        connection = BlockingConnection(_parameters(server))
        try:
            yield AmqpConsumer(connection, queue)
        finally:
            with suppress(errors.AMQPError, OSError):
                connection.close()
    except (errors.AMQPError, connecting.AMQPConnectorException, OSError) as error:
        told = excerpt(_reason(error), [server.username, server.password]).rstrip(".")
        raise SourceError(f"AMQP at {server.host}:{server.port}: {told}") from None


class AmqpConsumer:
    """Reads a queue."""

    def __init__(self, connection: Any, queue: AmqpQueue) -> None:
        self._connection = connection
        self._channel = connection.channel()
        self._name = self._declare(queue)
        self._arrived: list[AmqpMessage] = []
        self._cancelled = False
        self._channel.basic_qos(prefetch_count=MOST_UNACKNOWLEDGED)
        self._channel.add_on_cancel_callback(self._on_cancel)
        tag = queue.consumer_tag or None
        self._channel.basic_consume(self._name, self._on_message, exclusive=queue.exclusive, consumer_tag=tag)

    def read(self, seconds: float) -> Sequence[AmqpMessage]:
        """What has arrived, after a while at most."""
        if not self._arrived:
            self._connection.process_data_events(seconds)
        arrived, self._arrived = self._arrived, []
        if self._cancelled and not arrived:
            raise SourceError(f"the queue `{self._name}` was deleted, or its server gave it up")
        return arrived

    def acknowledge(self, tag: int) -> None:
        """This one, and all before it."""
        self._channel.basic_ack(tag, multiple=True)

    def _declare(self, queue: AmqpQueue) -> str:
        channel = self._channel
        channel.exchange_declare(queue.exchange, queue.exchange_type, **queue.exchange_options)
        made = channel.queue_declare(queue.queue, **queue.queue_options, arguments=dict(queue.arguments))
        name = str(made.method.queue)
        channel.queue_bind(name, queue.exchange, queue.routing_key)
        return name

    def _on_message(self, _: Any, method: Any, properties: Any, body: bytes) -> None:
        message = AmqpMessage(method.delivery_tag, method.exchange, method.routing_key, properties, body)
        self._arrived.append(message)

    def _on_cancel(self, _: Any) -> None:
        self._cancelled = True


def _parameters(server: AmqpServer) -> Any:
    return ConnectionParameters(
        host=server.host,
        port=server.port,
        virtual_host=server.virtual_host,
        credentials=PlainCredentials(server.username.reveal(), server.password.reveal()),
        ssl_options=None if server.tls is None else SSLOptions(server.tls, server.host),
        socket_timeout=_TIMEOUT_SECONDS,
        stack_timeout=_TIMEOUT_SECONDS,
        client_properties={"connection_name": server.client},
    )


def _reason(error: Any) -> str:
    cause = error.args[0] if error.args else None
    match error:
        case errors.ConnectionClosed() | errors.ChannelClosed():
            return str(error.reply_text)
        case errors.IncompatibleProtocolError():
            return "it does not speak AMQP 0-9-1 on this port, or not this way: is it the one for TLS?"
        case connecting.AMQPConnectorStackTimeout():
            return "no answer"
        case _ if isinstance(cause, connecting.AMQPConnectorSocketConnectError):
            return str(cause.exception)
        case _:
            return str(error) or type(error).__name__


_decode_value = wire.decode_value


def _decode_any_value(encoded: bytes, offset: int) -> tuple[Any, int]:
    """Headers with a NaN or a time without end must not close the connection: the message would come for ever."""
    try:
        found: tuple[Any, int] = _decode_value(encoded, offset)
    except (ValueError, OverflowError, OSError):
        size = _UNREADABLE.get(encoded[offset : offset + 1])
        if size is None:
            raise
        return None, offset + 1 + size
    return found


wire.decode_value = _decode_any_value
