"""Why the brokers do not let a client in.

librdkafka tries to connect for ever, and tells why it fails in a callback only. Whoever has asked a question just gets
no answer, so the callback's words are kept until then. They may be about a password that has been replaced: then the
client goes on with the new one.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple, Protocol

from confluent_kafka import KafkaError, Producer

from eventbus.clock import Deadline, SystemClock
from eventbus.errors import FatalError, LogError, RetriableError
from eventbus.kafka import codes
from eventbus.kafka.config import REQUEST_TIMEOUT, Settings
from eventbus.kafka.connection import Config, Connection
from eventbus.kafka.errors import log_error, needs_a_person, no_answer, no_token, translated
from eventbus.kafka.handshake import certificate_fault, own_certificate_fault, speaks_tls

_ADDRESS = re.compile(r"(?:\w+://)?\[?(?P<host>[^/\],]+)\]?:(?P<port>\d+)")
_TIMING = re.compile(r"\s*\(after \d+ms in state \w+\)")

_TOKENLESS = "Failed to acquire SASL OAUTHBEARER token: "
_TOO_SOON = "Request not valid in current SASL state"
"""A login was to be renewed within a second of the last one. The client connects anew then."""

_PATIENCE = 2.0
"""Seconds until brokers that do not answer are suspected of not wanting to."""

_log = logging.getLogger("eventbus.kafka")


class WithCredentials(Protocol):
    """Every client of confluent-kafka."""

    def set_sasl_credentials(self, username: str, password: str, /) -> None: ...


class Complaints:
    """What the brokers hold against one client."""

    def __init__(self, settings: Settings) -> None:
        """Before the client is made, so that no change of the credentials is missed."""
        self._settings = settings
        self._credentials = _credentials(settings.connection.security())
        self._last: KafkaError | None = None
        self._before: LogError | None = None
        """Why the last question had no answer. librdkafka does not repeat itself while the reason stays the same."""

    def note(self, error: KafkaError) -> None:
        """The client's callback for errors that belong to no request."""
        _log.debug("%s", error)
        if _TOO_SOON in error.str():
            return
        if needs_a_person(error) or error.code() in codes.NO_WAY_THERE:
            self._last = error
        elif error.code() == codes.ALL_BROKERS_DOWN:  # all that is said of a listener that hangs up
            self._last = self._last or error

    def refusal(self, client: WithCredentials, doing: str) -> FatalError | None:
        """Why a person has to do something. Costs nothing while the brokers have not complained."""
        if self._last is None or not needs_a_person(self._last):
            return None
        reason = self._reason(client, doing)
        return reason if isinstance(reason, FatalError) else None

    @contextmanager
    def asking(self, client: WithCredentials, doing: str) -> Iterator[None]:
        """A question to the brokers: where there is no answer, the error says why."""
        try:
            with translated(doing):
                yield
        except RetriableError as error:
            raise self._reason(client, doing) or self._before or error from None
        self._last = self._before = None

    def _reason(self, client: WithCredentials, doing: str) -> LogError | None:
        error, self._last = self._last, None
        if error is None:
            return None
        self._before = None
        tokens = self._settings.connection.tokens
        if tokens is not None and error.code() in codes.BAD_CREDENTIALS and (tokens.trouble or tokens.recovering):
            return None if tokens.trouble is None else no_token(tokens.trouble, doing)
        if error.str().startswith(_TOKENLESS):
            said = error.str().removeprefix(_TOKENLESS)
            return None if tokens is not None else no_answer(doing, f"There is no token to log in with: {said}")
        if error.code() in codes.BAD_CREDENTIALS and self._renewed(client):
            _log.info("the Kafka credentials have changed: going on with the new ones")
            return None
        reason = explained(error, doing, self._settings.connection)
        self._before = reason if isinstance(reason, RetriableError) else None
        return reason

    def _renewed(self, client: WithCredentials) -> bool:
        latest = _credentials(self._settings.connection.security())
        if latest is None or latest == self._credentials:
            return False
        client.set_sasl_credentials(*latest)
        self._credentials = latest
        return True


def connect(producer: Producer, complaints: Complaints, where: str) -> None:
    """Wait until a broker answers. Asked without a connection, librdkafka looks for a coordinator every 500 ms only."""
    deadline = Deadline(SystemClock(), REQUEST_TIMEOUT)
    while True:
        try:
            with complaints.asking(producer, f"connecting {where}"):
                _await_answer(producer, min(deadline.left(), _PATIENCE))
        except RetriableError:
            if deadline.over():
                raise
        else:
            return


def _await_answer(producer: Producer, seconds: float) -> None:
    try:
        producer.cluster_id(seconds)
    finally:
        producer.poll(0)  # hands out what the brokers have said


class _Broker(NamedTuple):
    """Who has complained."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def explained(error: KafkaError, doing: str, connection: Connection) -> LogError:
    """A refusal that only a person can lift, or one that may pass: brokers also hang up when they are stopped."""
    address = _ADDRESS.match(connection.bootstrap_servers if error.code() == codes.ALL_BROKERS_DOWN else error.str())
    if address is None:
        return log_error(error, doing)
    settings = connection.security()
    broker = _Broker(address["host"], int(address["port"]))
    said = _TIMING.sub("", error.str().partition(": ")[2]).rstrip(". ")
    if error.code() in codes.BAD_CREDENTIALS:
        return _fatal(doing, f"{broker} does not let this client in: {said}. {_advice(said, settings)}")
    if error.code() == codes.UNRESOLVED:
        return no_answer(doing, f"The name `{broker.host}` is not known here.")
    if "ssl" in str(settings.get("security.protocol")).lower():
        return _tls_trouble(broker, said, doing, settings)
    if speaks_tls(*broker):
        return _fatal(doing, f"{broker} speaks TLS, and this client does not. Set `tls` (docs/connection.md).")
    return no_answer(doing)


def _tls_trouble(broker: _Broker, said: str, doing: str, settings: Config) -> LogError:
    fault = certificate_fault(*broker, settings)
    if fault is not None:
        return _fatal(doing, fault)
    if " alert " in said:
        own = own_certificate_fault(str(broker), settings)
        return _fatal(doing, own or f"{broker} refuses this client's certificate: {said}.")
    if speaks_tls(*broker) is False:
        return no_answer(doing, f"{broker} does not answer as TLS does: is it a listener without TLS?")
    return no_answer(doing)


def _fatal(doing: str, reason: str) -> FatalError:
    return FatalError(f"Kafka, {doing}: {reason}")


def _advice(said: str, settings: Config) -> str:
    if "mechanism handshake" in said:
        return "Check the mechanism."
    if "OAUTHBEARER" in (settings.get("sasl.mechanism"), settings.get("sasl.mechanisms")):
        return "Check what the broker asks of a token: its issuer, audience and scope."
    return "Check the user name and the password."


def _credentials(settings: Config) -> tuple[str, str] | None:
    if "sasl.username" in settings and "sasl.password" in settings:
        return settings["sasl.username"], settings["sasl.password"]
    return None
