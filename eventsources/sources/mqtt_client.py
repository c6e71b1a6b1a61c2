"""A session that an MQTT server keeps for us, also while nobody is connected. Version 5, or else 3.1.1.

Everything happens in the thread that reads: what is not read yet waits in the server, which sends only so much ahead.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import Any

import msgspec
from paho.mqtt.client import Client, ConnectFlags, DisconnectFlags, MQTTMessage, error_string
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from eventsources.base import SourceError
from sensors.actions.replies import excerpt
from sensors.secrets import Secret

MOST_UNACKNOWLEDGED = 50
"""Messages that a server of version 5 sends ahead; others have a limit of their own."""
_TIMEOUT_SECONDS = 10.0
_FOR_EVER = 0xFFFF_FFFF
_QOS = 1


class MqttServer(msgspec.Struct, frozen=True):
    """Where it is, and who we are."""

    host: str
    port: int
    client_id: str
    username: Secret | None
    password: Secret | None
    tls: ssl.SSLContext | None


class MqttMessage(msgspec.Struct, frozen=True):
    """As it arrived."""

    topic: str
    payload: bytes
    number: int
    """Which nobody else has in this session until it is acknowledged; 0 for one that needs no acknowledgement."""
    again: bool
    """Whether it was sent before."""


class _Failure(Exception):
    """There is no going on with this connection; the message says why."""


@contextmanager
def open_session(server: MqttServer) -> Iterator[MqttSession]:
    """Whatever goes wrong with it is a `SourceError`."""
    try:
        session = _connected(server)
        try:
            yield session
        finally:
            session.close()
    except (_Failure, OSError) as error:
        secrets = [each for each in (server.username, server.password) if each is not None]
        raise SourceError(f"MQTT at {server.host}:{server.port}: {excerpt(str(error), secrets)}") from None


def _connected(server: MqttServer) -> MqttSession:
    for version in (MQTTProtocolVersion.MQTTv5, MQTTProtocolVersion.MQTTv311):
        session = MqttSession(server, version)
        try:
            if session.connect(server):
                return session
        except BaseException:
            session.close()
            raise
    raise _Failure("it knows neither version 5 of MQTT nor 3.1.1")


class MqttSession:
    """Receives messages, and acknowledges them."""

    def __init__(self, server: MqttServer, version: MQTTProtocolVersion) -> None:
        self._modern = version is MQTTProtocolVersion.MQTTv5
        self._inbox = _Inbox()
        self._client = _Client(
            CallbackAPIVersion.VERSION2,
            server.client_id,
            clean_session=None if self._modern else False,
            protocol=version,
            reconnect_on_failure=False,
            manual_ack=True,
        )
        self._client.connect_timeout = _TIMEOUT_SECONDS
        if server.username is not None and server.password is not None:
            self._client.username_pw_set(server.username.reveal(), server.password.reveal())
        if server.tls is not None:
            self._client.use_tls(server.tls)
        self._client.on_connect = self._inbox.on_connect
        self._client.on_subscribe = self._inbox.on_answer
        self._client.on_unsubscribe = self._inbox.on_answer
        self._client.on_message = self._inbox.on_message
        self._client.on_disconnect = self._inbox.on_disconnect

    @property
    def present(self) -> bool:
        """Whether the server had it before."""
        return self._inbox.session_present

    def connect(self, server: MqttServer) -> bool:
        """Whether the server knows this version."""
        if self._modern:
            properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
            properties.SessionExpiryInterval = _FOR_EVER
            properties.ReceiveMaximum = MOST_UNACKNOWLEDGED
            self._client.connect(server.host, server.port, clean_start=False, properties=properties)
        else:
            self._client.connect(server.host, server.port)
        self._wait_for(lambda: self._inbox.greeting is not None)
        greeting = self._inbox.greeting
        if greeting == "Unsupported protocol version":
            return False
        if greeting is not None and greeting.is_failure:
            raise _Failure(f"it does not let us in: {greeting}")
        return True

    def subscribe(self, topic: str) -> None:
        """What was retained there is sent once, by a server of version 5; others send it with every connection."""
        if self._modern:
            options = SubscribeOptions(_QOS, retainHandling=SubscribeOptions.RETAIN_SEND_IF_NEW_SUB)
            answer = self._answer_to(self._client.subscribe(topic, options=options))
        else:
            answer = self._answer_to(self._client.subscribe(topic, _QOS))
        if answer is not None and answer.is_failure:
            raise _Failure(f"it does not let us subscribe to `{topic}`: {answer}")

    def unsubscribe(self, topic: str) -> None:
        self._answer_to(self._client.unsubscribe(topic))

    def read(self, seconds: float) -> Sequence[MqttMessage]:
        """What has arrived, after a while at most. A failure is told when there is nothing before it."""
        inbox = self._inbox
        known = -1
        while known < len(inbox.arrived) < MOST_UNACKNOWLEDGED and inbox.lost is None:
            known = len(inbox.arrived)
            self._serve(0.0 if inbox.arrived else seconds)
        arrived, inbox.arrived = inbox.arrived, []
        if inbox.lost is not None and not arrived:
            raise _Failure(inbox.lost)
        return arrived

    def acknowledge(self, messages: Sequence[MqttMessage]) -> None:
        """In the order in which they came."""
        for message in messages:
            if message.number:
                self._client.ack(message.number, _QOS)

    def close(self) -> None:
        """The session stays."""
        self._client.disconnect()

    def _answer_to(self, request: tuple[MQTTErrorCode, int | None]) -> ReasonCode | None:
        outcome, number = request
        if number is None:
            raise _Failure(error_string(outcome).rstrip("."))
        self._wait_for(lambda: number in self._inbox.answers)
        return self._inbox.answers.pop(number)

    def _wait_for(self, done: Callable[[], bool]) -> None:
        end = monotonic() + _TIMEOUT_SECONDS
        while not done():
            if self._inbox.lost is not None:
                raise _Failure(self._inbox.lost)
            if monotonic() > end:
                raise _Failure("no answer")
            self._serve(0.5)

    def _serve(self, seconds: float) -> None:
        try:
            outcome = self._client.loop(seconds)
        except Exception as error:  # whatever the client makes of packets that are none
            self._inbox.lost = f"what it says is not MQTT: {error}"
            return
        if outcome is not MQTTErrorCode.MQTT_ERR_SUCCESS and self._inbox.lost is None:
            self._inbox.lost = error_string(outcome).rstrip(".")


class _Inbox:
    """What the client has heard. It does not know the client, so that nothing keeps that one and its sockets."""

    def __init__(self) -> None:
        self.session_present = False
        self.greeting: ReasonCode | None = None
        self.answers: dict[int, ReasonCode | None] = {}
        self.arrived: list[MqttMessage] = []
        self.lost: str | None = None

    def on_connect(self, _: Client, __: Any, flags: ConnectFlags, reason: ReasonCode, ___: Properties | None) -> None:
        self.session_present, self.greeting = flags.session_present, reason

    def on_answer(self, _: Client, __: Any, number: int, reasons: list[ReasonCode], ___: Properties | None) -> None:
        self.answers[number] = reasons[0] if reasons else None

    def on_message(self, _: Client, __: Any, message: MQTTMessage) -> None:
        number = message.mid if message.qos else 0
        self.arrived.append(MqttMessage(message.topic, bytes(message.payload), number, message.dup))

    def on_disconnect(
        self, _: Client, __: Any, flags: DisconnectFlags, reason: ReasonCode, ___: Properties | None
    ) -> None:
        if flags.is_disconnect_packet_from_server:
            self.lost = f"it has ended the connection: {reason}"


class _Client(Client):
    """paho's own leaves a socket open when TLS cannot be agreed on."""

    def use_tls(self, context: ssl.SSLContext) -> None:
        self.tls_set_context(context)
        self._context = context

    def _ssl_wrap_socket(self, tcp_sock: socket.socket) -> ssl.SSLSocket:
        return self._context.wrap_socket(tcp_sock, server_hostname=self._host)
