"""What happens at Slack: events that an app has subscribed to, slash commands, and what people click on."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import uuid4

import msgspec

from eventbus.events import Event
from eventsources.base import Identity, Refusal, Reply, Request, Unwanted
from eventsources.receiver.auth import SignatureSpec, check_signature, read_secret, same
from eventsources.receiver.content import FORM, checked_object, form_of, media_type_of
from eventsources.receiver.hooks import HookSpec
from eventsources.receiver.listening import Listener
from sensors.secrets import SecretKeySelector

MOST_SECONDS = 300
"""How far a request's time may be from ours: what is older may be somebody's repetition of what they overheard."""
_TIMESTAMP = re.compile(r"[0-9]{1,12}")


class SlackSpec(HookSpec):
    """Requests of Slack's, signed with `signingSecret`."""

    proofs = ("signingSecret", "token")

    signingSecret: SecretKeySelector | None = None
    token: SecretKeySelector | None = None
    """Slack's old way to prove who sends: the verification token, which every request has in its body."""


class SlackEndpoint(Listener):
    """Answers 200, because Slack shows its users an error for anything else."""

    accepted = 200

    def __init__(self, spec: SlackSpec, now: Callable[[], float] = time.time) -> None:
        super().__init__(spec.webhook)
        self._spec = spec
        self._now = now
        secret = spec.signingSecret
        self._signature = (
            None if secret is None else SignatureSpec(secret=secret, header="X-Slack-Signature", prefix="v0=")
        )

    def authorize(self, request: Request) -> None:
        if self._signature is None:
            return
        timestamp = request.header("x-slack-request-timestamp") or ""
        if not _TIMESTAMP.fullmatch(timestamp) or abs(self._now() - int(timestamp)) > MOST_SECONDS:
            raise Refusal(401, f"`X-Slack-Request-Timestamp` is missing or more than {MOST_SECONDS} s away from now")
        check_signature(request, self._signature, b"v0:%s:%s" % (timestamp.encode(), request.body))

    def understand(self, identity: Identity, request: Request) -> Sequence[Event]:
        if media_type_of(request) != FORM:
            return [self._subscribed(identity, self._proven(checked_object(request.body)))]
        form = form_of(request)
        if "payload" in form:
            data = self._proven(checked_object(form["payload"].encode()))
        elif "command" in form:
            data = self._proven(form)
        else:
            raise Refusal(400, "the form has neither `payload` nor `command`")
        return [self._event(identity, _text(data, "trigger_id"), data)]

    def _proven(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Without the token, which is nobody else's business. Raises `Refusal`."""
        if self._spec.token is not None and not same(_text(fields, "token"), read_secret(self._spec.token).reveal()):
            raise Refusal(401, "the `token` in the body is missing or wrong")
        return {name: value for name, value in fields.items() if name != "token"}

    def _subscribed(self, identity: Identity, fields: Mapping[str, Any]) -> Event:
        match _text(fields, "type"):
            case "url_verification":
                raise Reply(_text(fields, "challenge"))
            case "event_callback":
                inner = checked_object(bytes(fields.get("event", b"")))
                data = {"type": _text(inner, "type"), "Data": inner}
                return self._event(identity, _text(fields, "event_id"), data)
            case "":
                raise Refusal(400, "the body has no `type`: Slack does not send this")
            case _:
                raise Unwanted

    def _event(self, identity: Identity, own: str, data: Mapping[str, Any]) -> Event:
        return identity.event(own or uuid4().hex, self._spec.described(data))


def _text(fields: Mapping[str, Any], name: str) -> str:
    """Of a form or of a JSON object; empty where it is no text."""
    value = fields.get(name, "")
    try:
        return msgspec.json.decode(value, type=str) if isinstance(value, msgspec.Raw) else str(value)
    except msgspec.DecodeError:
        return ""
