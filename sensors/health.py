"""Health, readiness and metrics of all replicas in this process, over HTTP, for Kubernetes and Prometheus.

`/healthz` 503: restart it. `/readyz` 503: it does not take part yet, or no longer. `/metrics`: Prometheus' text format.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import BaseServer, TCPServer
from threading import Thread
from types import TracebackType
from typing import Any, Protocol, Self, TypeAlias

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST, Metric, generate_latest
from prometheus_client.registry import Collector

from eventbus.errors import ConfigError

_ALL_INTERFACES = ""
_CLIENT_SECONDS = 10

log = logging.getLogger("eventbus.health")


class Answer(msgspec.Struct, frozen=True):
    """What a request gets."""

    status: HTTPStatus
    content_type: str
    body: bytes


class Part(Protocol):
    """Whatever runs in this process: a replica of a sensor, an event source."""

    @property
    def name(self) -> object: ...

    @property
    def slot(self) -> str: ...

    @property
    def registry(self) -> Collector: ...

    def complaints(self) -> list[str]:
        """Why it should be restarted."""

    def waiting_for(self) -> list[str]:
        """Why it does not take part yet, or no longer."""


class Complaint(msgspec.Struct, frozen=True):
    """Why one sensor is the reason for a 503."""

    name: str
    slot: str
    reasons: Sequence[str]


Page: TypeAlias = Callable[[], Answer]


class HealthServer:
    """A small HTTP server in a thread of its own. Use it as a context manager."""

    def __init__(self, replicas: Sequence[Part], port: int) -> None:
        """Port 0 means any free one; see `port`. It listens on all interfaces, because probes come from outside.

        `replicas` may grow while the server runs; without any, nothing is ready.
        """
        pages: Mapping[str, Page] = {
            "/healthz": partial(_health, replicas),
            "/readyz": partial(_readiness, replicas),
            "/metrics": partial(_metrics, replicas),
        }
        try:
            self._server = _Server((_ALL_INTERFACES, port), partial(_Handler, pages))
        except OSError as error:
            raise ConfigError(f"cannot serve health and metrics on port {port}: {error.strerror}") from None
        self._thread = Thread(target=self._server.serve_forever, args=(0.05,), name="health", daemon=True)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def server_bind(self) -> None:
        """Without the base class's search for a host name, which can wait for a name server for long."""
        TCPServer.server_bind(self)


class _Handler(BaseHTTPRequestHandler):
    timeout = _CLIENT_SECONDS

    def __init__(self, pages: Mapping[str, Page], request: Any, client: Any, server: BaseServer) -> None:
        self._pages = pages
        super().__init__(request, client, server)

    def do_GET(self) -> None:
        page = self._pages.get(self.path.partition("?")[0])
        answer = page() if page else _json(HTTPStatus.NOT_FOUND, {"pages": sorted(self._pages)})
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body)

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the base class calls it so
        log.debug(format, *arguments)


def _health(replicas: Sequence[Part]) -> Answer:
    return _verdict(replicas, lambda part: part.complaints())


def _readiness(replicas: Sequence[Part]) -> Answer:
    if not replicas:
        return _json(HTTPStatus.SERVICE_UNAVAILABLE, {"ok": False, "complaints": []})
    return _verdict(replicas, lambda part: part.waiting_for())


def _verdict(replicas: Sequence[Part], reasons: Callable[[Part], Sequence[str]]) -> Answer:
    found = [Complaint(str(replica.name), replica.slot, reasons(replica)) for replica in replicas]
    complaints = [complaint for complaint in found if complaint.reasons]
    if complaints:
        return _json(HTTPStatus.SERVICE_UNAVAILABLE, {"ok": False, "complaints": complaints})
    return _json(HTTPStatus.OK, {"ok": True, "running": [str(replica.name) for replica in replicas]})


def _metrics(replicas: Sequence[Part]) -> Answer:
    body = generate_latest(_Merged([replica.registry for replica in replicas]))
    return Answer(HTTPStatus.OK, CONTENT_TYPE_LATEST, body)


class _Merged(Collector):
    """Several registries with the same metrics as one: Prometheus wants each metric only once in a page."""

    def __init__(self, registries: Sequence[Collector]) -> None:
        self._registries = registries

    def collect(self) -> Iterable[Metric]:
        merged: dict[str, Metric] = {}
        for registry in self._registries:
            for metric in registry.collect():
                known = merged.setdefault(metric.name, metric)
                if known is not metric:
                    known.samples.extend(metric.samples)
        return merged.values()


def _json(status: HTTPStatus, content: object) -> Answer:
    return Answer(status, "application/json", msgspec.json.encode(content) + b"\n")
