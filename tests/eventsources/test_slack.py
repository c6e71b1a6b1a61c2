"""Slack, over real HTTP: its three kinds of requests, its question whether somebody is there, and its clock."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest

from eventbus import Bus
from eventsources.base import Identity, Refusal, Request
from eventsources.sources.slack import MOST_SECONDS, SlackEndpoint, SlackSpec
from tests.eventsources.hooks import FORM, JSON, MENTION, SLACK, digest, hook, listening, slack_headers, write_secrets


@pytest.fixture
def bus() -> Iterator[Bus]:
    with Bus.memory() as made:
        made.ensure(2)
        yield made


@pytest.fixture(autouse=True)
def secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EVENTBUS_SECRETS_DIR", str(tmp_path))
    return write_secrets(tmp_path)


def test_what_an_app_has_subscribed_to(bus: Bus) -> None:
    with listening(bus, SLACK, metadata={"team": "a"}) as shop:
        shop.send(MENTION, **SLACK.right())
        [event] = shop.events()
    inner = {"type": "app_mention", "ts": "1.10"}
    assert event.json() == {"type": "app_mention", "Data": inner, "metadata": {"team": "a"}}


def test_slack_asks_whether_somebody_is_there(bus: Bus) -> None:
    body = b'{"token": "t0ken", "type": "url_verification", "challenge": "3eZb"}'
    with listening(bus, SLACK) as shop:
        answer = shop.send(body, **SLACK.right(body))
        assert (answer.status, answer.data) == (200, b"3eZb")
        assert answer.headers["Content-Type"].startswith("text/plain")
        assert shop.send(body, **SLACK.headers).status == 401
        assert shop.events() == []


def test_slash_commands_and_clicks(bus: Bus) -> None:
    command = urlencode({"token": "t0ken", "command": "/deploy", "text": "a b", "trigger_id": "1.2"}).encode()
    click = {"token": "t0ken", "type": "block_actions", "trigger_id": "3.4", "actions": [{"value": "yes"}]}
    clicked = urlencode({"payload": json.dumps(click)}).encode()
    with listening(bus, SLACK) as shop:
        for body in (command, clicked):
            assert shop.send(body, **{**SLACK.right(body), "Content-Type": FORM}).status == 200
        found = {event.id: event.json() for event in shop.events()}
    assert found["1.2"] == {"command": "/deploy", "text": "a b", "trigger_id": "1.2"}
    assert found["3.4"] == {"type": "block_actions", "trigger_id": "3.4", "actions": [{"value": "yes"}]}


def test_what_else_slack_has_to_say_is_no_event(bus: Bus) -> None:
    body = b'{"type": "app_rate_limited"}'
    with listening(bus, SLACK) as shop:
        assert shop.send(body, **SLACK.right(body)).status == 200
        assert shop.events() == []


@pytest.mark.parametrize(
    ("body", "content_type", "status"),
    [
        (MENTION, JSON, 200),
        (MENTION.replace(b"t0ken", b"t0keN"), JSON, 401),
        (MENTION.replace(b'"token":"t0ken",', b""), JSON, 401),
        (MENTION.replace(b'"t0ken"', b"1"), JSON, 401),
        (b"command=/x&token=t0ken", FORM, 200),
        (b"command=/x&token=other&token=t0ken", FORM, 401),
        (b"command=/x", FORM, 401),
        (b'payload={"token":"t0ken"}', FORM, 200),
        (b'payload={"a":1}&token=t0ken', FORM, 401),
        (b'{"type":"url_verification","challenge":"c"}', JSON, 401),
    ],
)
def test_the_verification_token(bus: Bus, body: bytes, content_type: str, status: int) -> None:
    with listening(bus, SLACK, signed=False, token={"name": "hook", "key": "token"}) as shop:
        assert shop.send(body, **{"Content-Type": content_type}).status == status
        assert len(shop.events()) == (status == 200)
        assert all(b"t0ken" not in (event.data or b"") for event in shop.events())


@pytest.mark.parametrize("away", [-3600, -MOST_SECONDS - 10, MOST_SECONDS + 10])
def test_what_was_overheard_cannot_be_repeated_later(bus: Bus, away: int) -> None:
    with listening(bus, SLACK) as shop:
        old = slack_headers(MENTION, at=time.time() + away)
        assert shop.send(MENTION, **SLACK.headers, **old).status == 401
        fresh = {**old, "X-Slack-Request-Timestamp": str(round(time.time()))}
        assert shop.send(MENTION, **SLACK.headers, **fresh).status == 401
        assert shop.events() == []


@pytest.mark.parametrize(
    ("timestamp", "taken"),
    [("1000300", True), ("999700", True), ("1000301", False), ("999699", False)]
    + [(bad, False) for bad in ("", " 1000000", "1e6", "-1000000", "1_000_000", "+1000000", "9" * 5000, "1000000.0")],
)
def test_the_time_of_a_request(timestamp: str, taken: bool) -> None:
    spec = SlackSpec.model_validate(hook(SLACK))
    endpoint = SlackEndpoint(spec, now=lambda: 1_000_000.0)
    signature = "v0=" + digest(b"v0:" + timestamp.encode() + b":" + MENTION)
    headers = [("x-slack-signature", signature), ("x-slack-request-timestamp", timestamp)]
    request = Request("POST", "/orders", "", headers, MENTION)
    if taken:
        assert len(endpoint.events(Identity("shop", "orders", "slack"), request)) == 1
    else:
        with pytest.raises(Refusal, match="away from now"):
            endpoint.events(Identity("shop", "orders", "slack"), request)
