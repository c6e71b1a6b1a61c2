"""A client of AWS Lambda that tries once, and knows whether the function can have been invoked."""

from __future__ import annotations

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    CredentialRetrievalError,
    EndpointConnectionError,
    NoCredentialsError,
    ParamValidationError,
    PartialCredentialsError,
    ProxyConnectionError,
    ReadTimeoutError,
)
from botocore.parsers import ResponseParserError

from sensors.actions.aws import Keys
from sensors.actions.aws_session import answer_of, code_of, new_client, status_of
from sensors.actions.base import ActionError
from sensors.actions.replies import excerpt

READ_SECONDS = 900
"""No function may run longer."""
_NEVER_LEFT = (
    EndpointConnectionError,
    ConnectTimeoutError,
    ProxyConnectionError,
    NoCredentialsError,
    PartialCredentialsError,
    CredentialRetrievalError,
    ParamValidationError,
)


class LambdaClient:
    """Thread-safe."""

    def __init__(self, region: str, keys: Keys | None, role: str) -> None:
        self._keys = keys or ()
        self._client = new_client("lambda", region, keys, role, read_seconds=READ_SECONDS)

    def invoke(self, function: str, kind: str, payload: bytes, context: str) -> str:
        """Returns the status. Raises `ActionError`."""
        try:
            answer = self._client.invoke(
                FunctionName=function, InvocationType=kind, Payload=payload, ClientContext=context
            )
            result = answer["Payload"].read()
        except ClientError as error:
            raise self._refusal(error) from None
        except (BotoCoreError, ResponseParserError) as error:
            raise self._broken(error) from None
        status = str(answer["StatusCode"])
        if "FunctionError" in answer:
            message = f"the function failed: {excerpt(result, self._keys)}"
            raise ActionError(message, retriable=True, sent=True, status=answer["FunctionError"])
        return status

    def close(self) -> None:
        self._client.close()

    def _refusal(self, error: ClientError) -> ActionError:
        """An answer below 500 comes before the function is invoked; and so does all that concerns the role."""
        status = status_of(error)
        return ActionError(
            answer_of(error, self._keys),
            retriable=status == 429 or status >= 500 or "Throttl" in code_of(error),
            sent=status >= 500 and error.operation_name == "Invoke",
            status=str(status),
        )

    def _broken(self, error: Exception) -> ActionError:
        reason = excerpt(str(error), self._keys)
        if isinstance(error, ReadTimeoutError):
            reason = f"no answer within {READ_SECONDS} s"
        return ActionError(f"AWS: {reason}", retriable=True, sent=not isinstance(error, _NEVER_LEFT))
