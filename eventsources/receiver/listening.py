"""Where requests come in, and who may send them: what all sources that are told over HTTP have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, StrictInt

from eventbus.events import Event
from eventsources.base import Identity, Request, SourceSpec
from eventsources.receiver.auth import check_basic, check_bearer
from sensors.actions.http import BasicAuth
from sensors.secrets import SecretKeySelector
from sensors.spec.base import Flaw, SpecModel, get
from sensors.spec.fields import StringMap, Text

MOST_BYTES = 1 << 20
"""argo-events' own default, and about what a record of the event topic may hold."""
DEFAULT_PORT = 12000


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


class ListeningSpec(SpecModel):
    """Where requests come in."""

    endpoint: Annotated[Text, AfterValidator(_path)]
    """The path."""
    port: Annotated[StrictInt, BeforeValidator(_port, json_schema_input_type=int | str), Field(ge=0, le=65535)] = (
        DEFAULT_PORT
    )
    """Where to listen. Endpoints of one port share a server."""
    method: Annotated[Text, AfterValidator(_method)] = "POST"
    """What requests must be: POST, PUT or PATCH."""
    url: Text = ""
    """How this is reached from outside, without the path: what hooks are registered with."""
    maxPayloadSize: Annotated[StrictInt, Field(ge=1, le=8 << 20)] = MOST_BYTES
    """Bytes; larger bodies are refused while they come in."""
    serverCertSecret: SecretKeySelector | None = None
    """The server's certificate: with it, the port speaks TLS."""
    serverKeySecret: SecretKeySelector | None = None
    clientCaSecret: SecretKeySelector | None = None
    """Certificate authorities: only clients with a certificate of theirs are let in."""
    authSecret: SecretKeySelector | None = None
    """A token that requests must bring: `Authorization: Bearer …`."""
    metadata: StringMap = Field(default={})
    """Goes with the data of every event, as `metadata`."""
    basicAuth: BasicAuth | None = None
    """A name and a password that requests must bring: `Authorization: Basic …`."""

    @classmethod
    def flaws(cls, data: Any) -> Iterator[Flaw]:
        cert, key = get(data, "serverCertSecret"), get(data, "serverKeySecret")
        if (cert is None) != (key is None):
            given, other = ("serverKeySecret", "serverCertSecret")[:: 1 if cert is None else -1]
            yield Flaw((given,), f"`{given}` needs `{other}`")
        if get(data, "clientCaSecret") is not None and cert is None:
            yield Flaw(("clientCaSecret",), "`clientCaSecret` needs `serverCertSecret` and `serverKeySecret`")
        if get(data, "basicAuth") is not None and get(data, "authSecret") is not None:
            message = "`basicAuth` and `authSecret` exclude each other: a request has one `Authorization`"
            yield Flaw(("basicAuth",), message, about_key=True)


class ReceiverSpec(SourceSpec, ABC):
    """A source that is told over HTTP."""

    @property
    @abstractmethod
    def listening(self) -> ListeningSpec:
        """Where."""


class Listener(ABC):
    """An endpoint lets in only who may send; what their requests mean is for each kind to say."""

    accepted = 202

    def __init__(self, listening: ListeningSpec) -> None:
        self._listening = listening
        self.port, self.path = listening.port, listening.endpoint
        self.methods = frozenset({listening.method})

    def events(self, identity: Identity, request: Request) -> Sequence[Event]:
        if self._listening.authSecret is not None:
            check_bearer(request, self._listening.authSecret)
        if self._listening.basicAuth is not None:
            check_basic(request, self._listening.basicAuth)
        self.authorize(request)
        return self.understand(identity, request)

    @abstractmethod
    def authorize(self, request: Request) -> None:
        """Raises `Refusal`."""

    @abstractmethod
    def understand(self, identity: Identity, request: Request) -> Sequence[Event]:
        """What a request means whose sender may send. Raises `Refusal`, `Unwanted` or `Reply`."""
