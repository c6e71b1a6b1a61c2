"""The `slack` action: one message per action, by `chat.postMessage`.

Slack's API is one POST and an answer in JSON, and our own HTTP client knows what Slack's does not: whether a request
that failed can have reached anybody. So this needs no further package.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self
from urllib.parse import urlsplit
from uuid import NAMESPACE_URL, uuid5

import msgspec
from pydantic import AfterValidator

from sensors.actions.base import ActionCall, ActionContext, ActionError, SpecModel
from sensors.actions.body import trace_of
from sensors.actions.patched import Patch, PatchableSpec
from sensors.actions.replies import excerpt
from sensors.actions.tls import Tls, TlsSecrets
from sensors.actions.values import reading_secrets
from sensors.secrets import Secret, SecretKeySelector
from sensors.spec.fields import Bool, Text

if TYPE_CHECKING:
    from sensors.actions.http_client import Answer, HttpClient

API = "https://slack.com/api/"
TIMEOUT_SECONDS = 30.0
THREADS_KEPT = 10_000
_MAYBE_POSTED = frozenset(("fatal_error", "internal_error", "service_unavailable", "request_timeout"))
"""Slack's own trouble: it may have posted the message all the same."""
_BUSY = frozenset(("ratelimited", "rate_limited", "message_limit_exceeded"))
_POSTED = re.compile(rb'\{"ok":true,"channel":"\w+","ts":"(?P<ts>[\d.]+)"')
_EMOJI = re.compile(r":[^\s:]+(::[^\s:]+)?:")


# --- manifest -------------------------------------------------------------------------------------------------------


def _valid_list(text: str) -> str:
    if text:
        try:
            msgspec.json.decode(text.encode(), type=list[dict[str, Any]])
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            raise ValueError("must be a list of objects, written as JSON") from None
    return text


def _valid_icon(text: str) -> str:
    if text and not _EMOJI.fullmatch(text) and not _is_address(text):
        raise ValueError("must be an emoji such as `:robot_face:`, or the address of a picture")
    return text


def _is_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.netloc)


JsonList = Annotated[Text, AfterValidator(_valid_list)]


class SlackThread(SpecModel):
    """Which messages form a thread."""

    messageAggregationKey: Text = ""
    """Messages with the same key, in the same channel, become a thread. A replica knows its own threads only."""
    broadcastMessageToChannel: Bool = False
    """Show the messages of a thread in the channel, too."""


class SlackSender(SpecModel):
    """Who seems to have sent the message."""

    username: Text = ""
    """The name that is shown."""
    icon: Annotated[Text, AfterValidator(_valid_icon)] = ""
    """The picture that is shown: an emoji such as `:robot_face:`, or the address of a picture."""


class SlackSpec(PatchableSpec):
    """Post a message in Slack. Its `client_msg_id` is made from the action's id."""

    patchable: ClassVar[tuple[str, ...]] = (
        "channel",
        "message",
        "attachments",
        "blocks",
        "thread.messageAggregationKey",
        "thread.broadcastMessageToChannel",
        "sender.username",
        "sender.icon",
    )
    needed: ClassVar[tuple[tuple[str, ...], ...]] = (("channel",), ("message", "attachments", "blocks"))

    slackToken: SecretKeySelector
    """The secret with the token of the app, which needs the scope `chat:write`."""
    channel: Text = ""
    """The channel: its name, with or without `#`, or its id."""
    message: Text = ""
    """The text. Beside `blocks` it is what notifications show."""
    attachments: JsonList = ""
    """Slack's attachments, a list written as JSON."""
    blocks: JsonList = ""
    """Slack's blocks, a list written as JSON."""
    thread: SlackThread = SlackThread()
    sender: SlackSender = SlackSender()


# --- action ---------------------------------------------------------------------------------------------------------


class _Reply(msgspec.Struct, frozen=True):
    ok: bool
    error: str = ""
    ts: str = ""


