"""Connections to NATS, and a client for single messages whose fate must be known before the caller goes on.

nats-py runs in an event loop, which gets a thread of its own. Its habit of keeping messages while there is no
connection and sending them later is turned off: what could not be sent is the retry strategy's business.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from threading import Thread
from typing import Any

import nkeys
from nats import errors
from nats.aio.client import Client, RawCredentials

from eventbus.errors import ConfigError
from sensors.actions.base import ActionError
from sensors.actions.replies import excerpt
from sensors.secrets import Secret

TIMEOUT_SECONDS = 10.0
_CLOSE_SECONDS = 1.0
_REFUSED_SUBJECT = re.compile(r'permissions violation for publish to "(?P<subject>[^"]*)"', re.IGNORECASE)
_CREDENTIALS = re.compile(
    r"-----BEGIN NATS USER JWT-----\s+\S+\s+-+END NATS USER JWT-+.*-----BEGIN USER NKEY SEED-----\s+(?P<seed>\S+)\s",
    re.DOTALL,
)
_REFUSED_US = re.compile(r"authorization|authentication|nkey|credential|jwt", re.IGNORECASE)


class NoConnection(Exception):
    """None of the servers lets us in; the message says why, in one line."""


class NatsConnector:
    """Makes connections to the first server that answers."""

    def __init__(
        self, servers: Sequence[str], name: str, tls: ssl.SSLContext | None, auth: Mapping[str, Secret]
    ) -> None:
        """Raises `ConfigError` for keys that are none."""
        self._servers = list(servers)
        self._secrets = tuple(auth.values())
        self._options: dict[str, Any] = {"name": name, "tls": tls, **_auth_options(auth)}

    async def connect(self, on_error: Callable[[Exception], None]) -> NatsConnection:
        """Raises `NoConnection`."""
        reasons: list[str] = []
        for server in self._servers:
            client = NatsConnection(on_error)
            try:
                await asyncio.wait_for(
                    client.connect(
                        [server],
                        error_cb=client.on_error,
                        closed_cb=client.on_closed,
                        allow_reconnect=False,
                        max_reconnect_attempts=1,
                        reconnect_time_wait=0,
                        **self._options,
                    ),
                    TIMEOUT_SECONDS,
                )
            except (errors.Error, OSError, TimeoutError, ValueError) as error:
                reasons.append(self._reason(client.failure or error))
                await client.give_up()
            else:
                return client
        raise NoConnection(f"no connection: {reasons[-1]}")

    def shown(self, error: Exception) -> str:
        """In one line, without our secrets."""
        return excerpt(str(error).removeprefix("nats: ").strip("' "), self._secrets)

    def _reason(self, error: Exception) -> str:
        match error:
            case TimeoutError():
                return f"no answer within {TIMEOUT_SECONDS:g} s"
            case ssl.SSLError():
                return f"TLS: {error.reason or error}"
            case OSError():
                return error.strerror or str(error)
            case _:
                return self.shown(error)


class NatsPublisher:
    """Thread-safe. Connects when there is something to publish, and again when the connection has broken."""

    def __init__(
        self, servers: Sequence[str], name: str, tls: ssl.SSLContext | None, auth: Mapping[str, Secret]
    ) -> None:
        self._connector = NatsConnector(servers, name, tls, auth)
        self._client: NatsConnection | None = None
        self._refusals: Counter[str] = Counter()
        self._connecting = asyncio.Lock()
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="nats", daemon=True)
        self._thread.start()

    def publish(self, subject: str, payload: bytes, headers: dict[str, str]) -> None:
        """Returns when the server has got the message. Raises `ActionError`."""
        asyncio.run_coroutine_threadsafe(self._publish(subject, payload, headers), self._loop).result()

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._disconnect(self._client), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _publish(self, subject: str, payload: bytes, headers: dict[str, str]) -> None:
        client = await self._connected()
        refusals = self._refusals[subject.lower()]
        try:
            await client.publish(subject, payload, headers=headers)
        except errors.Error as error:  # it looks before it sends anything
            retriable = isinstance(error, errors.ConnectionClosedError)
            raise ActionError(self._connector.shown(error), retriable=retriable, sent=False) from None
        try:
            await asyncio.wait_for(client.has_got_everything(), TIMEOUT_SECONDS)
        except (TimeoutError, errors.Error, OSError) as error:
            late = isinstance(error, TimeoutError)
            reason = f"no answer within {TIMEOUT_SECONDS:g} s" if late else f"the connection broke: {error}"
            await self._disconnect(client)
            raise ActionError(reason, retriable=True, sent=True) from None
        if self._refusals[subject.lower()] > refusals:
            message = f"the server does not let us publish to `{subject}`"
            raise ActionError(message, retriable=False, sent=False)

    async def _connected(self) -> NatsConnection:
        async with self._connecting:
            if self._client is None or not self._client.is_connected:
                await self._disconnect(self._client)
                self._client = await self._connect()
            return self._client

    async def _connect(self) -> NatsConnection:
        try:
            return await self._connector.connect(self._on_error)
        except NoConnection as error:
            raise ActionError(str(error), retriable=not _REFUSED_US.search(str(error)), sent=False) from None

    async def _disconnect(self, client: NatsConnection | None) -> None:
        """This one: another message may have made a new connection meanwhile."""
        if self._client is client:
            self._client = None
        if client is not None:
            await client.give_up()

    def _on_error(self, error: Exception) -> None:
        found = _REFUSED_SUBJECT.search(str(error))
        if found is not None:
            self._refusals[found["subject"].lower()] += 1  # nats-py has it in lower case already


def _auth_options(auth: Mapping[str, Secret]) -> dict[str, Any]:
    """Raises `ConfigError` for keys that are none; nats-py would not say what is wrong."""
    options: dict[str, Any] = {name: secret.reveal() for name, secret in auth.items()}
    if "nkeys_seed_str" in options:
        _check_seed(options["nkeys_seed_str"].strip(), "`nkey` is not the seed of an NKey")
    if "user_credentials" in options:
        found = _CREDENTIALS.search(options["user_credentials"])
        _check_seed("" if found is None else found["seed"], "`credential` is not a credentials file of NATS")
        options["user_credentials"] = RawCredentials(options["user_credentials"])
    return options


def _check_seed(seed: str, fault: str) -> None:
    try:
        nkeys.from_seed(bytearray(seed.encode())).wipe()
    except (nkeys.NkeysError, ValueError):
        raise ConfigError(f"the secret of {fault}") from None


class NatsConnection(Client):
    """nats-py's client, with two things changed.

    Where the server does not ask for TLS, nats-py goes on without, `tls` or not, and sends the password in the clear.
    And who waits on a connection that breaks, for an answer or for its end, waits for ever.
    """

    def __init__(self, on_error: Callable[[Exception], None]) -> None:
        super().__init__()
        self._is_closed = asyncio.Event()
        self._report = on_error
        self.failure: Exception | None = None

    async def on_error(self, error: Exception) -> None:
        self.failure = error
        self._report(error)

    async def on_closed(self) -> None:
        self._is_closed.set()

    async def give_up(self) -> None:
        with suppress(TimeoutError, OSError):  # after a failed handshake it waits for an end that has been
            await asyncio.wait_for(self.close(), _CLOSE_SECONDS)

    async def has_got_everything(self) -> None:
        """Returns when the server has answered to all that was sent. Raises when it can do so no more."""
        flushed = asyncio.ensure_future(self.flush(int(TIMEOUT_SECONDS) + 1))
        closed = asyncio.ensure_future(self._is_closed.wait())
        try:
            await asyncio.wait((flushed, closed), return_when=asyncio.FIRST_COMPLETED)
            if not flushed.done():
                raise errors.ConnectionClosedError
            flushed.result()
        finally:
            flushed.cancel()
            closed.cancel()

    def _connect_command(self) -> bytes:
        if self.options.get("tls") and not self._server_info.get("tls_required"):
            raise errors.Error("the server does not ask for TLS, and without it we would be overheard")
        command: bytes = super()._connect_command()
        return command
