"""An HTTP client that knows whether a failed request can have reached anybody, and that always comes to an end.

urllib3 does the work. Two things are added to its connections:

- *Sent or not.* An at-most-once action may be repeated only if its request provably never left. The exception does
  not tell (a TLS alert can come during the handshake or after the request), but the connection does: as long as
  nothing was handed to an established connection, nothing has left.
- *A deadline for the whole answer.* A socket's time-out starts anew with every byte, so that a server that drips its
  answer could hold a worker for ever.
"""

from __future__ import annotations

import io
import socket
import ssl
import threading
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

from sensors.actions.base import ActionError
from sensors.actions.deadline import DeadlineReader

MAX_BODY = 64 * 1024
_CONNECTIONS_KEPT = 64


class Answer(msgspec.Struct, frozen=True):
    """What the server said; of the body at most `MAX_BODY` bytes."""

    status: int
    retry_after: str | None
    body: bytes


class HttpClient:
    """Thread-safe. Follows no redirect, repeats nothing, uses no proxy."""

    def __init__(self, timeout: float, tls: ssl.SSLContext | None) -> None:
        self._timeout = timeout
        self._pools = urllib3.PoolManager(maxsize=_CONNECTIONS_KEPT, ssl_context=tls)
        self._pools.pool_classes_by_scheme = {"http": _HttpPool, "https": _HttpsPool}

    def request(self, method: str, url: str, headers: dict[str, str], body: bytes | None) -> Answer:
        """Send a request and wait for its answer. Raises `ActionError` when there is none."""
        _progress.sent = False
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
        return Answer(response.status, response.headers.get("Retry-After"), _bounded_body(response))

    def close(self) -> None:
        self._pools.clear()

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


def _bounded_body(response: urllib3.BaseHTTPResponse) -> bytes:
    """The beginning of the body. What follows, or goes wrong, after the status line does not change the outcome."""
    try:
        body = response.read(MAX_BODY)
    except HTTPError:
        response.close()
        return b""
    if len(body) < MAX_BODY:
        response.release_conn()
    else:
        response.close()
    return body


# --- connections ----------------------------------------------------------------------------------------------------


class _Progress(threading.local):
    sent = False


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


class _HttpsConnection(HTTPSConnection):
    response_class = _DeadlineResponse

    def connect(self) -> None:
        super().connect()
        self.is_verified = True  # or the manifest asked for no verification: no warning at every call

    def send(self, data: Any) -> None:
        if self.sock is None:
            self.connect()
        _progress.sent = True
        super().send(data)


class _HttpPool(urllib3.HTTPConnectionPool):
    ConnectionCls = _HttpConnection


class _HttpsPool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _HttpsConnection
