"""Servers that behave as the APIs of GitHub, GitLab and Bitbucket are documented to, as far as hooks go.

They keep hooks, never tell a secret, give lists in small pages, and can be told to misbehave.
"""

from __future__ import annotations

import json
import threading
from abc import ABC, abstractmethod
from base64 import b64encode, urlsafe_b64decode
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any, ClassVar
from urllib.parse import parse_qs, unquote, urlsplit

from tests.actions.conftest import Reply, Request

TOKEN = "t0p-s3cret"


def reply(status: int, content: Any = None, **headers: str) -> Reply:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(status, named, b"" if content is None else json.dumps(content).encode())


class ForgeServer(ABC):
    """Has hooks in places, which are there from the beginning."""

    prefix: ClassVar[str]
    """Of all paths."""
    elsewhere: ClassVar[str] = ""
    """What a page says instead of our address, as behind a proxy."""
    page_size = 2

    def __init__(self, *places: str) -> None:
        self.hooks: dict[str, list[dict[str, Any]]] = {place: [] for place in places}
        self.requests: list[Request] = []
        self.faults: list[Reply] = []
        """What the next requests get, one each."""
        self.gate = threading.Event()
        """Closed, it keeps everybody waiting."""
        self.gate.set()
        self.barrier: threading.Barrier | None = None
        """Lists are answered to several at once, so that none of them sees what another does about it."""
        self._ids = count(1)
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        serve = {"poll_interval": 0.02}
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs=serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self.gate.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def asked(self, *methods: str) -> list[str]:
        return [f"{each.method} {each.path}" for each in self.requests if each.method in methods]

    def add(self, place: str, **hook: Any) -> dict[str, Any]:
        """Somebody else makes a hook."""
        made = self.made(next(self._ids), hook)
        self.hooks[place].append(made)
        return made

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 10

            def handle_any(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                made = owner._reply(Request(self.command, self.path, dict(self.headers), body))
                self.send_response(made.status)
                for name, value in made.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(made.body)))
                self.end_headers()
                self.wfile.write(made.body)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_any  # noqa: N815 - http.server's names

            def log_message(self, *_: Any) -> None:
                """Keep quiet."""

        return Handler

    def _reply(self, request: Request) -> Reply:
        self.gate.wait(20)
        with self._lock:
            self.requests.append(request)
            if self.faults:
                return self.faults.pop(0)
            parts = urlsplit(request.path)
            assert parts.path.startswith(self.prefix), parts.path
            answer = self.answer(request, parts.path.removeprefix(self.prefix), parts.query)
        if self.barrier is not None and request.method == "GET":
            with suppress(threading.BrokenBarrierError):
                self.barrier.wait(10)
        return answer

    def answer(self, request: Request, path: str, query: str) -> Reply:
        if not self.lets_in(request):
            return reply(401, {"message": "401 Unauthorized"})
        place, _, id = path.partition("/hooks")
        hooks = self.hooks.get(unquote(place))
        if hooks is None:
            return reply(404, {"message": "Not Found"})
        if id:
            return self._about_one(request, hooks, unquote(id.removeprefix("/")))
        if request.method == "GET":
            shown = [self.shown(each) for each in hooks]
            return self.page(shown, path, int(parse_qs(query).get("page", ["1"])[0]))
        content = json.loads(request.body)
        complaint = self.complaint(hooks, content)
        if complaint is not None:
            return complaint
        hooks.append(self.made(next(self._ids), content))
        return reply(201, self.shown(hooks[-1]))

    def _about_one(self, request: Request, hooks: list[dict[str, Any]], id: str) -> Reply:
        hook = next((each for each in hooks if str(self.id(each)) == id), None)
        if hook is None:
            return reply(404, {"message": "Not Found"})
        if request.method == "DELETE":
            hooks.remove(hook)
            return reply(204)
        assert request.method == self.updating
        content = json.loads(request.body)
        complaint = self.complaint([each for each in hooks if each is not hook], content)
        if complaint is not None:
            return complaint
        self.change(hook, content)
        return reply(200, self.shown(hook))

    def page(self, entries: list[Any], path: str, number: int) -> Reply:
        begin = (number - 1) * self.page_size
        headers = {}
        if len(entries) > begin + self.page_size:
            here = f"{self.elsewhere or self.url}{self.prefix}{path}?page="
            headers["Link"] = f'<{here}{number + 1}>; rel="next", <{here}99>; rel="last"'
        return reply(200, entries[begin : begin + self.page_size], **headers)

    updating: ClassVar[str]

    @abstractmethod
    def lets_in(self, request: Request) -> bool: ...

    @abstractmethod
    def made(self, number: int, content: Mapping[str, Any]) -> dict[str, Any]: ...

    @abstractmethod
    def change(self, hook: dict[str, Any], content: Mapping[str, Any]) -> None: ...

    def shown(self, hook: Mapping[str, Any]) -> dict[str, Any]:
        """Without its secret."""
        return {name: value for name, value in hook.items() if name not in ("secret", "token")}

    def complaint(self, others: list[dict[str, Any]], content: Mapping[str, Any]) -> Reply | None:
        """Why a hook cannot be made or changed so."""
        return None

    def id(self, hook: Mapping[str, Any]) -> Any:
        return hook["id"]


