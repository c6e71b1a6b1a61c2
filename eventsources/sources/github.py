"""What happens at GitHub, as its webhooks tell."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import StrictInt

from eventsources.base import Refusal, Request
from eventsources.receiver.content import FORM, checked_object, form_of, media_type_of
from eventsources.receiver.hooks import SignedForgeEndpoint, SignedForgeSpec
from sensors.secrets import SecretKeySelector
from sensors.spec.base import SpecModel
from sensors.spec.fields import Bool, Text


class OwnedRepositories(SpecModel):
    """Several repositories of one owner."""

    owner: Text
    """Whose they are."""
    names: tuple[Text, ...]
    """Which ones."""


class GithubApp(SpecModel):
    """Credentials of a GitHub App."""

    privateKey: SecretKeySelector
    appID: StrictInt
    """The number of the app."""
    installationID: StrictInt
    """The number of its installation."""


class GithubSpec(SignedForgeSpec):
    """Requests of GitHub's, signed with `webhookSecret`."""

    forge = "GitHub"
    for_registration = (
        *("apiToken", "githubApp", "repositories", "organizations", "owner", "repository"),
        *("githubBaseURL", "githubUploadURL"),
    )

    contentType: Literal["json", "form"] = "json"
    """Not used: register the hook yourself; both are understood."""
    insecure: Bool = False
    """Not used: register the hook yourself."""
    active: Bool = True
    """Not used: register the hook yourself."""
    apiToken: SecretKeySelector | None = None
    """Not used: register the hook yourself."""
    githubApp: GithubApp | None = None
    """Not used: register the hook yourself."""
    repositories: tuple[OwnedRepositories, ...] = ()
    """Not used: register the hook yourself."""
    organizations: tuple[Text, ...] = ()
    """Not used: register the hook yourself."""
    owner: Text = ""
    """Not used: register the hook yourself."""
    repository: Text = ""
    """Not used: register the hook yourself."""
    githubBaseURL: Text = ""
    """Not used: register the hook yourself."""
    githubUploadURL: Text = ""
    """Not used: register the hook yourself."""


class GithubEndpoint(SignedForgeEndpoint):
    """Redeliveries have the id of the first delivery."""

    signature_header = "X-Hub-Signature-256"
    event_header = "x-github-event"
    id_headers = ("x-github-delivery",)

    def body(self, request: Request) -> dict[str, Any]:
        """With two of the headers in it, where argo-events' sensors look for them."""
        content = form_of(request).get("payload") if media_type_of(request) == FORM else request.body
        if content is None:
            raise Refusal(400, "the form has no field `payload`")
        fields = checked_object(content.encode() if isinstance(content, str) else content)
        copied = {name: request.header(name.lower()) or "" for name in ("X-GitHub-Event", "X-GitHub-Delivery")}
        return {**fields, **copied}
