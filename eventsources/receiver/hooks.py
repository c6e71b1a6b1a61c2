"""What services have in common that send signed requests to an address which they were told: hooks.

Some have an API to tell them by: with credentials for it, hooks are registered (see `eventsources.registration`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar
from uuid import uuid4

from pydantic import Field

from eventbus.events import Event
from eventsources.base import Identity, Request, Unwanted
from eventsources.receiver.auth import SignatureSpec, check_signature
from eventsources.receiver.content import checked_json, headers_of
from eventsources.receiver.listening import Listener, ListeningSpec, ReceiverSpec
from eventsources.registration.plan import Place
from sensors.actions.http import valid_url
from sensors.secrets import SecretKeySelector
from sensors.spec.base import Flaw, get
from sensors.spec.fields import Bool, Text

if TYPE_CHECKING:
    from eventsources.registration.forge import Forge

EVERYTHING = "*"


class HookSpec(ReceiverSpec):
    """Where the requests of a service come in."""

    proofs: ClassVar[tuple[str, ...]]
    """Fields with what the service proves its requests with, the best first."""

    webhook: ListeningSpec

    @property
    def listening(self) -> ListeningSpec:
        return self.webhook

    def described(self, data: Mapping[str, Any]) -> Mapping[str, Any]:
        metadata = {**self.webhook.metadata, **self.metadata}
        return {**data, "metadata": metadata} if metadata else data

    def advice(self) -> Iterator[Flaw]:
        own = [getattr(self, name) for name in self.proofs]
        if not any((*own, self.webhook.authSecret, self.webhook.basicAuth, self.webhook.clientCaSecret)):
            yield Flaw(("webhook",), f"whoever knows the address can send events: set `{self.proofs[0]}`")


class ForgeSpec(HookSpec):
    """A service that keeps repositories, and tells what happens to them."""

    forge: ClassVar[str]
    """What the service is called."""
    credentials: ClassVar[tuple[str, ...]]
    """Fields with what the service's API lets us in by, one of which is needed to register hooks."""
    whereabouts: ClassVar[tuple[str, ...]]
    """Fields that say where to register hooks, beside those of argo-events' that are deprecated."""
    address: ClassVar[str] = ""
    """The field with the address of the API, where it can be another."""

    events: Annotated[tuple[Text, ...], Field(min_length=1)] = (EVERYTHING,)
    """Of which types; others are answered and left out. `*` means all. A registered hook is for these."""
    deleteHookOnFinish: Bool = False
    """Remove the registered hooks when the last replica stops."""

    @abstractmethod
    def places(self) -> Sequence[Place]:
        """Whose hooks."""

    @abstractmethod
    def api(self) -> Forge:
        """How to register them."""

    @property
    def registers(self) -> bool:
        return not self._lacking()

    def _lacking(self) -> list[str]:
        """What would be needed to register hooks."""
        needed = {
            _either(self.credentials): any(getattr(self, name) for name in self.credentials),
            _either(self.whereabouts): bool(self.places()),
            "`webhook.url`": bool(self.webhook.url),
        }
        return [name for name, given in needed.items() if not given]

    @classmethod
    def flaws(cls, data: Any) -> Iterator[Flaw]:
        for path in (("webhook", "url"), *(((cls.address,),) if cls.address else ())):
            text = get(data, *path)
            try:
                valid_url(text if isinstance(text, str) and text else "http://localhost")
            except ValueError as error:
                yield Flaw(path, f"`{path[-1]}` {error}")

    def advice(self) -> Iterator[Flaw]:
        yield from super().advice()
        given = [
            name
            for name in (*self.credentials, *self.whereabouts, "deleteHookOnFinish")
            if name in self.model_fields_set
        ]
        lacking = self._lacking()
        if given and lacking:
            yield Flaw((given[0],), f"no hook is registered at {self.forge} without {' and '.join(lacking)}")
        if self.address and getattr(self, self.address).startswith("http:"):
            yield Flaw((self.address,), f"`{self.address}` is not https: whoever listens learns the credentials")


def _either(fields: Sequence[str]) -> str:
    named = " or ".join(f"`{name}`" for name in fields)
    return f"({named})" if len(fields) > 1 else named


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
    """What the hook is, or was, registered with as its secret."""


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
