"""A GitHub App's way to be let in: a signed claim is exchanged for a token that git can use as a password.

The claim is signed with the `openssl` command, which spares a dependency that nothing else needs.
"""

from __future__ import annotations

import subprocess
import time
from base64 import urlsafe_b64encode
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from eventbus.errors import ConfigError
from sensors.actions.base import ActionError
from sensors.actions.kube.source import GithubApp

if TYPE_CHECKING:
    from sensors.actions.http_client import HttpClient

USER = "x-access-token"
_CLOCK_SKEW = 60
_CLAIM_SECONDS = 540


class _Grant(msgspec.Struct):
    token: str


def installation_token(client: HttpClient, app: GithubApp, repository: str, key_file: Path) -> str:
    """A token for the repository's host, valid for an hour. Raises `ConfigError` and `ActionError`."""
    url = f"{_api(repository)}/app/installations/{app.installationID}/access_tokens"
    headers = {
        "Accept": "application/vnd.github+json",
        "Authorization": f"Bearer {_claim(app.appID, key_file, int(time.time()))}",
        "User-Agent": "kafka-eventbus",
    }
    try:
        answer = client.request("POST", url, headers, b"")
    except ActionError as error:
        raise ActionError(f"{url}: {error}", retriable=True, sent=False) from None
    if answer.status != 201:
        retriable = answer.status in (408, 429) or answer.status >= 500
        raise ActionError(f"{url} answered {answer.status}, and gave no token", retriable=retriable, sent=False)
    try:
        return msgspec.json.decode(answer.body, type=_Grant).token
    except msgspec.DecodeError:
        raise ActionError(f"{url} gave no token", retriable=True, sent=False) from None


def _api(repository: str) -> str:
    host = urlsplit(repository).netloc.lower()
    return "https://api.github.com" if host == "github.com" else f"https://{host}/api/v3"


def _claim(app_id: int, key_file: Path, now: int) -> str:
    """A JSON Web Token by RS256. It begins a minute ago, because clocks differ."""
    payload = {"iat": now - _CLOCK_SKEW, "exp": now + _CLAIM_SECONDS, "iss": str(app_id)}
    parts = (_encoded(msgspec.json.encode(part)) for part in ({"alg": "RS256", "typ": "JWT"}, payload))
    text = ".".join(parts)
    return f"{text}.{_encoded(_signature(text.encode(), key_file))}"


def _signature(content: bytes, key_file: Path) -> bytes:
    command = ["openssl", "dgst", "-sha256", "-passin", "pass:", "-sign", str(key_file)]
    try:
        done = subprocess.run(command, input=content, capture_output=True, check=False)
    except FileNotFoundError:
        raise ConfigError("the `openssl` command is not installed, and `githubApp` needs it") from None
    if done.returncode != 0:
        raise ConfigError("the `privateKey` of `githubApp` is not a private key in PEM format")
    return done.stdout


def _encoded(content: bytes) -> str:
    return urlsafe_b64encode(content).decode().rstrip("=")
