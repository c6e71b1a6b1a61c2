"""An HTTP client that knows whether a failed request can have reached anybody, and that always comes to an end.

urllib3 does the work. Three things are added to its connections:

- *Sent or not.* An at-most-once action may be repeated only if its request provably never left. The exception does
  not tell (a TLS alert can come during the handshake or after the request), but the connection does: as long as
  nothing was handed to an established connection, nothing has left.
- *A deadline for the whole answer.* A socket's time-out starts anew with every byte, so that a server that drips its
  answer could hold a worker for ever.
- *A guard.* A host is looked up once; the addresses are checked, and it is one of them that is connected to.
"""

from __future__ import annotations

import io
import socket
import ssl
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from http.client import HTTPResponse as PlainResponse
from typing import Any

import msgspec
import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    NameResolutionError,
    NewConnectionError,
    ReadTimeoutError,
    SSLError,
)

from sensors.actions.addresses import AddressGuard
from sensors.actions.base import ActionError
from sensors.actions.deadline import DeadlineReader

MAX_BODY = 64 * 1024
_CONNECTIONS_KEPT = 64


class Answer(msgspec.Struct, frozen=True):
    """What the server said; of the body no more than the client reads."""

    status: int
    retry_after: str | None
    body: bytes
    headers: Mapping[str, str]
    """Whatever their case."""


class HttpClient:
    """Thread-safe. Follows no redirect, repeats nothing, uses no proxy."""

    def __init__(
        self,
        timeout: float,
        tls: ssl.SSLContext | None = None,
        *,
        guard: AddressGuard | None = None,
        pools: urllib3.PoolManager | None = None,
        max_body: int = MAX_BODY,
    ) -> None:
        """`pools` is for who knows better how to reach the server; its connections must still be unused."""
        self._timeout = timeout
        self._guard = guard
        self._max_body = max_body
        self._pools = pools or urllib3.PoolManager(maxsize=_CONNECTIONS_KEPT, ssl_context=tls)
        self._pools.pool_classes_by_scheme = {"http": _HttpPool, "https": _HttpsPool}

    def request(self, method: str, url: str, headers: dict[str, str], body: bytes | None) -> Answer:
        """Send a request and wait for its answer. Raises `ActionError` when there is none."""
        _progress.sent = False
        _progress.guard = self._guard
        try:
            response = self._pools.urlopen(
                method,
                url,
                body=body,
                headers=headers,
                timeout=urllib3.Timeout(total=self._timeout),
                retries=False,
                redirect=False,
                preload_content=False,
                decode_content=False,
            )
        except HTTPError as error:
            raise ActionError(self._reason(error), retriable=True, sent=_progress.sent) from None
        told = response.headers
        return Answer(response.status, told.get("Retry-After"), self._bounded_body(response), told)

    def close(self) -> None:
        self._pools.clear()

    def _bounded_body(self, response: urllib3.BaseHTTPResponse) -> bytes:
        """The beginning of the body. What follows, or goes wrong, after the status line does not change the outcome."""
        try:
            body = response.read(self._max_body)
        except HTTPError:
            response.close()
            return b""
        if len(body) < self._max_body:
            response.release_conn()
        else:
            response.close()
        return body

    def _reason(self, error: HTTPError) -> str:
        match error:
            case NameResolutionError():
                return "the host name cannot be resolved"
            case NewConnectionError():
                return f"no connection: {str(error).rpartition('] ')[2]}"
            case ConnectTimeoutError():
                return f"no connection within {self._timeout:g} s"
            case SSLError():
                return f"TLS: {error}"
            case ReadTimeoutError():
                return f"no complete answer within {self._timeout:g} s"
            case _:
                return f"the connection broke: {error}"


# --- connections ----------------------------------------------------------------------------------------------------


class _Progress(threading.local):
    """Of the request that this thread makes."""

    sent = False
    guard: AddressGuard | None = None


_progress = _Progress()


class _DeadlineResponse(PlainResponse):
    def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self.fp: Any = io.BufferedReader(DeadlineReader(self.fp.detach(), sock))


class _HttpConnection(HTTPConnection):
    response_class = _DeadlineResponse

    def send(self, data: Any) -> None:
        if self.sock is None:
            self.connect()
        _progress.sent = True
        super().send(data)

    def _new_conn(self) -> socket.socket:
        """Connects to an address that was checked: another look-up could give another one."""
        guard, name = _progress.guard, self._dns_host
        if guard is None:
            return super()._new_conn()
        try:
            found = socket.getaddrinfo(name, self.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            failure = error if isinstance(error, socket.gaierror) else socket.gaierror(str(error))
            raise NameResolutionError(self.host, self, failure) from error
        addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
        guard.check(self.host, self.port, addresses)
        try:
            return self._connected_to_one_of(addresses)
        finally:
            self._dns_host = name

    def _connected_to_one_of(self, addresses: Sequence[str]) -> socket.socket:
        for address in addresses[:-1]:
            self._dns_host = address
            with suppress(NewConnectionError):
                return super()._new_conn()
        self._dns_host = addresses[-1]
        return super()._new_conn()


class _HttpsConnection(_HttpConnection, HTTPSConnection):
    def connect(self) -> None:
        super().connect()
        self.is_verified = True  # or the manifest asked for no verification: no warning at every call


class _HttpPool(urllib3.HTTPConnectionPool):
    ConnectionCls = _HttpConnection


class _HttpsPool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _HttpsConnection
