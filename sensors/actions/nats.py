"""The `nats` action: one message per action, acknowledged by the server that got it.

The header `Nats-Msg-Id` is the action's id: a stream of JetStream that the subject belongs to keeps repetitions out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar
from urllib.parse import urlsplit

import msgspec
from pydantic import AfterValidator

from sensors.actions.base import ActionCall, ActionContext, SpecModel
from sensors.actions.body import body_of, trace_of
from sensors.actions.http import BasicAuth
from sensors.actions.patched import Patch, PatchableSpec
from sensors.actions.tls import Tls, TlsSecrets
from sensors.actions.values import reading_secrets
from sensors.parameters import Payload
from sensors.secrets import Refreshed, Secret, SecretKeySelector
from sensors.spec.base import Flaw, get
from sensors.spec.fields import Text

if TYPE_CHECKING:
    from sensors.actions.nats_client import NatsPublisher

_SERVER = re.compile(r"((nats|tls)://)?(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:\d{1,5})?/?")
_WORD = r'[^\s.*>"\\\x00-\x20\x7f]+'
_SUBJECT = re.compile(rf"{_WORD}(\.{_WORD})*")
_SUBJECT_LENGTH = 1024


# --- manifest -------------------------------------------------------------------------------------------------------


def _valid_url(text: str) -> str:
    if any("@" in server for server in text.split(",")):
        raise ValueError("must not contain a user name, password or token: they would show up in logs; use `auth`")
    if not all(_SERVER.fullmatch(server.strip()) for server in text.split(",")):
        raise ValueError("must be one or more NATS servers as `nats://host:port`, separated by commas")
    return text


NatsServers = Annotated[Text, AfterValidator(_valid_url)]


def _valid_subject(text: str) -> str:
    if text and (not _SUBJECT.fullmatch(text) or len(text) > _SUBJECT_LENGTH):
        raise ValueError("must be words with `.` between them, without white space, quotes, backslashes, `*` and `>`")
    return text


class NatsAuth(SpecModel):
    """Who we are, in one of four ways."""

    basic: BasicAuth | None = None
    token: SecretKeySelector | None = None
    """The secret with a token."""
    nkey: SecretKeySelector | None = None
    """The secret with the seed of an NKey."""
    credential: SecretKeySelector | None = None
    """The secret with a credentials file: a JWT and the seed of an NKey."""

    @classmethod
    def flaws(cls, data: Any) -> Iterator[Flaw]:
        given = [field for field in cls.model_fields if get(data, field) is not None]
        if isinstance(data, Mapping) and len(given) != 1:
            yield Flaw((), "must have exactly one of `basic`, `token`, `nkey` and `credential`")

    def secrets(self) -> dict[str, Secret]:
        """What proves who we are, as the client calls it. Raises `ConfigError` when a secret is not there."""
        selectors = {
            "user": None if self.basic is None else self.basic.username,
            "password": None if self.basic is None else self.basic.password,
            "token": self.token,
            "nkeys_seed_str": self.nkey,
            "user_credentials": self.credential,
        }
        return {name: selector.read() for name, selector in selectors.items() if selector is not None}


class _Credentials(msgspec.Struct, frozen=True):
    """The values of the secrets that a connection needs."""

    tls: TlsSecrets
    auth: tuple[tuple[str, Secret], ...]


class NatsSpec(PatchableSpec):
    """Publish a message on NATS. The action's id is its `Nats-Msg-Id`. Needs `kafka-eventbus[nats]`."""

    patchable: ClassVar[tuple[str, ...]] = ("subject", "payload.*.src.value")
    needed: ClassVar[tuple[tuple[str, ...], ...]] = (("subject",),)

    url: NatsServers
    """The servers, `nats://host:port`, separated by commas; the first that answers is used."""
    subject: Annotated[Text, AfterValidator(_valid_subject)] = ""
    """Where to publish."""
    payload: Payload | None = None
    """The message. Without it, the message is a JSON object with one structured CloudEvent per dependency."""
    tls: Tls | None = None
    auth: NatsAuth | None = None

    @property
    def servers(self) -> list[str]:
        return [server.strip() for server in self.url.split(",")]

    def credentials(self) -> _Credentials:
        """Raises `ConfigError` when a secret is not there."""
        tls = TlsSecrets() if self.tls is None else self.tls.secrets()
        return _Credentials(tls, () if self.auth is None else tuple(self.auth.secrets().items()))

    @property
    def wants_tls(self) -> bool:
        return self.tls is not None or any(urlsplit(server).scheme == "tls" for server in self.servers)


# --- action ---------------------------------------------------------------------------------------------------------


class NatsAction:
    """Publishes messages over one connection, and waits until the server has got them."""

    Spec: ClassVar[type[SpecModel]] = NatsSpec

    def __init__(self, spec: NatsSpec, context: ActionContext) -> None:
        self._spec = spec
        self._name = f"{context.namespace}/{context.sensor}"
        self._patch = Patch(spec)
        self._publisher: Refreshed[_Credentials, NatsPublisher] = Refreshed(
            spec.credentials, self._new_publisher, lambda publisher: publisher.close()
        )

    def invoke(self, call: ActionCall) -> str:
        spec = self._patch.spec(call)
        payload = body_of(call, spec.payload)
        with reading_secrets(), self._publisher.lent() as publisher:
            publisher.publish(spec.subject, payload, {"Nats-Msg-Id": call.id, **trace_of(call)})
        return "published"

    def close(self) -> None:
        self._publisher.close()

    def _new_publisher(self, credentials: _Credentials) -> NatsPublisher:
        from sensors.actions.nats_client import NatsPublisher  # noqa: PLC0415 - an optional package

        tls = (self._spec.tls or Tls()).context(credentials.tls) if self._spec.wants_tls else None
        return NatsPublisher(self._spec.servers, self._name, tls, dict(credentials.auth))
