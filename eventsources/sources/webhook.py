"""Events over HTTP: CloudEvents as they are, and anything else as what was sent, headers and all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import parse_qs
from uuid import uuid4

from eventbus.events import Event
from eventsources.base import Identity, Request
from eventsources.receiver.auth import SignatureSpec, check_signature
from eventsources.receiver.binding import cloud_events, has_cloud_events
from eventsources.receiver.content import body_of, headers_of
from eventsources.receiver.listening import Listener, ListeningSpec, ReceiverSpec
from sensors.spec.fields import Bool, Text


class WebhookSpec(ListeningSpec, ReceiverSpec):
    """Whatever is sent becomes an event."""

    signature: SignatureSpec | None = None
    idHeader: Text = "Idempotency-Key"
    """The header with the sender's own id of the delivery: a repeat has the same id as the first."""
    keepContext: Bool = False
    """Leave `source` and `subject` of CloudEvents as they are, instead of naming them after this event source."""

    @property
    def listening(self) -> ListeningSpec:
        return self


class WebhookEndpoint(Listener):
    """Starts where the request is complete."""

    def __init__(self, spec: WebhookSpec) -> None:
        super().__init__(spec)
        self._spec = spec

    def authorize(self, request: Request) -> None:
        if self._spec.signature is not None:
            check_signature(request, self._spec.signature)

    def understand(self, identity: Identity, request: Request) -> Sequence[Event]:
        if has_cloud_events(request):
            events = cloud_events(request)
            return events if self._spec.keepContext else [_renamed(identity, event) for event in events]
        own = request.header(self._spec.idHeader.lower())
        return [identity.event(own or uuid4().hex, self._data(request))]

    def _data(self, request: Request) -> Mapping[str, Any]:
        data: dict[str, Any] = {"header": headers_of(request), "method": request.method, "body": body_of(request)}
        if request.query:
            data["query"] = parse_qs(request.query, keep_blank_values=True)
        return self._spec.described(data)


def _renamed(identity: Identity, event: Event) -> Event:
    """As a sensor's dependency asks for it. What it was called before goes along."""
    attributes = dict(event.attributes)
    attributes["originsource"] = attributes["source"]
    if "subject" in attributes:
        attributes["originsubject"] = attributes["subject"]
    return Event(attributes | {"source": identity.source, "subject": identity.name}, event.data)
