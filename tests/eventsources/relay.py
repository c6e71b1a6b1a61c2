"""A way to a server that can be cut and mended: what stands in for a server that stops and comes back."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml


class Relay:
    """Passes bytes on, both ways. While it is cut, connections are refused and those that were open are gone."""

    def __init__(self, host: str, port: int) -> None:
        self.swallow_after: int | None = None
        """So many bytes of what a server sends are passed on; the rest is swallowed, and nobody is told."""
        self.break_after: int | None = None
        """After so many bytes of what a server sends, the connection breaks."""
        self._target = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        self._lock = threading.Lock()
        self._serve()

    def cut(self) -> None:
        with self._lock, suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()
        with self._lock:
            for each in self._open:
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
            self._open.clear()

    def mend(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self._serve()

    def _serve(self) -> None:
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._connect(client)

    def _connect(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(self._target)
        except OSError:
            client.close()
            return
        with self._lock:
            self._open += [client, server]
        for source, sink, from_server in ((client, server, False), (server, client, True)):
            threading.Thread(target=self._pump, args=(source, sink, from_server), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, from_server: bool) -> None:
        passed = 0
        with suppress(OSError):
            while chunk := source.recv(65536):
                breaks = from_server and self.break_after is not None and passed + len(chunk) > self.break_after
                limits = [self.break_after, self.swallow_after] if from_server else []
                most = min((limit for limit in limits if limit is not None), default=None)
                chunk = chunk if most is None else chunk[: max(0, most - passed)]
                passed += len(chunk)
                sink.sendall(chunk)
                if breaks:
                    break
        for each in (source, sink):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        source.close()


def relayed(kubeconfig: Path, into: Path) -> Relay:
    """A relay to the API server that a kubeconfig file names, and a copy of that file that goes through it."""
    document: Any = yaml.safe_load(kubeconfig.read_text())
    contexts = {each["name"]: each["context"] for each in document["contexts"]}
    cluster_name = contexts[document["current-context"]]["cluster"]
    cluster = next(each["cluster"] for each in document["clusters"] if each["name"] == cluster_name)
    url = urlsplit(cluster["server"])
    assert url.hostname is not None
    relay = Relay(url.hostname, url.port or 443)
    cluster.setdefault("tls-server-name", url.hostname)
    cluster["server"] = f"{url.scheme}://127.0.0.1:{relay.port}"
    into.write_text(yaml.safe_dump(document))
    return relay
