"""A client of Redis that does nothing twice: what has failed is the runner's to begin again."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from redis import ConnectionPool, Redis, RedisError
from redis.backoff import NoBackoff
from redis.client import PubSub
from redis.connection import Connection
from redis.retry import Retry

from eventsources.base import SourceError
from sensors.actions.replies import excerpt
from sensors.secrets import Secret

_TIMEOUT_SECONDS = 10.0


@contextmanager
def open_redis(address: str, db: int, username: str, password: Secret, tls: ssl.SSLContext | None) -> Iterator[Redis]:
    """Whatever goes wrong with the client is a `SourceError`."""
    host, _, port = address.rpartition(":")
    options: dict[str, Any] = {
        "host": host.strip("[]"),
        "port": int(port),
        "db": db,
        "username": username or None,
        "password": password.reveal() or None,
        "protocol": 2,
        "retry": Retry(NoBackoff(), 0),
        "socket_timeout": _TIMEOUT_SECONDS,
        "socket_connect_timeout": _TIMEOUT_SECONDS,
        "socket_keepalive": True,
        "health_check_interval": _TIMEOUT_SECONDS,
    }
    if tls is not None:
        options |= {"connection_class": _TlsConnection, "tls": tls}
    client = Redis.from_pool(ConnectionPool(**options))
    try:
        yield client
    except RedisError as error:
        raise SourceError(f"Redis at {address}: {excerpt(str(error), [password]).rstrip('.')}") from None
    finally:
        client.close()


def read_messages(subscription: PubSub, most: int, seconds: float) -> list[dict[str, Any]]:
    """What is there, after a while at most. An error is raised when nothing was read before it."""
    found: list[dict[str, Any]] = []
    while len(found) < most:
        try:
            message = subscription.get_message(timeout=0.0 if found else seconds)
        except RedisError:
            if not found:
                raise
            break
        if message is None:
            break
        found.append(message)
    return [each for each in found if each["type"] == "message"]


class _TlsConnection(Connection):
    """redis-py makes a TLS context of its own, from files; this one gets ours."""

    def __init__(self, tls: ssl.SSLContext, **options: Any) -> None:
        super().__init__(**options)  # type: ignore[no-untyped-call]
        self._tls = tls

    def _connect(self) -> socket.socket:
        plain: socket.socket = super()._connect()  # type: ignore[no-untyped-call]
        try:
            return self._tls.wrap_socket(plain, server_hostname=self.host)
        except OSError:
            plain.close()
            raise
