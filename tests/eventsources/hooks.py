"""Services that send signed requests: what each of them sends, and how it proves that it is them."""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from eventbus import Bus
from tests.eventsources.serving import Shop, manifest, serving

KEY = "s3cret"
FORM = "application/x-www-form-urlencoded"
JSON = "application/json"

Headers = Mapping[str, str]


def digest(message: bytes, key: str = KEY, algorithm: Any = hashlib.sha256) -> str:
    return hmac.new(key.encode(), message, algorithm).hexdigest()


def slack_headers(body: bytes, key: str = KEY, at: float | None = None) -> dict[str, str]:
    timestamp = str(round(time.time() if at is None else at))
    signature = "v0=" + digest(b"v0:" + timestamp.encode() + b":" + body, key)
    return {"X-Slack-Signature": signature, "X-Slack-Request-Timestamp": timestamp}


class Service(NamedTuple):
    """Who sends, and how they prove it."""

    kind: str
    secret: str
    """The field of the manifest."""
    proof: str
    """The header."""
    prove: Callable[[bytes, str], Headers]
    body: bytes
    headers: Headers
    """Those beside the proof."""
    id: str
    accepted: int = 202
    signs: bool = True
    """Whether the proof fits only one body."""

    def right(self, body: bytes | None = None) -> dict[str, str]:
        return {**self.headers, **self.prove(self.body if body is None else body, KEY)}


PUSH = b'{ "ref": "refs/heads/main", "size": 1.10 }'
MENTION = b'{"token":"t0ken","type":"event_callback","event_id":"Ev1","event":{"type":"app_mention","ts":"1.10"}}'
GITHUB = Service(
    "github",
    "webhookSecret",
    "X-Hub-Signature-256",
    lambda body, key: {"X-Hub-Signature-256": "sha256=" + digest(body, key)},
    PUSH,
    {"Content-Type": JSON, "X-GitHub-Event": "push", "X-GitHub-Delivery": "d-1"},
    "d-1",
)
GITLAB = Service(
    "gitlab",
    "secretToken",
    "X-Gitlab-Token",
    lambda _, key: {"X-Gitlab-Token": key},
    PUSH,
    {
        "Content-Type": JSON,
        "X-Gitlab-Event": "Push Hook",
        "Idempotency-Key": "d-2",
        "X-Gitlab-Webhook-UUID": "w",
        "X-Gitlab-Event-UUID": "e",
    },
    "d-2",
    signs=False,
)
BITBUCKET = Service(
    "bitbucket",
    "webhookSecret",
    "X-Hub-Signature",
    lambda body, key: {"X-Hub-Signature": "sha256=" + digest(body, key)},
    PUSH,
    {"Content-Type": JSON, "X-Event-Key": "repo:push", "X-Request-UUID": "d-3", "X-Request-Id": "ingress"},
    "d-3",
)
SLACK = Service(
    "slack",
    "signingSecret",
    "X-Slack-Signature",
    slack_headers,
    MENTION,
    {"Content-Type": JSON},
    "Ev1",
    accepted=200,
)
FORGES = [GITHUB, GITLAB, BITBUCKET]
SERVICES = [*FORGES, SLACK]
SIGNING = [each for each in SERVICES if each.signs]


def write_secrets(directory: Path) -> Path:
    """The file with the secret that requests are proven with, which a test may change."""
    (directory / "hook").mkdir()
    (directory / "hook" / "token").write_text("t0ken")
    file = directory / "hook" / "key"
    file.write_text(KEY)
    return file


def hook(service: Service, *, signed: bool = True, **spec: Any) -> dict[str, Any]:
    proof = {service.secret: {"name": "hook", "key": "key"}} if signed else {}
    return {"webhook": {"endpoint": "/orders", "port": 0}, **proof, **spec}


@contextmanager
def listening(bus: Bus, service: Service, *, signed: bool = True, **spec: Any) -> Iterator[Shop]:
    with serving(bus, manifest(service.kind, orders=hook(service, signed=signed, **spec))) as shop:
        yield shop
