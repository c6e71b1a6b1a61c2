"""The `awsLambda` action: one invocation of a function per action."""

from __future__ import annotations

import re
from base64 import b64encode
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import msgspec
from pydantic import AfterValidator

from sensors.actions.aws import AwsSpec, Keys
from sensors.actions.base import ActionCall, ActionContext, ActionError, SpecModel
from sensors.actions.body import body_of, trace_of
from sensors.actions.patched import Patch, PatchableSpec
from sensors.actions.values import reading_secrets
from sensors.parameters import Payload
from sensors.secrets import Refreshed
from sensors.spec.fields import Text

if TYPE_CHECKING:
    from sensors.actions.aws_client import LambdaClient

_FUNCTION = re.compile(r"[A-Za-z0-9_:$.-]{1,256}")


# --- manifest -------------------------------------------------------------------------------------------------------


def _valid_function(text: str) -> str:
    if text and not _FUNCTION.fullmatch(text):
        raise ValueError("must be the name or the ARN of a function, with or without a version or alias")
    return text


class LambdaSpec(AwsSpec, PatchableSpec):
    """Invoke a function of AWS Lambda. It finds the action's id as `idempotencyKey` in its client context, if it is
    waited for. Needs `kafka-eventbus[aws]`."""

    patchable: ClassVar[tuple[str, ...]] = ("functionName", "invocationType", "payload.*.src.value")
    needed: ClassVar[tuple[tuple[str, ...], ...]] = (("functionName",),)

    functionName: Annotated[Text, AfterValidator(_valid_function)] = ""
    """The function: its name or ARN, with or without a version or alias."""
    payload: Payload | None = None
    """The function's input. Without it, the input is a JSON object with one structured CloudEvent per dependency."""
    invocationType: Literal["RequestResponse", "Event", "DryRun"] = "RequestResponse"
    """Wait until the function has ended; or only until Lambda has accepted the call; or do not call it at all."""


# --- action ---------------------------------------------------------------------------------------------------------


class LambdaAction:
    """Invokes the function. It finds the action's id as `idempotencyKey` in its client context."""

    Spec: ClassVar[type[SpecModel]] = LambdaSpec

    def __init__(self, spec: LambdaSpec, context: ActionContext) -> None:
        self._spec = spec
        self._policy = context.policy
        self._patch = Patch(spec)
        self._client: Refreshed[Keys | None, LambdaClient] = Refreshed(
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

    def _new_client(self, keys: Keys | None) -> LambdaClient:
        from sensors.actions.aws_client import LambdaClient  # noqa: PLC0415 - an optional package

        return LambdaClient(self._spec.region, keys, self._spec.roleARN)


def _client_context(call: ActionCall) -> str:
    """Functions see it only when they are waited for, says AWS."""
    return b64encode(msgspec.json.encode({"custom": {"idempotencyKey": call.id, **trace_of(call)}})).decode()
