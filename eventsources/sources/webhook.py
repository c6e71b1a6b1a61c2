"""Events over HTTP: CloudEvents as they are, and anything else as what was sent, headers and all."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Sequence
from typing import Annotated, Any
from urllib.parse import parse_qs
from uuid import uuid4

import msgspec
from pydantic import AfterValidator, BeforeValidator, Field, StrictInt

from eventbus.events import Event
from eventsources.base import Identity, Refusal, Request, SourceSpec
from eventsources.receiver.auth import SignatureSpec, check_bearer, check_signature
from eventsources.receiver.binding import cloud_events, has_cloud_events
from sensors.secrets import SecretKeySelector
from sensors.spec.base import Flaw, get
from sensors.spec.fields import Bool, Text

MOST_BYTES = 1 << 20
"""argo-events' own default, and about what a record of the event topic may hold."""
_CONFIDENTIAL = frozenset({"authorization", "proxy-authorization", "cookie"})
"""Headers that say who sent it. An event is no place for them."""
_check_json = msgspec.json.Decoder(msgspec.Raw).decode


def _path(text: str) -> str:
    if not text.startswith("/") or any(character in text for character in "?# "):
        raise ValueError(f"must be a path such as `/orders`, not `{text}`")
    return text


def _port(value: Any) -> Any:
    """argo-events writes ports as text."""
    return int(value) if isinstance(value, str) and value.isdecimal() else value


def _method(text: str) -> str:
    if text.upper() not in ("POST", "PUT", "PATCH"):
        raise ValueError(f"must be POST, PUT or PATCH, not `{text}`: an event comes in the body of a request")
    return text.upper()


class ReceiverSpec(SourceSpec):
    """Where requests come in."""

    endpoint: Annotated[Text, AfterValidator(_path)]
    """The path."""
    port: Annotated[StrictInt, BeforeValidator(_port), Field(ge=0, le=65535)] = 12000
    method: Annotated[Text, AfterValidator(_method)] = "POST"
    url: Text = ""
    """How this is reached from outside, for services that are told so. Nothing here uses it."""
    maxPayloadSize: Annotated[StrictInt, Field(ge=1, le=8 << 20)] = MOST_BYTES
    """Bytes; larger bodies are refused while they come in."""
    serverCertSecret: SecretKeySelector | None = None
    """The server's certificate: with it, the port speaks TLS."""
    serverKeySecret: SecretKeySelector | None = None
    clientCaSecret: SecretKeySelector | None = None
    """Certificate authorities: only clients with a certificate of theirs are let in."""
    authSecret: SecretKeySelector | None = None
    """A token that requests must bring: `Authorization: Bearer …`."""
    signature: SignatureSpec | None = None

    @classmethod
    def flaws(cls, data: Any) -> Iterator[Flaw]:
        cert, key = get(data, "serverCertSecret"), get(data, "serverKeySecret")
        if (cert is None) != (key is None):
            given, other = ("serverKeySecret", "serverCertSecret")[:: 1 if cert is None else -1]
            yield Flaw((given,), f"`{given}` needs `{other}`")
        if get(data, "clientCaSecret") is not None and cert is None:
            yield Flaw(("clientCaSecret",), "`clientCaSecret` needs `serverCertSecret` and `serverKeySecret`")


class WebhookSpec(ReceiverSpec):
    """Whatever is sent becomes an event."""

    idHeader: Text = "Idempotency-Key"
    """The header with the sender's own id of the delivery: a repeat has the same id as the first."""
    keepContext: Bool = False
    """Leave `source` and `subject` of CloudEvents as they are, instead of naming them after this event source."""


class WebhookEndpoint:
    """Starts where the request is complete."""

    def __init__(self, spec: WebhookSpec) -> None:
        self._spec = spec
        self.port, self.path = spec.port, spec.endpoint
        self.methods = frozenset({spec.method})

    def events(self, identity: Identity, request: Request) -> Sequence[Event]:
        authorize(self._spec, request)
        if has_cloud_events(request):
            events = cloud_events(request)
            return events if self._spec.keepContext else [_renamed(identity, event) for event in events]
        own = request.header(self._spec.idHeader.lower())
        return [identity.event(own or uuid4().hex, self._data(request))]

    def _data(self, request: Request) -> dict[str, Any]:
        data: dict[str, Any] = {"header": _headers(request), "method": request.method, "body": _body(request)}
        if request.query:
            data["query"] = parse_qs(request.query, keep_blank_values=True)
        if self._spec.metadata:
            data["metadata"] = self._spec.metadata
        return data


def authorize(spec: ReceiverSpec, request: Request) -> None:
    """Raises `Refusal`."""
    if spec.authSecret is not None:
        check_bearer(request, spec.authSecret)
    if spec.signature is not None:
        check_signature(request, spec.signature)


def _renamed(identity: Identity, event: Event) -> Event:
    """As a sensor's dependency asks for it. What it was called before goes along."""
    attributes = dict(event.attributes)
    attributes["originsource"] = attributes["source"]
    if "subject" in attributes:
        attributes["originsubject"] = attributes["subject"]
    return Event(attributes | {"source": identity.source, "subject": identity.name}, event.data)


def _headers(request: Request) -> dict[str, list[str]]:
    """As Go spells them, and argo-events with it."""
    headers: dict[str, list[str]] = {}
    for name, value in request.headers:
        if name not in _CONFIDENTIAL:
            headers.setdefault("-".join(part.capitalize() for part in name.split("-")), []).append(value)
    return headers


def _body(request: Request) -> Any:
    """JSON as it is, text as text, and bytes in base64, as `{"base64": …}`."""
    if not request.body:
        return None
    media_type = (request.header("content-type") or "").partition(";")[0].strip().lower()
    declared = media_type in ("", "application/json") or media_type.endswith("+json")
    try:
        request.body.decode()
    except UnicodeDecodeError:
        if declared and media_type:
            raise Refusal(400, "the body is not UTF-8, which JSON has to be") from None
        return {"base64": b64encode(request.body).decode()}
    if declared:
        try:
            return msgspec.Raw(_check_json(request.body))
        except (msgspec.DecodeError, RecursionError) as error:
            if media_type:
                raise Refusal(400, f"the body is not JSON: {error}") from None
    return request.body.decode()
