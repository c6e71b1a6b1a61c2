"""The `custom` action: argo-events' protocol for triggers of one's own, over gRPC.

For every action the server is asked for a resource (`FetchResource`), into which parameters are put, then told to
execute it (`Execute`), and at last whether that was a success (`ApplyPolicy`). Only `Execute` does anything, so that
an attempt that fails before it was never sent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

import msgspec
import yaml
from pydantic import AfterValidator, Field, PrivateAttr

from sensors.actions.base import ActionCall, ActionContext, ActionError, SpecModel
from sensors.actions.body import body_of, trace_of
from sensors.actions.grpc_server import GrpcServer, check_authorities
from sensors.actions.patched import Patch, PatchableSpec
from sensors.actions.values import reading_secrets
from sensors.parameters import ParameterError, Parameters, Payload
from sensors.patching import apply_parameters
from sensors.secrets import Refreshed, Secret, SecretKeySelector
from sensors.spec.base import Flaw, get
from sensors.spec.fields import Bool, StringMap, Text

if TYPE_CHECKING:
    from sensors.actions.grpc_client import TriggerClient

_HOST = re.compile(r"[A-Za-z0-9._-]+")


# --- manifest -------------------------------------------------------------------------------------------------------


def _valid_host(text: str) -> str:
    if text and not _HOST.fullmatch(text):
        raise ValueError("must be a host name")
    return text


class CustomSpec(PatchableSpec):
    """Let a gRPC server do it that speaks argo-events' protocol for triggers. The action's id is in the metadata of
    every call, as `idempotency-key`. Needs `kafka-eventbus[grpc]`."""

    patchable: ClassVar[tuple[str, ...]] = ("spec.*", "payload.*.src.value")
    patches_itself: ClassVar[bool] = False

    serverURL: GrpcServer
    """The server, as `host:port`."""
    secure: Bool = False
    """Use TLS."""
    certSecret: SecretKeySelector | None = None
    """The secret with the certificate authorities to trust. Without it: those of the system."""
    serverNameOverride: Annotated[Text, AfterValidator(_valid_host)] = ""
    """The name in the server's certificate, where it is not the host of `serverURL`."""
    spec: StringMap = Field(default={})
    """What the server is asked for; it is sent as YAML."""
    parameters: Parameters = Field(default=())
    """Values of events that are put into the resource that the server returns, which must be JSON then. What is here is
    changed by parameters of the trigger, whose `dest` begins with `custom.`."""
    payload: Payload | None = None
    """What is sent along when the resource is executed; nothing without it."""

    _patches: Parameters = PrivateAttr(default=())

    @classmethod
    def flaws(cls, data: Any) -> Iterator[Flaw]:
        for field in ("certSecret", "serverNameOverride"):
            if isinstance(data, Mapping) and get(data, field) and not get(data, "secure"):
                yield Flaw((field,), f"`{field}` does nothing without TLS; write `secure: true`", about_key=True)

    @property
    def patches(self) -> Parameters:
        return self._patches

    def patched_by(self, parameters: Parameters) -> Self:
        copy = self.model_copy()
        copy._patches = parameters  # noqa: SLF001 - its own
        return copy

    def authorities(self) -> Secret | None:
        """Raises `ConfigError` when the secret is not there."""
        return None if self.certSecret is None else self.certSecret.read()


# --- action ---------------------------------------------------------------------------------------------------------


class CustomAction:
    """Asks the server. All calls of an action carry its id as `idempotency-key` in their metadata."""

    Spec: ClassVar[type[SpecModel]] = CustomSpec

    def __init__(self, spec: CustomSpec, _context: ActionContext) -> None:
        self._spec = spec
        self._patch = Patch(spec)
        self._client: Refreshed[Secret | None, TriggerClient] = Refreshed(
            spec.authorities, self._new_client, lambda client: client.close()
        )

    def invoke(self, call: ActionCall) -> str:
        spec = self._patch.spec(call)
        payload = b"" if spec.payload is None else body_of(call, spec.payload)
        metadata = {"idempotency-key": call.id, **trace_of(call)}
        with reading_secrets(), self._client.lent() as client, client.server(spec.serverURL, metadata) as server:
            resource = server.fetch(yaml.safe_dump(dict(spec.spec), allow_unicode=True).encode())
            server.apply_policy(server.execute(self._with_parameters(resource, call), payload))
        return "OK"

    def close(self) -> None:
        self._client.close()

    def _with_parameters(self, resource: bytes, call: ActionCall) -> bytes:
        if not self._spec.parameters:
            return resource
        try:
            document = msgspec.json.decode(resource, type=dict[str, Any])
            return msgspec.json.encode(apply_parameters(document, self._spec.parameters, call.events))
        except msgspec.DecodeError:
            reason = "the server's resource is not a JSON object"
        except ParameterError as error:
            reason = str(error)
        raise ActionError(f"the parameters cannot be applied: {reason}", retriable=False, sent=False)

    def _new_client(self, authorities: Secret | None) -> TriggerClient:
        from sensors.actions.grpc_client import TriggerClient  # noqa: PLC0415 - optional packages

        spec = self._spec
        check_authorities(spec.certSecret, authorities)
        return TriggerClient(spec.serverURL, spec.secure, authorities, spec.serverNameOverride)
