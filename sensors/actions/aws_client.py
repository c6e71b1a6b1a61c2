"""A client of AWS Lambda that tries once, and knows whether the function can have been invoked."""

from __future__ import annotations

from typing import Any

from botocore.config import Config
from botocore.credentials import (
    AssumeRoleCredentialFetcher,
    CredentialProvider,
    CredentialResolver,
    DeferredRefreshableCredentials,
)
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
from botocore.loaders import create_loader
from botocore.parsers import ResponseParserError
from botocore.session import Session

from sensors.actions.base import ActionError
from sensors.actions.replies import excerpt
from sensors.secrets import Secret

CONNECT_SECONDS = 10
READ_SECONDS = 900
"""No function may run longer."""
_SESSION_NAME = "kafka-eventbus"
_descriptions = create_loader()
"""Of AWS's services. To read them takes a second, and every session would do it again."""
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

    def __init__(self, region: str, keys: tuple[Secret, Secret] | None, role: str) -> None:
        self._secrets = keys or ()
        config = Config(
            region_name=region,
            connect_timeout=CONNECT_SECONDS,
            read_timeout=READ_SECONDS,
            retries={"total_max_attempts": 1},
            max_pool_connections=64,
        )
        session = _new_session()
        if keys is not None:
            session.set_credentials(keys[0].reveal(), keys[1].reveal())
        if role:
            session = _session_in_role(session, role, config)
        self._client: Any = session.create_client("lambda", config=config)

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
            message = f"the function failed: {excerpt(result, self._secrets)}"
            raise ActionError(message, retriable=True, sent=True, status=answer["FunctionError"])
        return status

    def close(self) -> None:
        self._client.close()

    def _refusal(self, error: ClientError) -> ActionError:
        """An answer below 500 comes before the function is invoked; and so does all that concerns the role."""
        code = str(error.response.get("Error", {}).get("Code", ""))
        status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        said = excerpt(str(error.response.get("Error", {}).get("Message", "")), self._secrets)
        return ActionError(
            f"AWS answered {status} {code}{f': {said}' if said else ''}",
            retriable=status == 429 or status >= 500 or "Throttl" in code,
            sent=status >= 500 and error.operation_name == "Invoke",
            status=str(status),
        )

    def _broken(self, error: Exception) -> ActionError:
        reason = excerpt(str(error), self._secrets)
        if isinstance(error, ReadTimeoutError):
            reason = f"no answer within {READ_SECONDS} s"
        return ActionError(f"AWS: {reason}", retriable=True, sent=not isinstance(error, _NEVER_LEFT))


def _new_session() -> Session:
    session = Session()
    session.register_component("data_loader", _descriptions)
    return session


class _Role(CredentialProvider):  # type: ignore[misc] # botocore has no types
    """A role's credentials, which botocore asks for when it needs them, and again before they expire."""

    METHOD = "assume-role"

    def __init__(self, session: Session, role: str, config: Config) -> None:
        super().__init__()
        self._session = session
        self._role = role
        self._config = config

    def load(self) -> DeferredRefreshableCredentials:
        fetcher = AssumeRoleCredentialFetcher(
            self._create_client,
            self._session.get_credentials(),
            self._role,
            extra_args={"RoleSessionName": _SESSION_NAME},
        )
        return DeferredRefreshableCredentials(fetcher.fetch_credentials, self.METHOD)

    def _create_client(self, service: str, **arguments: Any) -> Any:
        return self._session.create_client(service, config=self._config, **arguments)


def _session_in_role(session: Session, role: str, config: Config) -> Session:
    in_role = _new_session()
    in_role.register_component("credential_provider", CredentialResolver([_Role(session, role, config)]))
    return in_role
