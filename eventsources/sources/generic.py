"""Events from a gRPC server that speaks argo-events' protocol: at most once, because that has nothing to acknowledge.

The server gets the name of the event and its `config`, and answers with a stream of payloads. What it sends while
nobody listens, and what was on its way when a connection broke or a delivery failed, comes again only if the server
sends it again by itself.

A payload has no id either. Two that are equal may be two events, so an id made of the payload would let `dedupe` throw
one of them away: ids are random. Whoever knows of something in the body that is the same for a repeat has `dedupe` go
by that.

As with argo-events, the body is in base64; with `jsonBody` it is the JSON itself.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Any
from uuid import uuid4

from pydantic import Field

from eventsources.base import Context, SourceSpec, Stop, Told, Unusable
from eventsources.sources.messages import NOT_JSON, as_json
from sensors.actions.grpc_server import GrpcServer, check_authorities
from sensors.secrets import Secret, SecretKeySelector
from sensors.spec.base import Flaw, get
from sensors.spec.fields import Bool, Text

if TYPE_CHECKING:
    from eventsources.sources.grpc_stream import EventStream


class GenericSpec(SourceSpec):
    """What a server of your own tells, by argo-events' gRPC service `generic.Eventing`."""

    url: GrpcServer
    """The server, as `host:port`."""
    config: Annotated[Text, Field(min_length=1)]
    """What the server is told to begin with; only the server knows what it means."""
    insecure: Bool = False
    """Without TLS. argo-events reaches no server at all unless this is set."""
    certSecret: SecretKeySelector | None = None
    """The secret with the certificate authorities to trust. Without it: those of the system."""
    authSecret: SecretKeySelector | None = None
    """A token for the server: `authorization: Bearer …` in the metadata of the call."""
    jsonBody: Bool = False
    """Payloads are JSON."""

    @classmethod
    def flaws(cls, data: Any) -> Iterator[Flaw]:
        if get(data, "certSecret") and get(data, "insecure") is True:
            yield Flaw(("certSecret",), "`certSecret` does nothing without TLS; leave `insecure` out", about_key=True)

    def advice(self) -> Iterator[Flaw]:
        if self.insecure and self.authSecret is not None:
            yield Flaw(("insecure",), "whoever is in between can read the token: use TLS, and leave `insecure` out")


class GenericSource:
    """Listens, and delivers."""

    def __init__(self, spec: GenericSpec) -> None:
        self._spec = spec

    def run(self, context: Context, stop: Stop) -> None:
        with closing(self._stream(context.identity.name)) as stream:
            for messages in stream.portions(stop):
                context.deliver([self._told(context, message) for message in messages])

    def _stream(self, name: str) -> EventStream:
        from eventsources.sources.grpc_stream import EventStream  # noqa: PLC0415 - an optional package

        spec = self._spec
        authorities = None if spec.certSecret is None else spec.certSecret.read()
        check_authorities(spec.certSecret, authorities)
        token = Secret("") if spec.authSecret is None else spec.authSecret.read()
        return EventStream(spec.url, name, spec.config, secure=not spec.insecure, authorities=authorities, token=token)

    def _told(self, context: Context, message: bytes) -> Told:
        from eventsources.sources.grpc_stream import payload_of  # noqa: PLC0415 - an optional package

        id = uuid4().hex
        payload = payload_of(message)
        if payload is None:
            return Unusable(id, "the message is no `generic.Event`", message)
        body = as_json(payload) if self._spec.jsonBody else b64encode(payload).decode()
        if body is None:
            return Unusable(id, NOT_JSON, payload)
        return context.identity.event(id, self._spec.described({"body": body}))
