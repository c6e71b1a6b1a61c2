"""uvicorn, in a thread of its own: it belongs to whoever runs sources, and leaves signals alone."""

from __future__ import annotations

import asyncio
import socket
import ssl
from threading import Event as Flag
from threading import Thread

import uvicorn

from eventbus.errors import ConfigError
from eventbus.logfields import inheriting
from eventsources.receiver.app import Application
from eventsources.receiver.patience import BoundedProtocol

_KEEP_ALIVE_SECONDS = 65
"""Longer than the usual load balancer keeps its own connections, so that it is not us who closes them."""
_BACKLOG = 2048


class Server:
    """One port. It listens from the beginning, and answers once it has been started."""

    def __init__(self, app: Application, port: int, tls: ssl.SSLContext | None, drain_seconds: float) -> None:
        """Port 0 means any free one; see `port`."""
        self._socket = _listen(port)
        self.port = int(self._socket.getsockname()[1])
        config = uvicorn.Config(
            app,
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            ws="none",
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=max(1, round(drain_seconds)),
            http=BoundedProtocol,
            backlog=_BACKLOG,
        )
        config.load()
        config.ssl = tls
        self._server = _Server(config)
        self._thread = Thread(target=inheriting(self._run), name=f"receiver-{self.port}", daemon=True)

    def start(self) -> None:
        self._thread.start()
        self._server.answers.wait()

    def stop(self) -> None:
        """No new requests; those that are here get their answers."""
        self._server.should_exit = True
        if self._thread.ident is not None:
            self._thread.join()
        self._socket.close()

    def _run(self) -> None:
        asyncio.run(self._server.serve(sockets=[self._socket]))


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.answers = Flag()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.answers.set()


def _listen(port: int) -> socket.socket:
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(("", port))
        listening.listen(_BACKLOG)  # only now it is ours: until somebody listens, others may bind it as well
    except OSError as error:
        listening.close()
        raise ConfigError(f"cannot listen on port {port}: {error.strerror}") from None
    return listening
