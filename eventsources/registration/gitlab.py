"""Hooks of projects and groups at GitLab, or at one's own instance of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from eventsources.registration.forge import Forge
from eventsources.registration.plan import Found
from eventsources.sources.gitlab import GitlabSpec
from sensors.secrets import Secret

_API = "https://gitlab.com"


class GitlabForge(Forge):
    """By an access token. GitLab has a switch for every type of event; those that it does not know, it ignores."""

    updating = "PUT"
    first_page = "per_page=100"
    permission = "the scope `api` and the role of a maintainer (of an owner for groups)"

    def __init__(self, spec: GitlabSpec, now: Callable[[], float] = time.time) -> None:
        base = spec.gitlabBaseURL.rstrip("/").removesuffix("/api/v4") or _API
        credentials = [each for each in (spec.accessToken,) if each is not None]
        super().__init__(spec, f"{base}/api/v4", credentials, spec.secretToken, now)
        self._gitlab = spec

    def settings(self) -> Mapping[str, Any]:
        return {**self._gitlab.switches(), "enable_ssl_verification": self._gitlab.enableSSLVerification}

    def found(self, hook: Mapping[str, Any]) -> Found:
        return Found(str(hook["id"]), str(hook["url"]), hook)

    def body(self, settings: Mapping[str, Any], secret: Secret | None) -> Mapping[str, Any]:
        return {"url": self.url, **settings, **({} if secret is None else {"token": secret.reveal()})}

    def authorization(self) -> tuple[str, Secret]:
        [token] = self._credentials
        return "PRIVATE-TOKEN", token.read()
