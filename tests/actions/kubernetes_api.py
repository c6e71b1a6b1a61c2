"""The part of the Kubernetes API that actions and controller use, as a real HTTP server in this process."""

from __future__ import annotations

import json
import re
import ssl
import threading
from collections.abc import Callable
from copy import deepcopy
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

TOKEN = "token-canary-8c1f"
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_KINDS = {
    "/api/v1": [
        ("Namespace", "namespaces", False),
        ("ConfigMap", "configmaps", True),
        ("Pod", "pods", True),
        ("Service", "services", True),
        ("ServiceAccount", "serviceaccounts", True),
        ("Secret", "secrets", True),
        ("Event", "events", True),
    ],
    "/apis/apps/v1": [("StatefulSet", "statefulsets", True), ("Deployment", "deployments", True)],
    "/apis/policy/v1": [("PodDisruptionBudget", "poddisruptionbudgets", True)],
    "/apis/rbac.authorization.k8s.io/v1": [("Role", "roles", True), ("RoleBinding", "rolebindings", True)],
    "/apis/admissionregistration.k8s.io/v1": [
        ("ValidatingWebhookConfiguration", "validatingwebhookconfigurations", False),
    ],
    "/apis/eventbus.dev/v1alpha1": [
        ("Sensor", "sensors", True),
        ("EventSource", "eventsources", True),
        ("EventBus", "eventbuses", True),
    ],
    "/apis/argoproj.io/v1alpha1": [
        ("Workflow", "workflows", True),
        ("WorkflowTemplate", "workflowtemplates", True),
        ("CronWorkflow", "cronworkflows", True),
        ("ClusterWorkflowTemplate", "clusterworkflowtemplates", False),
    ],
}