class SlackAction:
    """Posts messages. They carry an id made from the action's, by which Slack recognises repetitions."""

    Spec: ClassVar[type[SpecModel]] = SlackSpec

    def __init__(self, spec: SlackSpec, _context: ActionContext, api: str = API) -> None:
        from sensors.actions.http_client import HttpClient  # noqa: PLC0415 - only who calls servers pays for urllib3

        self._patch = Patch(spec)
        self._url = f"{api}chat.postMessage"
        self._client: HttpClient = HttpClient(TIMEOUT_SECONDS, Tls().context(TlsSecrets()))
        self._threads = _Threads()
        spec.slackToken.read()  # a secret that is not there is told now

    def invoke(self, call: ActionCall) -> str:
        spec = self._patch.spec(call)
        with reading_secrets():
            token = spec.slackToken.read()
        message = {**_message(spec), "client_msg_id": str(uuid5(NAMESPACE_URL, call.id))}
        trace = trace_of(call)
        if not spec.thread.messageAggregationKey:
            return self._post(message, token, trace)
        place = (message["channel"], spec.thread.messageAggregationKey)
        with self._threads.of(place) as thread:
            if thread.ts:
                message |= {"thread_ts": thread.ts, "reply_broadcast": spec.thread.broadcastMessageToChannel}
            ts = self._post(message, token, trace)
            thread.ts = thread.ts or ts
            return ts

    def close(self) -> None:
        self._client.close()

    def _post(self, message: dict[str, Any], token: Secret, trace: dict[str, str]) -> str:
        headers = {"Content-Type": "application/json; charset=utf-8", "User-Agent": "kafka-eventbus", **trace}
        if not re.fullmatch(r"[\x21-\x7e]+", token.reveal()):
            raise ActionError("the Slack token has a character that no token has", retriable=False, sent=False)
        headers["Authorization"] = f"Bearer {token.reveal()}"
        answer = self._client.request("POST", self._url, headers, msgspec.json.encode(message))
        if answer.status != 200:
            raise _refused_request(answer, token)
        reply = _reply(answer.body)
        if reply is None:
            said = excerpt(answer.body, (token,))
            raise ActionError(f"this is no answer of Slack: {said}", retriable=False, sent=True)
        if not reply.ok:
            raise _refused_message(excerpt(reply.error, (token,)))
        return reply.ts


def _message(spec: SlackSpec) -> dict[str, Any]:
    icon = spec.sender.icon
    fields = {
        "channel": spec.channel.removeprefix("#"),
        "text": spec.message,
        "attachments": msgspec.json.decode(spec.attachments) if spec.attachments else None,
        "blocks": msgspec.json.decode(spec.blocks) if spec.blocks else None,
        "username": spec.sender.username,
        "icon_emoji" if icon.startswith(":") else "icon_url": icon,
    }
    return {name: value for name, value in fields.items() if value}


def _reply(body: bytes) -> _Reply | None:
    """Slack repeats the message, and of a very long one we do not read all, but its beginning tells enough."""
    try:
        return msgspec.json.decode(body, type=_Reply)
    except msgspec.DecodeError:
        begin = _POSTED.match(body)
        return None if begin is None else _Reply(ok=True, ts=begin["ts"].decode())


def _refused_request(answer: Answer, token: Secret) -> ActionError:
    """429 comes before anything was done."""
    limited = answer.status == 429
    after = answer.retry_after or ""
    said = excerpt(answer.body, (token,))
    return ActionError(
        f"Slack answered {answer.status}{f': {said}' if said else ''}",
        retriable=limited or answer.status >= 500,
        sent=not limited,
        status=str(answer.status),
        retry_after=float(after) if limited and re.fullmatch(r"\d{1,9}", after) else None,
    )


def _refused_message(error: str) -> ActionError:
    return ActionError(
        f"Slack answered `{error}`",
        retriable=error in _MAYBE_POSTED | _BUSY,
        sent=error in _MAYBE_POSTED,
        status=error,
    )


class _Thread:
    """The first message of a thread, once it is posted; two at a time would begin two threads."""

    def __init__(self) -> None:
        self.ts = ""
        self._lock = Lock()

    def __enter__(self) -> Self:
        self._lock.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class _Threads:
    """Threads by channel and key. The one that was used longest ago is forgotten first."""

    def __init__(self) -> None:
        self._threads: OrderedDict[tuple[str, str], _Thread] = OrderedDict()
        self._lock = Lock()

    def of(self, place: tuple[str, str]) -> _Thread:
        with self._lock:
            thread = self._threads.setdefault(place, _Thread())
            self._threads.move_to_end(place)
            if len(self._threads) > THREADS_KEPT:
                self._threads.popitem(last=False)
            return thread
