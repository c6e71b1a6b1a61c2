"""What happens at GitLab, as its webhooks tell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from eventsources.base import Request
from eventsources.receiver.auth import check_token
from eventsources.receiver.hooks import EVERYTHING, ForgeEndpoint, ForgeSpec
from sensors.secrets import SecretKeySelector
from sensors.spec.base import Flaw, entries
from sensors.spec.fields import Bool, Text

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


class GitlabSpec(ForgeSpec):
    """Requests of GitLab's, which bring `secretToken`."""

    forge = "GitLab"
    proofs = ("secretToken",)
    for_registration = ("accessToken", "projects", "groups", "projectID", "gitlabBaseURL")

    secretToken: SecretKeySelector | None = None
    """What the hook was registered with as its secret token."""
    enableSSLVerification: Bool = False
    """Not used: register the hook yourself."""
    accessToken: SecretKeySelector | None = None
    """Not used: register the hook yourself."""
    projects: tuple[Text, ...] = ()
    """Not used: register the hook yourself."""
    groups: tuple[Text, ...] = ()
    """Not used: register the hook yourself."""
    projectID: Text = ""
    """Not used: register the hook yourself."""
    gitlabBaseURL: Text = ""
    """Not used: register the hook yourself."""

    @classmethod
    def flaws(cls, data: Any) -> Iterator[Flaw]:
        for index, name in entries(data, "events"):
            if isinstance(name, str) and name not in (*_TYPES, EVERYTHING):
                known = ", ".join(f"`{each}`" for each in (EVERYTHING, *_TYPES))
                yield Flaw(("events", index), f"GitLab has no `{name}`; there are {known}")


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
