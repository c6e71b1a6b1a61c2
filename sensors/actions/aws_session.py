"""Clients of AWS that try once, and what to say about their errors."""

from __future__ import annotations

from typing import Any

from botocore.config import Config
from botocore.credentials import (
    AssumeRoleCredentialFetcher,
    CredentialProvider,
    CredentialResolver,
    DeferredRefreshableCredentials,
)
from botocore.exceptions import ClientError
from botocore.loaders import create_loader
from botocore.session import Session

from sensors.actions.aws import Keys
from sensors.actions.replies import excerpt

CONNECT_SECONDS = 10
_SESSION_NAME = "kafka-eventbus"
_descriptions = create_loader()
"""Of AWS's services. To read them takes a second, and every session would do it again."""


def new_client(
    service: str, region: str, keys: Keys | None, role: str, *, read_seconds: float, endpoint: str | None = None
) -> Any:
    """Thread-safe. Without an `endpoint` it is AWS's own, or the one that the environment names."""
    config = Config(
        region_name=region,
        connect_timeout=CONNECT_SECONDS,
        read_timeout=read_seconds,
        retries={"total_max_attempts": 1},
        max_pool_connections=64,
    )
    session = _new_session()
    if keys is not None:
        session.set_credentials(*(key.reveal() for key in keys))
    if role:
        session = _session_in_role(session, role, config)
    return session.create_client(service, config=config, endpoint_url=endpoint)


def status_of(error: ClientError) -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def code_of(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def answer_of(error: ClientError, keys: Keys | None) -> str:
    """What AWS has answered, in one line."""
    said = excerpt(str(error.response.get("Error", {}).get("Message", "")), keys or ())
    return f"AWS answered {status_of(error)} {code_of(error)}{f': {said}' if said else ''}"


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