class GithubServer(ForgeServer):
    """Hides secrets behind asterisks; a change of the configuration replaces all of it."""

    prefix = "/api/v3"
    updating = "PATCH"

    def __init__(self, *places: str) -> None:
        super().__init__(*places)
        self.tokens = {TOKEN}
        self.public_key: Any = None
        self.expires = datetime(2100, 1, 1, tzinfo=UTC)
        self.granted: list[Any] = []
        """What tokens of the App were asked for."""

    def answer(self, request: Request, path: str, query: str) -> Reply:
        if path == "/app/installations/7/access_tokens":
            return self._grant(request)
        return super().answer(request, path, query)

    def _grant(self, request: Request) -> Reply:
        from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
        from cryptography.hazmat.primitives.hashes import SHA256

        head, claim, signature = (
            urlsafe_b64decode(f"{part}==") for part in request.headers["Authorization"][len("Bearer ") :].split(".")
        )
        signed = request.headers["Authorization"][len("Bearer ") :].rpartition(".")[0].encode()
        self.public_key.verify(signature, signed, PKCS1v15(), SHA256())
        claims = json.loads(claim)
        assert json.loads(head) == {"alg": "RS256", "typ": "JWT"}
        assert claims["iss"] == "5"
        assert claims["exp"] - claims["iat"] <= 600
        self.granted.append(json.loads(request.body))
        token = f"ghs_{len(self.granted)}"
        self.tokens = {token}
        return reply(201, {"token": token, "expires_at": self.expires.isoformat().replace("+00:00", "Z")})

    def lets_in(self, request: Request) -> bool:
        return request.headers.get("Authorization") in {f"Bearer {token}" for token in self.tokens}

    def made(self, number: int, content: Mapping[str, Any]) -> dict[str, Any]:
        hook: dict[str, Any] = {"id": number, "name": "web", "active": True, "events": ["push"]}
        self.change(hook, content)
        return hook

    def change(self, hook: dict[str, Any], content: Mapping[str, Any]) -> None:
        hook.update({name: value for name, value in content.items() if name in ("active", "events")})
        if "config" in content:
            hook["config"] = {"content_type": "form", "insecure_ssl": "0", **content["config"]}

    def shown(self, hook: Mapping[str, Any]) -> dict[str, Any]:
        config = {name: "********" if name == "secret" else value for name, value in hook["config"].items()}
        return {**hook, "config": config}

    def complaint(self, others: list[dict[str, Any]], content: Mapping[str, Any]) -> Reply | None:
        for each in others:
            both = {*each["events"]} & {*content["events"]} or "*" in (*each["events"], *content["events"])
            if each["config"]["url"] == content["config"]["url"] and both:
                errors = [{"resource": "Hook", "code": "custom", "message": "Hook already exists on this repository"}]
                return reply(422, {"message": "Validation Failed", "errors": errors})
        return None


class GitlabServer(ForgeServer):
    """Has a switch for every type of event, ignores those that it does not know, and shows no secret at all."""

    prefix = "/api/v4"
    updating = "PUT"
    of_groups = ("subgroup_events", "member_events")
    switches = (
        *("push_events", "tag_push_events", "issues_events", "confidential_issues_events", "merge_requests_events"),
        *("note_events", "confidential_note_events", "job_events", "pipeline_events", "wiki_page_events"),
        *("deployment_events", "feature_flag_events", "releases_events", "milestone_events", "emoji_events"),
        *("resource_access_token_events", *of_groups),
    )

    def lets_in(self, request: Request) -> bool:
        return request.headers.get("PRIVATE-TOKEN") == TOKEN

    def made(self, number: int, content: Mapping[str, Any]) -> dict[str, Any]:
        off = dict.fromkeys(self.switches, False)
        hook = {"id": number, "alert_status": "executable", "enable_ssl_verification": True, **off, "push_events": True}
        self.change(hook, content)
        return hook

    def change(self, hook: dict[str, Any], content: Mapping[str, Any]) -> None:
        known = (*self.switches, "url", "token", "enable_ssl_verification")
        hook.update({name: value for name, value in content.items() if name in known})


class BitbucketServer(ForgeServer):
    """Has lists in pages that say what comes next, and knows which events there are."""

    prefix = "/2.0"
    updating = "PUT"
    types = ("repo:push", "repo:fork", "pullrequest:created")

    def answer(self, request: Request, path: str, query: str) -> Reply:
        if path == "/hook_events/repository":
            entries = [{"event": name, "label": name} for name in self.types]
            return self.page(entries, path, int(parse_qs(query).get("page", ["1"])[0]))
        return super().answer(request, path, query)

    def lets_in(self, request: Request) -> bool:
        basic = b64encode(f"me:{TOKEN}".encode()).decode()
        return request.headers.get("Authorization") in (f"Basic {basic}", f"Bearer {TOKEN}")

    def made(self, number: int, content: Mapping[str, Any]) -> dict[str, Any]:
        created = datetime(2026, 1, 1, minute=number, tzinfo=UTC).isoformat()
        hook: dict[str, Any] = {"uuid": f"{{{1000 - number}}}", "created_at": created, "active": False}
        self.change(hook, content)
        return hook

    def change(self, hook: dict[str, Any], content: Mapping[str, Any]) -> None:
        known = ("url", "description", "active", "events", "secret")
        hook.update({name: value for name, value in content.items() if name in known})
        hook["secret_set"] = "secret" in hook

    def complaint(self, others: list[dict[str, Any]], content: Mapping[str, Any]) -> Reply | None:
        if not content.get("events") or not {*content["events"]} <= {*self.types}:
            return reply(400, {"type": "error", "error": {"message": "events: invalid"}})
        return None

    def page(self, entries: list[Any], path: str, number: int) -> Reply:
        begin = (number - 1) * self.page_size
        content: dict[str, Any] = {"page": number, "values": entries[begin : begin + self.page_size]}
        if len(entries) > begin + self.page_size:
            content["next"] = f"{self.elsewhere or self.url}{self.prefix}{path}?page={number + 1}"
        return reply(200, content)

    def id(self, hook: Mapping[str, Any]) -> Any:
        return hook["uuid"]
