"""What services have in common that send signed requests to an address which somebody has told them: hooks.

argo-events can register hooks itself. Here somebody does that by hand; what would only serve it is taken and not used.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, ClassVar
from uuid import uuid4

from pydantic import Field

from eventbus.events import Event
from eventsources.base import Identity, Request, Unwanted
from eventsources.receiver.auth import SignatureSpec, check_signature
from eventsources.receiver.content import checked_json, headers_of
from eventsources.receiver.listening import Listener, ListeningSpec, ReceiverSpec
from sensors.secrets import SecretKeySelector
from sensors.spec.base import Flaw
from sensors.spec.fields import Bool, Text

EVERYTHING = "*"


class HookSpec(ReceiverSpec):
    """Where the requests of a service come in."""

    proofs: ClassVar[tuple[str, ...]]
    """Fields with what the service proves its requests with, the best first."""

    webhook: ListeningSpec

    @property
    def listening(self) -> ListeningSpec:
        return self.webhook

    def advice(self) -> Iterator[Flaw]:
        own = [getattr(self, name) for name in self.proofs]
        if not any((*own, self.webhook.authSecret, self.webhook.clientCaSecret)):
            yield Flaw(("webhook",), f"whoever knows the address can send events: set `{self.proofs[0]}`")


class ForgeSpec(HookSpec):
    """A service that keeps repositories, and tells what happens to them."""

    forge: ClassVar[str]
    """What the service is called."""
    for_registration: ClassVar[tuple[str, ...]]
    """Fields that only serve to register the hook."""

    events: Annotated[tuple[Text, ...], Field(min_length=1)] = (EVERYTHING,)
    """Of which types; others are answered and left out. `*` means all."""
    deleteHookOnFinish: Bool = False
    """Not used: register the hook yourself."""

    def advice(self) -> Iterator[Flaw]:
        yield from super().advice()
        given = [name for name in (*self.for_registration, "deleteHookOnFinish") if name in self.model_fields_set]
        if given:
            yield Flaw((given[0],), f"`{given[0]}` is not used: register the hook at {self.forge} yourself")


class ForgeEndpoint(Listener):
    """A request is one event: its headers, and its body."""

    event_header: ClassVar[str]
    """The header with the type of the event."""
    id_headers: ClassVar[tuple[str, ...]]
    """Headers that identify a delivery and are the same when it is repeated, the best first."""

    def __init__(self, spec: ForgeSpec) -> None:
        super().__init__(spec.webhook)
        self._described = spec.described
        self._wanted = None if EVERYTHING in spec.events else self.types(spec.events)

    def types(self, events: Sequence[str]) -> frozenset[str]:
        """What the header says for what the manifest says."""
        return frozenset(events)

    def body(self, request: Request) -> Any:
        """Raises `Refusal`."""
        return checked_json(request.body)

    def understand(self, identity: Identity, request: Request) -> Sequence[Event]:
        if self._wanted is not None and request.header(self.event_header) not in self._wanted:
            raise Unwanted
        data = {"headers": headers_of(request), "body": self.body(request)}
        own = (request.header(name) for name in self.id_headers)
        return [identity.event(next(filter(None, own), uuid4().hex), self._described(data))]


class SignedForgeSpec(ForgeSpec):
    """A forge that signs its requests."""

    proofs = ("webhookSecret",)

    webhookSecret: SecretKeySelector | None = None
    """What the hook was registered with as its secret."""


class SignedForgeEndpoint(ForgeEndpoint):
    """Takes a request only with the SHA-256 digest that its secret makes of its body."""

    signature_header: ClassVar[str]

    def __init__(self, spec: SignedForgeSpec) -> None:
        super().__init__(spec)
        secret = spec.webhookSecret
        self._signature = None if secret is None else SignatureSpec(secret=secret, header=self.signature_header)

    def authorize(self, request: Request) -> None:
        if self._signature is not None:
            check_signature(request, self._signature)
