"""What happens at GitLab, as its webhooks tell."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from eventsources.base import Request
from eventsources.receiver.auth import check_token
from eventsources.receiver.hooks import EVERYTHING, ForgeEndpoint, ForgeSpec
from eventsources.registration.plan import Place, hooks_below
from sensors.secrets import SecretKeySelector
from sensors.spec.base import Flaw, entries
from sensors.spec.fields import Bool, Text

if TYPE_CHECKING:
    from eventsources.registration.forge import Forge

_TYPES = {
    "ConfidentialIssuesEvents": "Confidential Issue Hook",
    "ConfidentialNoteEvents": "Confidential Note Hook",
    "DeploymentEvents": "Deployment Hook",
    "EmojiEvents": "Emoji Hook",
    "FeatureFlagEvents": "Feature Flag Hook",
    "IssuesEvents": "Issue Hook",
    "JobEvents": "Job Hook",
    "MemberEvents": "Member Hook",
    "MergeRequestsEvents": "Merge Request Hook",
    "MilestoneEvents": "Milestone Hook",
    "NoteEvents": "Note Hook",
    "PipelineEvents": "Pipeline Hook",
    "PushEvents": "Push Hook",
    "ReleasesEvents": "Release Hook",
    "ResourceAccessTokenEvents": "Resource Access Token Hook",
    "SubGroupEvents": "Subgroup Hook",
    "TagPushEvents": "Tag Push Hook",
    "WikiPageEvents": "Wiki Page Hook",
}
"""What GitLab's API calls them, and argo-events with it, and what the header says."""
_OF_GROUPS = frozenset(("MemberEvents", "SubGroupEvents"))


class GitlabSpec(ForgeSpec):
    """Requests of GitLab's, which bring `secretToken`."""

    forge = "GitLab"
    proofs = ("secretToken",)
    credentials = ("accessToken",)
    whereabouts = ("projects", "groups")
    address = "gitlabBaseURL"

    secretToken: SecretKeySelector | None = None
    """What the hook is, or was, registered with as its secret token."""
    enableSSLVerification: Bool = False
    """Whether a registered hook checks the certificate at `webhook.url`."""
    accessToken: SecretKeySelector | None = None
    """A token that may administer hooks: with it and `webhook.url`, hooks are registered."""
    projects: tuple[Text, ...] = ()
    """By id or path: `group/project`."""
    groups: tuple[Text, ...] = ()
    """The same. GitLab has hooks of groups in its paid tiers."""
    projectID: Text = ""
    """Not used where there are `projects`."""
    gitlabBaseURL: Text = ""
    """Of one's own instance."""

    @classmethod
    def flaws(cls, data: Any) -> Iterator[Flaw]:
        yield from super().flaws(data)
        for index, name in entries(data, "events"):
            if isinstance(name, str) and name not in (*_TYPES, EVERYTHING):
                known = ", ".join(f"`{each}`" for each in (EVERYTHING, *_TYPES))
                yield Flaw(("events", index), f"GitLab has no `{name}`; there are {known}")

    def advice(self) -> Iterator[Flaw]:
        yield from super().advice()
        if not self.registers:
            return
        if self.webhook.url.startswith("https:") and not self.enableSSLVerification:
            message = "GitLab would send its events to whoever pretends to be us: set `enableSSLVerification`"
            yield Flaw(("webhook", "url"), message)
        for index, name in enumerate(self.events):
            if name in _OF_GROUPS and not self.groups:
                yield Flaw(("events", index), f"only hooks of `groups` tell of `{name}`")

    def switches(self) -> Mapping[str, bool]:
        """What a registered hook tells of, as GitLab's API calls it."""
        return {_switch(name): name in self.events or EVERYTHING in self.events for name in _TYPES}

    def places(self) -> Sequence[Place]:
        projects = self.projects or ((self.projectID,) if self.projectID else ())
        named = [("project", name) for name in projects] + [("group", name) for name in self.groups]
        return list(dict.fromkeys(Place(f"the {what} `{name}`", hooks_below(f"{what}s", name)) for what, name in named))

    def api(self) -> Forge:
        from eventsources.registration.gitlab import GitlabForge  # noqa: PLC0415 - only who registers hooks needs it

        return GitlabForge(self)


def _switch(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name.replace("SubGroup", "Subgroup")).lower()


class GitlabEndpoint(ForgeEndpoint):
    """Repeats have the id of the first where GitLab says so, which it does from version 17.4 on.

    `X-Gitlab-Event-UUID` is no id: hooks that are set off by what a hook has done share it.
    """

    event_header = "x-gitlab-event"
    id_headers = ("idempotency-key", "x-gitlab-webhook-uuid")

    def __init__(self, spec: GitlabSpec) -> None:
        super().__init__(spec)
        self._token = spec.secretToken

    def types(self, events: Sequence[str]) -> frozenset[str]:
        return frozenset(_TYPES[name] for name in events)

    def authorize(self, request: Request) -> None:
        if self._token is not None:
            check_token(request, "X-Gitlab-Token", self._token)
