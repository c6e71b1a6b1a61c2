"""Hooks of repositories and organizations at GitHub, or at a GitHub Enterprise Server."""

from __future__ import annotations

import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

import msgspec

from eventbus.errors import ConfigError
from eventsources.receiver.hooks import EVERYTHING
from eventsources.registration.forge import Forge, ForgeError
from eventsources.registration.plan import Found
from eventsources.sources.github import GithubApp, GithubSpec
from sensors.actions.http_client import Answer
from sensors.secrets import Secret

_API = "https://api.github.com"
_CLAIM_SECONDS = 540
"""GitHub takes no claim that is valid for more than ten minutes."""
_CLOCK_SECONDS = 60
"""By how much its clock may be behind ours."""
_RENEWED_BEFORE = 300.0


class GithubForge(Forge):
    """By a token, or as a GitHub App."""

    updating = "PATCH"
    first_page = "per_page=100"
    permission = "the permission to read and write webhooks (`admin:repo_hook`, `admin:org_hook` for organizations)"
    headers = {"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28"}  # noqa: RUF012

    def __init__(self, spec: GithubSpec, now: Callable[[], float] = time.time) -> None:
        key = spec.githubApp.privateKey if spec.githubApp is not None else None
        credentials = [each for each in (spec.apiToken or key,) if each is not None]
        super().__init__(spec, api_address(spec.githubBaseURL), credentials, spec.webhookSecret, now)
        self._github = spec
        self._token: Secret | None = None
        self._expires = 0.0

    def settings(self) -> Mapping[str, Any]:
        spec = self._github
        events = [EVERYTHING] if EVERYTHING in spec.events else sorted(set(spec.events))
        insecure = "1" if spec.insecure else "0"
        return {"active": spec.active, "events": events, "content_type": spec.contentType, "insecure_ssl": insecure}

    def found(self, hook: Mapping[str, Any]) -> Found:
        """Hooks of other services that GitHub once had know no address."""
        config = hook["config"]
        shown = {name: str(config[name]) for name in ("content_type", "insecure_ssl") if name in config}
        settings = {"active": hook["active"], "events": sorted(hook["events"]), **shown}
        return Found(str(hook["id"]), str(config.get("url", "")), settings)

    def body(self, settings: Mapping[str, Any], secret: Secret | None) -> Mapping[str, Any]:
        """All of the configuration: GitHub forgets a secret that is left out of a change."""
        config = {"url": self.url, **{name: settings[name] for name in ("content_type", "insecure_ssl")}}
        if secret is not None:
            config["secret"] = secret.reveal()
        return {"name": "web", "active": settings["active"], "events": settings["events"], "config": config}

    def authorization(self) -> tuple[str, Secret]:
        app = self._github.githubApp
        if self._github.apiToken is not None or app is None:
            [token] = self._credentials
            return _bearer(token.read().reveal())
        if self._token is None or self._now() > self._expires - _RENEWED_BEFORE:
            self._token, self._expires = self._installation_token(app)
        return _bearer(self._token.reveal())

    def error(self, answer: Answer, label: str) -> ForgeError:
        if answer.status == 401:
            self._token = None  # the next one may be accepted
        return super().error(answer, label)

    def _installation_token(self, app: GithubApp) -> tuple[Secret, float]:
        """One that may do no more than this needs, however much the App may do."""
        proof = _bearer(signed_claim(app.appID, app.privateKey.read(), self._now()))
        wanted = {"repository_hooks": "repos", "organization_hooks": "orgs"}
        kinds = {place.path.split("/")[1] for place in self.places}
        permissions = {name: "write" for name, kind in wanted.items() if kind in kinds}
        path = f"/app/installations/{app.installationID}/access_tokens"
        answer = self.send("POST", path, proof, {"permissions": permissions})
        try:
            token = msgspec.json.decode(answer.body, type=_Token) if answer.status == 201 else None
            expires = datetime.fromisoformat(token.expires_at).timestamp() if token is not None else 0.0
        except (msgspec.DecodeError, ValueError):
            raise ForgeError("GitHub's answer has no token for the App") from None
        if token is None:
            raise self.error(answer, f"the installation `{app.installationID}` of the App `{app.appID}`")
        return Secret(token.token), expires


class _Token(msgspec.Struct):
    token: str
    expires_at: str


def api_address(base: str) -> str:
    """An Enterprise Server has its API below `/api/v3`, which most people leave out."""
    base = base.rstrip("/") or _API
    host = urlsplit(base).hostname or ""
    complete = host.startswith("api.") or ".api." in host or base.endswith("/api/v3")
    return base if complete else f"{base}/api/v3"


def signed_claim(app: int, key: Secret, now: float) -> str:
    """A JSON Web Token that says who we are, signed by RSA and SHA-256. Raises `ConfigError`."""
    from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15  # noqa: PLC0415 - an extra
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey  # noqa: PLC0415
    from cryptography.hazmat.primitives.hashes import SHA256  # noqa: PLC0415
    from cryptography.hazmat.primitives.serialization import load_pem_private_key  # noqa: PLC0415

    try:
        signer = load_pem_private_key(key.reveal().encode(), None)
    except (ValueError, TypeError):  # no PEM, or one with a pass phrase
        signer = None
    if not isinstance(signer, RSAPrivateKey):
        raise ConfigError("`githubApp.privateKey` is not the PEM of an RSA key")
    claim = {"iat": int(now) - _CLOCK_SECONDS, "exp": int(now) + _CLAIM_SECONDS, "iss": str(app)}
    signed = b".".join(_base64(msgspec.json.encode(each)) for each in ({"alg": "RS256", "typ": "JWT"}, claim))
    return (signed + b"." + _base64(signer.sign(signed, PKCS1v15(), SHA256()))).decode()


def _base64(content: bytes) -> bytes:
    return urlsafe_b64encode(content).rstrip(b"=")


def _bearer(token: str) -> tuple[str, Secret]:
    return "Authorization", Secret(f"Bearer {token}")
