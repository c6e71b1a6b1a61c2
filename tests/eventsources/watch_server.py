"""The part of the Kubernetes API that lists and watches, as a real HTTP server in this process. It keeps one kind."""

from __future__ import annotations

import json
import threading
from copy import deepcopy
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

from tests.eventsources.resource_contract import Objects

TOKEN = "token-canary-51f0"
_PATIENCE = 20


class WatchServer(Objects):
    """Objects, and what has happened to them."""

    def __init__(self, directory: Path) -> None:
        self.namespace = "shop"
        self.refusal: tuple[int, str, str] | None = None
        self.queries: list[dict[str, str]] = []
        self.bookmarks = False
        """Whether a watch says first up to which version nothing has happened."""
        self._objects: dict[str, dict[str, Any]] = {}
        self._history: list[tuple[int, str, dict[str, Any]]] = []
        self.version = 100
        self._forgotten = 0
        self._stale: set[str] = set()
        self._changed = threading.Condition()
        self._closed = self._hangs_up = False
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                owner._answer(self)

            def log_message(self, *_: Any) -> None:
                """Keep quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()
        self.kubeconfig = self._write_kubeconfig(directory / "kubeconfig")

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _write_kubeconfig(self, file: Path) -> Path:
        config = {
            "current-context": "test",
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "clusters": [{"name": "test", "cluster": {"server": f"http://127.0.0.1:{self._server.server_address[1]}"}}],
            "users": [{"name": "test", "user": {"token": TOKEN}}],
        }
        file.write_text(json.dumps(config))
        return file

    # --- what tests do ----------------------------------------------------------------------------------------------

    def create(self, name: str, text: str = "", **labels: str) -> None:
        created = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        metadata = {"name": name, "namespace": self.namespace, "uid": str(uuid4()), "creationTimestamp": created}
        self._happen("ADDED", {"metadata": {**metadata, "labels": labels}, "data": {"text": text}})

    def change(self, name: str, text: str) -> None:
        self._happen("MODIFIED", {**deepcopy(self._objects[name]), "data": {"text": text}})

    def delete(self, name: str) -> None:
        self._happen("DELETED", deepcopy(self._objects[name]))

    def forget(self) -> None:
        with self._changed:
            self._forgotten = self.version
            self._changed.notify_all()

    def forget_lists(self) -> None:
        """Whoever has read some pages of a list has to begin again."""
        with self._changed:
            self._stale.add(str(self.version))

    def hang_up(self) -> None:
        """Those who watch are left in the middle of a sentence."""
        with self._changed:
            self._hangs_up = True
            self._changed.notify_all()

    def _happen(self, type: str, found: dict[str, Any]) -> None:
        with self._changed:
            self.version += 1
            found["metadata"]["resourceVersion"] = str(self.version)
            self._history.append((self.version, type, found))
            if type == "DELETED":
                del self._objects[found["metadata"]["name"]]
            else:
                self._objects[found["metadata"]["name"]] = found
            self._changed.notify_all()

    # --- HTTP -------------------------------------------------------------------------------------------------------

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        parts = urlsplit(handler.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        with self._changed:
            self.queries.append(query)
            refusal = self.refusal
        if handler.headers["Authorization"] != f"Bearer {TOKEN}":
            refusal = (401, "Unauthorized", "who are you?")
        elif parts.path != f"/api/v1/namespaces/{self.namespace}/configmaps":
            refusal = (404, "NotFound", "the server could not find the requested resource")
        if refusal is not None:
            self._send(handler, refusal[0], _status(*refusal))
        elif "watch" in query:
            self._stream(handler, int(query["resourceVersion"]), query)
        else:
            self._send(handler, *self._page(query))

    def _page(self, query: dict[str, str]) -> tuple[int, dict[str, Any]]:
        with self._changed:
            version, _, done = query.get("continue", f"{self.version} 0").partition(" ")
            if version in self._stale:
                return 410, _status(410, "Expired", "the continue parameter is too old")
            first, last = int(done), int(done) + int(query["limit"])
            found = [each for each in self._objects.values() if _selected(each, query)]
            more = f"{version} {last}" if last < len(found) else ""
            return 200, {"metadata": {"resourceVersion": version, "continue": more}, "items": found[first:last]}

    def _stream(self, handler: BaseHTTPRequestHandler, version: int, query: dict[str, str]) -> None:
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        while (lines := self._news(version)) and lines[-1][0] != "ERROR":
            self._write(handler, [each for each in lines if _selected(each[1], query)])
            version = int(lines[-1][1]["metadata"]["resourceVersion"])
            if self.bookmarks:
                self._write(handler, [("BOOKMARK", {"metadata": {"resourceVersion": str(version)}})])
        self._write(handler, lines)
        if self._hangs_up:
            handler.close_connection = True
        else:
            handler.wfile.write(b"0\r\n\r\n")

    def _news(self, version: int) -> list[tuple[str, dict[str, Any]]]:
        """None when the server closes, or nothing happens."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._closed or self._hangs_up or max(self.version, self._forgotten) > version, _PATIENCE
            )
            if version < self._forgotten:
                return [("ERROR", _status(410, "Expired", "too old resource version"))]
            return (
                []
                if self._closed or self._hangs_up
                else [(type, found) for at, type, found in self._history if at > version]
            )

    def _write(self, handler: BaseHTTPRequestHandler, lines: list[tuple[str, dict[str, Any]]]) -> None:
        content = b"".join(json.dumps({"type": type, "object": each}).encode() + b"\n" for type, each in lines)
        for half in (content[: len(content) // 2], content[len(content) // 2 :]):  # chunks end anywhere
            if half:
                handler.wfile.write(f"{len(half):x}\r\n".encode() + half + b"\r\n")
                handler.wfile.flush()

    def _send(self, handler: BaseHTTPRequestHandler, code: int, document: dict[str, Any]) -> None:
        content = json.dumps(document).encode()
        handler.send_response(code)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content)


def _selected(found: dict[str, Any], query: dict[str, str]) -> bool:
    wanted = dict(each.split("==") for each in query.get("labelSelector", "").split(",") if each)
    return bool(wanted.items() <= found["metadata"]["labels"].items())


def _status(code: int, reason: str, message: str) -> dict[str, Any]:
    return {"kind": "Status", "code": code, "reason": reason, "message": message}
