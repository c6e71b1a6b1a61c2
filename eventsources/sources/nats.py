"""Events from subjects of NATS: at most once, because nobody can acknowledge anything there.

What is published while nobody listens is gone, and so is what was on its way when a connection broke or a delivery
failed. A message with a `Nats-Msg-Id` gives its event an id that is the same when it comes again; the ids of others
are random.

As with argo-events, the body is in base64; with `jsonBody` it is the JSON itself.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit
from uuid import uuid4

from pydantic import AfterValidator

from eventsources.base import Context, SourceSpec, Stop, Told, Unusable
from eventsources.sources.messages import NOT_JSON, as_body
from sensors.actions.nats import NatsAuth, NatsServers
from sensors.actions.tls import Tls
from sensors.spec.fields import Bool, Text
from sensors.spec.policy import Backoff

if TYPE_CHECKING:
    from nats.aio.msg import Msg

    from eventsources.sources.nats_listener import NatsListener

_WORD = r'[^\s.*>"\\\x00-\x20\x7f]+'
_SUBJECT = re.compile(rf"(({_WORD}|\*)\.)*({_WORD}|\*|>)")


def _subject(text: str) -> str:
    if not _SUBJECT.fullmatch(text):
        raise ValueError("must be words or `*` with `.` between them, and may end with `>`")
    return text


def _queue(text: str) -> str:
    if any(character.isspace() for character in text):
        raise ValueError("must not contain white space")
    return text


class NatsSourceSpec(SourceSpec):
    """Messages of a subject."""

    url: NatsServers
    """The servers, `nats://host:port`, separated by commas; the first that answers is used."""
    subject: Annotated[Text, AfterValidator(_subject)]
    """What to listen to; `*` is any word, and `>` at the end any words."""
    queue: Annotated[Text, AfterValidator(_queue)] = ""
    """Who listens with the same queue shares the messages."""
    jsonBody: Bool = False
    """Messages are JSON."""
    connectionBackoff: Backoff | None = None
    """argo-events' pauses between attempts to connect; here they are the same for all sources, and it is not used."""
    auth: NatsAuth | None = None
    tls: Tls | None = None


class NatsSource:
    """Listens, and delivers."""

    def __init__(self, spec: NatsSourceSpec) -> None:
        self._spec = spec

    def run(self, context: Context, stop: Stop) -> None:
        self._listener(str(context.identity)).listen(lambda messages: self._deliver(context, messages), stop)

    def _listener(self, name: str) -> NatsListener:
        from eventsources.sources.nats_listener import NatsListener  # noqa: PLC0415 - an optional package
        from sensors.actions.nats_client import NatsConnector  # noqa: PLC0415 - an optional package

        spec = self._spec
        servers = [server.strip() for server in spec.url.split(",")]
        tls = spec.tls
        if tls is None and any(urlsplit(server).scheme == "tls" for server in servers):
            tls = Tls()
        context = None if tls is None else tls.context(tls.secrets())
        auth = {} if spec.auth is None else spec.auth.secrets()
        return NatsListener(NatsConnector(servers, name, context, auth), spec.subject, spec.queue)

    def _deliver(self, context: Context, messages: Sequence[Msg]) -> None:
        context.deliver([self._told(context, message) for message in messages])

    def _told(self, context: Context, message: Msg) -> Told:
        headers = message.headers or {}
        own = headers.get("Nats-Msg-Id")
        id = f"{message.subject} {own}" if own else uuid4().hex
        body = as_body(message.data, json=self._spec.jsonBody)
        if body is None:
            return Unusable(id, NOT_JSON, message.data)
        data = {
            "subject": message.subject,
            "headers": {name: [value] for name, value in headers.items()},
            "body": body,
        }
        return context.identity.event(id, self._spec.described(data))
