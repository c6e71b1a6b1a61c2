"""The `awsLambda` action: one invocation of a function per action."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import msgspec
from pydantic import AfterValidator

from sensors.actions.base import ActionCall, ActionContext, ActionError, SpecModel
from sensors.actions.body import body_of, trace_of
from sensors.actions.patched import Patch, PatchableSpec
from sensors.actions.values import reading_secrets
from sensors.parameters import Payload
from sensors.secrets import Refreshed, Secret, SecretKeySelector
from sensors.spec.base import Flaw, get
from sensors.spec.fields import Text

if TYPE_CHECKING:
    from sensors.actions.aws_client import LambdaClient

_FUNCTION = re.compile(r"[A-Za-z0-9_:$.-]{1,256}")
_REGION = re.compile(r"[a-z0-9-]{1,63}")
_ROLE = re.compile(r"arn:[a-z0-9-]+:iam::\d{12}:role/[A-Za-z0-9+=,.@_/-]+")


# --- manifest -------------------------------------------------------------------------------------------------------


def _valid_function(text: str) -> str:
    if text and not _FUNCTION.fullmatch(text):
        raise ValueError("must be the name or the ARN of a function, with or without a version or alias")
    return text


def _valid_region(text: str) -> str:
    if not _REGION.fullmatch(text):
        raise ValueError("must be the name of a region, for instance `eu-west-1`")
    return text


def _valid_role(text: str) -> str:
    if text and not _ROLE.fullmatch(text):
        raise ValueError("must be the ARN of a role: `arn:aws:iam::ACCOUNT:role/NAME`")
    return text


class LambdaSpec(PatchableSpec):
    """Invoke a function of AWS Lambda. It finds the action's id as `idempotencyKey` in its client context, if it is
    waited for. Needs `kafka-eventbus[aws]`."""

    patchable: ClassVar[tuple[str, ...]] = ("functionName", "invocationType", "payload.*.src.value")
    needed: ClassVar[tuple[tuple[str, ...], ...]] = (("functionName",),)

    functionName: Annotated[Text, AfterValidator(_valid_function)] = ""
    """The function: its name or ARN, with or without a version or alias."""
    region: Annotated[Text, AfterValidator(_valid_region)]
    """Where the function is."""
    accessKey: SecretKeySelector | None = None
    """The secret with the access key. Without it: the credentials of the machine or the service account."""
    secretKey: SecretKeySelector | None = None
    """The secret with the secret key that belongs to it."""
    roleARN: Annotated[Text, AfterValidator(_valid_role)] = ""
    """The role to assume for the call."""
    payload: Payload | None = None
    """The function's input. Without it, the input is a JSON object with one structured CloudEvent per dependency."""
    invocationType: Literal["RequestResponse", "Event", "DryRun"] = "RequestResponse"
    """Wait until the function has ended; or only until Lambda has accepted the call; or do not call it at all."""

    @classmethod
    def flaws(cls, data: Any) -> Iterator[Flaw]:
        yield from super().flaws(data)
        for key, other in (("accessKey", "secretKey"), ("secretKey", "accessKey")):
            if isinstance(data, Mapping) and get(data, key) is not None and get(data, other) is None:
                yield Flaw((key,), f"`{key}` needs `{other}`", about_key=True)

    def keys(self) -> tuple[Secret, Secret] | None:
        """Raises `ConfigError` when a secret is not there."""
        if self.accessKey is None or self.secretKey is None:
            return None
        return self.accessKey.read(), self.secretKey.read()


# --- action ---------------------------------------------------------------------------------------------------------


class LambdaAction:
    """Invokes the function. It finds the action's id as `idempotencyKey` in its client context."""

    Spec: ClassVar[type[SpecModel]] = LambdaSpec

    def __init__(self, spec: LambdaSpec, context: ActionContext) -> None:
        self._spec = spec
        self._policy = context.policy
        self._patch = Patch(spec)
        self._client: Refreshed[tuple[Secret, Secret] | None, LambdaClient] = Refreshed(
            spec.keys, self._new_client, lambda client: client.close()
        )

    def invoke(self, call: ActionCall) -> str:
        spec = self._patch.spec(call)
        payload = body_of(call, spec.payload)
        with reading_secrets(), self._client.lent() as client:
            status = client.invoke(spec.functionName, spec.invocationType, payload, _client_context(call))
        if not self._policy.accepts(int(status)):
            message = f"Lambda answered {status}, which the policy does not allow"
            raise ActionError(message, retriable=False, sent=True, status=status)
        return status

    def close(self) -> None:
        self._client.close()

    def _new_client(self, keys: tuple[Secret, Secret] | None) -> LambdaClient:
        from sensors.actions.aws_client import LambdaClient  # noqa: PLC0415 - an optional package

        return LambdaClient(self._spec.region, keys, self._spec.roleARN)


def _client_context(call: ActionCall) -> str:
    """Functions see it only when they are waited for, says AWS."""
    return b64encode(msgspec.json.encode({"custom": {"idempotencyKey": call.id, **trace_of(call)}})).decode()
