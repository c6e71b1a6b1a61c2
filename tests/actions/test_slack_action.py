"""The `slack` action against a real HTTP server that answers like Slack."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import pytest
from pydantic import ValidationError

from eventbus.errors import ConfigError
from eventbus.events import Event
from sensors.actions import make_action
from sensors.actions import slack as slack_action
from sensors.actions.http_client import MAX_BODY
from sensors.actions.slack import SlackAction, SlackSpec
from tests.actions.conftest import (
    CONTEXT,
    HttpServer,
    RawServer,
    Reply,
    failure_of,
    make_call,
    parameter,
    read_request,
    unused_port,
)

CANARY = "xoxb-canary-6f1d"
POSTED = b'{"ok":true,"channel":"C123","ts":"1503435956.000247","message":{"text":"hi"}}'
StartRaw = Callable[[Callable[[socket.socket], None]], RawServer]
MakeSecret = Callable[..., dict[str, str]]
MakeSlack = Callable[..., SlackAction]


@pytest.fixture
def slack(secret: MakeSecret, http_server: HttpServer) -> Iterator[MakeSlack]:
    """Makes actions and closes them."""
    http_server.reply = Reply(body=POSTED)
    made: list[SlackAction] = []

    def make(api: str = "", **fields: Any) -> SlackAction:
        spec = {"slackToken": secret(CANARY), "channel": "#general", "message": "hi", **fields}
        made.append(SlackAction(SlackSpec.model_validate(spec), CONTEXT, api or f"{http_server.url}/api/"))
        return made[-1]

    yield make
    for action in made:
        action.close()


def _messages(server: HttpServer) -> list[dict[str, Any]]:
    return [json.loads(request.body) for request in server.requests]


# --- what is sent ---------------------------------------------------------------------------------------------------


def test_the_registry_makes_slack_actions(secret: MakeSecret) -> None:
    spec = SlackSpec.model_validate({"slackToken": secret(CANARY), "channel": "c", "message": "m"})
    action = make_action("slack", spec, CONTEXT)
    assert isinstance(action, SlackAction)
    action.close()


def test_a_message_is_posted(slack: MakeSlack, http_server: HttpServer) -> None:
    assert slack().invoke(make_call()) == "1503435956.000247"
    (request,) = http_server.requests
    assert (request.method, request.path) == ("POST", "/hook/api/chat.postMessage")
    assert request.headers["Authorization"] == f"Bearer {CANARY}"
    assert request.headers["Content-Type"] == "application/json; charset=utf-8"
    message = json.loads(request.body)
    assert UUID(message.pop("client_msg_id")).version == 5
    assert message == {"channel": "general", "text": "hi"}


def test_everything_that_can_be_said_is_said(slack: MakeSlack, http_server: HttpServer) -> None:
    slack(
        message="",
        channel="C123",
        attachments='[{"color": "#f00"}]',
        blocks='[{"type": "divider"}]',
        sender={"username": "Bus", "icon": ":bus:"},
    ).invoke(make_call())
    slack(sender={"icon": "https://example.org/bus.png"}).invoke(make_call())
    first, second = _messages(http_server)
    del first["client_msg_id"], second["client_msg_id"]
    assert first == {
        "channel": "C123",
        "attachments": [{"color": "#f00"}],
        "blocks": [{"type": "divider"}],
        "username": "Bus",
        "icon_emoji": ":bus:",
    }
    assert second == {"channel": "general", "text": "hi", "icon_url": "https://example.org/bus.png"}


def test_every_attempt_has_the_same_id_and_every_action_another(slack: MakeSlack, http_server: HttpServer) -> None:
    action = slack()
    for call in (make_call(attempt=1), make_call(attempt=2), make_call(id="action-2")):
        action.invoke(call)
    first, second, third = (message["client_msg_id"] for message in _messages(http_server))
    assert first == second != third


def test_parameters_are_applied(slack: MakeSlack, http_server: HttpServer) -> None:
    template = {"dependencyName": "paid", "dataTemplate": "{{.Input.who}} paid {{.Input.total}}"}
    parameters = [
        parameter("channel", "who"),
        {"src": template, "dest": "message"},
        parameter("thread.messageAggregationKey"),
        parameter("sender.username", "who"),
    ]
    event = Event.new("shop", "paid", {"total": 12, "who": "ann"})
    slack(channel="", message="", parameters=parameters).invoke(make_call(events={"paid": event}))
    (message,) = _messages(http_server)
    assert (message["channel"], message["text"], message["username"]) == ("ann", "ann paid 12", "ann")


@pytest.mark.parametrize(
    ("dest", "value", "reason"),
    [
        ("channel", "", "`channel` would be empty"),
        ("message", "", "`message` and `attachments` and `blocks` would be empty"),
        ("blocks", '{"type": "divider"}', "`blocks` must be a list of objects, written as JSON"),
        ("sender.icon", "javascript:alert(1)", "`icon` must be an emoji"),
    ],
)
def test_parameters_that_make_no_message_send_none(
    slack: MakeSlack, http_server: HttpServer, dest: str, value: str, reason: str
) -> None:
    error = failure_of(
        slack(parameters=[parameter(dest, "x")]), events={"paid": Event.new("shop", "paid", {"x": value})}
    )
    assert reason in str(error)
    assert (error.retriable, error.sent) == (False, False)
    assert http_server.requests == []


# --- threads --------------------------------------------------------------------------------------------------------


def test_messages_with_one_key_become_a_thread(slack: MakeSlack, http_server: HttpServer) -> None:
    action = slack(thread={"messageAggregationKey": "order", "broadcastMessageToChannel": True})
    for number in range(3):
        http_server.reply = Reply(body=POSTED.replace(b"000247", b"00024%d" % number))
        action.invoke(make_call())
    first, second, third = _messages(http_server)
    assert "thread_ts" not in first
    assert {each["thread_ts"] for each in (second, third)} == {"1503435956.000240"}
    assert second["reply_broadcast"] is True


def test_threads_are_told_apart_by_key_and_channel(slack: MakeSlack, http_server: HttpServer) -> None:
    keys = [parameter("channel", "c"), parameter("thread.messageAggregationKey", "k")]
    action = slack(parameters=keys)
    for channel, key in (("a", "1"), ("a", "2"), ("b", "1"), ("a", "1")):
        action.invoke(make_call(events={"paid": Event.new("shop", "paid", {"c": channel, "k": key})}))
    assert ["thread_ts" in message for message in _messages(http_server)] == [False, False, False, True]


def test_a_message_that_was_not_posted_begins_no_thread(slack: MakeSlack, http_server: HttpServer) -> None:
    action = slack(thread={"messageAggregationKey": "order"})
    http_server.reply = Reply(body=b'{"ok":false,"error":"ratelimited"}')
    failure_of(action)
    http_server.reply = Reply(body=POSTED)
    action.invoke(make_call())
    assert "thread_ts" not in _messages(http_server)[1]


def test_messages_at_the_same_time_begin_one_thread(slack: MakeSlack, http_server: HttpServer) -> None:
    action = slack(thread={"messageAggregationKey": "order"})
    with ThreadPoolExecutor(8) as workers:
        list(workers.map(lambda number: action.invoke(make_call(id=f"a-{number}")), range(24)))
    assert sum("thread_ts" not in message for message in _messages(http_server)) == 1


def test_the_threads_that_are_remembered_are_bounded(
    slack: MakeSlack, http_server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slack_action, "THREADS_KEPT", 2)
    action = slack(parameters=[parameter("thread.messageAggregationKey", "k")])
    for key in ("1", "2", "3", "3", "1"):
        action.invoke(make_call(events={"paid": Event.new("shop", "paid", {"k": key})}))
    assert ["thread_ts" in message for message in _messages(http_server)] == [False, False, False, True, False]


# --- what the answer means ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "retriable", "sent"),
    [
        ("channel_not_found", False, False),
        ("invalid_auth", False, False),
        ("ratelimited", True, False),
        ("internal_error", True, True),
        ("fatal_error", True, True),
    ],
)
def test_slack_says_no(slack: MakeSlack, http_server: HttpServer, error: str, retriable: bool, sent: bool) -> None:
    http_server.reply = Reply(body=json.dumps({"ok": False, "error": error}).encode())
    failure = failure_of(slack())
    assert str(failure) == f"Slack answered `{error}`"
    assert (failure.retriable, failure.sent, failure.status) == (retriable, sent, error)


def test_too_many_messages_are_put_off_and_were_not_posted(slack: MakeSlack, http_server: HttpServer) -> None:
    http_server.reply = Reply(429, {"Retry-After": "7"})
    error = failure_of(slack())
    assert (str(error), error.retriable, error.sent, error.retry_after) == ("Slack answered 429", True, False, 7)


@pytest.mark.parametrize(("status", "retriable"), [(503, True), (302, False), (404, False)])
def test_an_answer_that_is_not_slacks(slack: MakeSlack, http_server: HttpServer, status: int, retriable: bool) -> None:
    http_server.reply = Reply(status, body=b"<b>no</b>")
    error = failure_of(slack())
    assert str(error) == f"Slack answered {status}: <b>no</b>"
    assert (error.retriable, error.sent) == (retriable, True)


def test_an_answer_that_nobody_understands_is_not_asked_for_again(slack: MakeSlack, http_server: HttpServer) -> None:
    http_server.reply = Reply(body=f"you sent {CANARY}".encode())
    error = failure_of(slack())
    assert str(error) == "this is no answer of Slack: you sent <secret>"
    assert (error.retriable, error.sent) == (False, True)


def test_an_answer_that_is_too_long_is_understood(slack: MakeSlack, http_server: HttpServer) -> None:
    http_server.reply = Reply(body=POSTED.replace(b"hi", b"x" * MAX_BODY))
    assert slack().invoke(make_call()) == "1503435956.000247"


def test_a_server_that_is_down_got_nothing(slack: MakeSlack) -> None:
    error = failure_of(slack(f"http://127.0.0.1:{unused_port()}/"))
    assert str(error) == "no connection: Connection refused"
    assert (error.retriable, error.sent) == (True, False)


def test_a_server_that_does_not_answer_may_have_posted_it(
    slack: MakeSlack, raw_server: StartRaw, monkeypatch: pytest.MonkeyPatch
) -> None:
    def swallow(connection: socket.socket) -> None:
        read_request(connection)
        connection.recv(1)

    monkeypatch.setattr(slack_action, "TIMEOUT_SECONDS", 0.3)
    error = failure_of(slack(f"{raw_server(swallow).url}/"))
    assert str(error) == "no complete answer within 0.3 s"
    assert (error.retriable, error.sent) == (True, True)


# --- secrets --------------------------------------------------------------------------------------------------------


def test_a_secret_that_is_not_there_is_told_at_once(slack: MakeSlack, secret: MakeSecret) -> None:
    with pytest.raises(ConfigError, match="the key `gone` of the secret `vault` is not there"):
        slack(slackToken={**secret("x"), "key": "gone"})


def test_a_changed_token_is_used_at_once(slack: MakeSlack, secret: MakeSecret, http_server: HttpServer) -> None:
    action = slack()
    secret("xoxb-new")
    action.invoke(make_call())
    assert http_server.requests[0].headers["Authorization"] == "Bearer xoxb-new"


def test_a_token_that_cannot_be_one_is_not_shown(slack: MakeSlack, secret: MakeSecret) -> None:
    action = slack()
    secret("canary\nX-Evil: 1")
    error = failure_of(action)
    assert "canary" not in str(error)
    assert (error.retriable, error.sent) == (False, False)


# --- mistakes that the manifest's reader finds ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"blocks": "{}"}, "must be a list of objects, written as JSON"),
        ({"attachments": "[1]"}, "must be a list of objects, written as JSON"),
        ({"sender": {"icon": "bus"}}, "must be an emoji such as `:robot_face:`"),
        ({"parameters": [parameter("slackToken.key")]}, "`dest` cannot be `slackToken.key`"),
    ],
)
def test_settings_that_cannot_work_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        SlackSpec.model_validate({"slackToken": {"name": "a", "key": "b"}, **fields})
