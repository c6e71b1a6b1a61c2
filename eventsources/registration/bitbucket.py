"""Hooks of repositories at Bitbucket Cloud."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from eventsources.receiver.hooks import EVERYTHING
from eventsources.registration.forge import Forge, ForgeError
from eventsources.registration.plan import Found, Place
from eventsources.sources.bitbucket import BitbucketAuth, BitbucketSpec
from sensors.actions.http_client import Answer
from sensors.secrets import Secret

_API = "https://api.bitbucket.org/2.0"
_TYPES = Place("the types of events", "/hook_events/repository")


class BitbucketForge(Forge):
    """By name and password, or by a token. Pages are in the body, and ids say nothing about age."""

    updating = "PUT"
    first_page = "pagelen=100"
    permission = "the scope `webhook` and the right to administer the repository"

    def __init__(self, spec: BitbucketSpec, now: Callable[[], float] = time.time) -> None:
        self._auth = spec.auth or BitbucketAuth()
        super().__init__(spec, _API, self._auth.selectors(), spec.webhookSecret, now)
        self._bitbucket = spec

    def settings(self) -> Mapping[str, Any]:
        return {"active": True, "events": self._events()}

    def _events(self) -> Sequence[str]:
        """Bitbucket has no word for all of them, but a list, which grows."""
        wanted = self._bitbucket.events
        if EVERYTHING not in wanted:
            return sorted(set(wanted))
        try:
            return sorted(each["event"] for each in self.all_of(_TYPES.path, _TYPES))
        except (KeyError, TypeError):
            raise ForgeError("Bitbucket has answered with something other than a list of types of events") from None

    def found(self, hook: Mapping[str, Any]) -> Found:
        settings = {"active": hook["active"], "events": sorted(hook["events"]), "created_at": hook["created_at"]}
        return Found(hook["uuid"], hook["url"], settings)

    def age(self, hook: Found) -> Any:
        return str(hook.settings["created_at"]), hook.id

    def body(self, settings: Mapping[str, Any], secret: Secret | None) -> Mapping[str, Any]:
        described = {"description": "kafka-eventbus", "url": self.url, **settings}
        return {**described, **({} if secret is None else {"secret": secret.reveal()})}

    def page(self, answer: Answer) -> tuple[Sequence[Any], str]:
        try:
            content = msgspec.json.decode(answer.body, type=_Page)
        except msgspec.DecodeError:
            raise ForgeError("Bitbucket has answered with something other than a page of a list") from None
        return content.values, content.next

    def authorization(self) -> tuple[str, Secret]:
        return "Authorization", self._auth.header()


class _Page(msgspec.Struct):
    values: list[Any]
    next: str = ""