class Fault(Exception):
    """An answer that is not a success."""

    def __init__(self, code: int, reason: str, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.headers = headers or {}


class KubernetesApi:
    """Keeps objects by their path. `before` is called with every request and may raise `Fault`, or write itself."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.requests: list[tuple[str, str]] = []
        self.before: Callable[[str, str], None] = lambda _method, _path: None
        self.lose_answer_to: str | None = None
        """The method of requests that are carried out, but not answered."""
        self._versions = 0
        self._lock = threading.RLock()
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 10
            wbufsize = -1  # head and body in one go: apart, each answer would wait 40 ms for an acknowledgement

            def handle_any(self) -> None:
                owner.answer(self)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_any  # noqa: N815 - http.server's names

            def log_message(self, *_: Any) -> None:
                """Keep quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign] # broken handshakes are wanted
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.url = f"{'http' if tls is None else 'https'}://localhost:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def write_kubeconfig(self, file: Path, **cluster: str) -> Path:
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "clusters": [{"name": "test", "cluster": {"server": self.url, **cluster}}],
            "users": [{"name": "test", "user": {"token": TOKEN}}],
        }
        file.write_text(json.dumps(config))
        return file

    # --- HTTP -------------------------------------------------------------------------------------------------------

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        parts = urlsplit(handler.path)
        headers: dict[str, str] = {}
        try:
            _check_token(handler.headers.get("Authorization"))
            with self._lock:
                self.requests.append((handler.command, parts.path))
            self.before(handler.command, parts.path)
            content = json.loads(body) if body else None
            kind = handler.headers.get("Content-Type", "")
            with self._lock:
                code, document = self._serve(handler.command, unquote(parts.path), parse_qs(parts.query), content, kind)
        except Fault as fault:
            code, headers = fault.code, fault.headers
            document = {"kind": "Status", "status": "Failure", "reason": fault.reason, "message": str(fault)}
        if handler.command == self.lose_answer_to:
            handler.close_connection = True
            return
        answer = json.dumps(document).encode()
        handler.send_response(code)
        handler.send_header("Content-Type", "application/json")
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(answer)))
        handler.end_headers()
        handler.wfile.write(answer)

    def _serve(
        self, method: str, path: str, query: dict[str, list[str]], body: Any, kind: str
    ) -> tuple[int, dict[str, Any]]:
        if path in _KINDS:
            resources = [{"kind": k, "name": plural, "namespaced": scoped} for k, plural, scoped in _KINDS[path]]
            return 200, {"kind": "APIResourceList", "resources": resources}
        match method:
            case "POST":
                return 201, self._create(path, body)
            case "PUT":
                return 200, self._replace(path, body)
            case "PATCH":
                return self._patch(path, body, kind, query)
            case "DELETE":
                return 200, self._delete(path)
        return 200, self._get(path, query)

    # --- objects ----------------------------------------------------------------------------------------------------

    def _create(self, path: str, body: Any) -> dict[str, Any]:
        name = body["metadata"].get("name", "")
        if not _NAME.fullmatch(name):
            raise Fault(422, "Invalid", f'metadata.name: Invalid value: "{name}"')
        place = f"{path}/{name}"
        if place in self.objects:
            raise Fault(409, "AlreadyExists", f'"{name}" already exists')
        if "/namespaces/" in path:
            body["metadata"].setdefault("namespace", path.split("/namespaces/")[1].split("/", maxsplit=1)[0])
        body["metadata"]["uid"] = f"uid-{len(self.objects)}"
        return self._store(place, body)

    def _get(self, path: str, query: dict[str, list[str]]) -> dict[str, Any]:
        if path.rpartition("/")[2] in {plural for kinds in _KINDS.values() for _, plural, _ in kinds}:
            return {"kind": "List", "items": self._list(path, query)}
        return self._there(path)

    def _list(self, path: str, query: dict[str, list[str]]) -> list[dict[str, Any]]:
        selector = query.get("labelSelector", [""])[0]
        wanted = dict(pair.split("=", 1) for pair in selector.split(",") if pair)
        root, _, plural = path.rpartition("/")
        everywhere = re.compile(rf"{re.escape(root)}(/namespaces/[^/]+)?/{plural}")
        inside = [each for place, each in self.objects.items() if everywhere.fullmatch(place.rpartition("/")[0])]
        return [each for each in inside if wanted.items() <= each["metadata"].get("labels", {}).items()]

    def _replace(self, path: str, body: Any) -> dict[str, Any]:
        self._there(path)
        version = body["metadata"].get("resourceVersion")
        if version and version != self.objects[path]["metadata"]["resourceVersion"]:
            raise Fault(409, "Conflict", "the object has been modified")
        return self._store(path, body)

    def _patch(self, path: str, body: Any, kind: str, query: dict[str, list[str]]) -> tuple[int, dict[str, Any]]:
        path = path.removesuffix("/status")
        if kind == "application/apply-patch+yaml":
            if not query.get("fieldManager"):
                raise Fault(400, "BadRequest", "fieldManager is required for apply patch")
            if path in self.objects and query.get("force") != ["true"]:
                raise Fault(409, "Conflict", "Apply failed with 1 conflict")
            if path not in self.objects:
                return 201, self._create(path.rpartition("/")[0], body)
        current = deepcopy(self._there(path))
        if kind == "application/json-patch+json":
            if not isinstance(body, list):
                raise Fault(400, "BadRequest", "a JSON patch is a list")
            for operation in body:
                assert operation["op"] in ("add", "replace")
                *steps, last = operation["path"].strip("/").split("/")
                owner = current
                for step in steps:
                    owner = owner[step]
                owner[last] = operation["value"]
            return 200, self._store(path, current)
        if kind == "application/strategic-merge-patch+json" and path.startswith("/apis/argoproj.io"):
            raise Fault(415, "UnsupportedMediaType", "the body of the request was in an unknown format")
        return 200, self._store(path, _merged(current, body))

    def _delete(self, path: str) -> dict[str, Any]:
        self._there(path)
        del self.objects[path]
        return {"kind": "Status", "status": "Success"}

    def _there(self, path: str) -> dict[str, Any]:
        if path not in self.objects:
            raise Fault(404, "NotFound", f"{path} not found")
        return self.objects[path]

    def _store(self, path: str, body: Any) -> dict[str, Any]:
        self._versions += 1
        body["metadata"]["resourceVersion"] = str(self._versions)
        self.objects[path] = body
        return self.objects[path]

    def touch(self, path: str) -> None:
        """Somebody else changes an object."""
        with self._lock:
            body = deepcopy(self.objects[path])
            body.setdefault("data", {})["touched"] = str(self._versions)
            self._store(path, body)


def _check_token(authorization: str | None) -> None:
    if authorization != f"Bearer {TOKEN}":
        raise Fault(401, "Unauthorized", "who are you?")


def _merged(base: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    result = dict(base) if isinstance(base, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merged(result.get(key), value)
    return result
