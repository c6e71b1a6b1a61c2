"""What happens at Bitbucket, as its webhooks tell; both Bitbucket Cloud and a server of one's own."""

from __future__ import annotations

from eventsources.receiver.hooks import SignedForgeEndpoint, SignedForgeSpec
from sensors.secrets import SecretKeySelector
from sensors.spec.base import SpecModel
from sensors.spec.fields import Text


class BasicAuth(SpecModel):
    """A user and a password."""

    username: SecretKeySelector
    password: SecretKeySelector


class BitbucketAuth(SpecModel):
    """Credentials for Bitbucket's API."""

    basic: BasicAuth | None = None
    oauthToken: SecretKeySelector | None = None


class BitbucketRepository(SpecModel):
    """One repository."""

    owner: Text
    """Whose it is."""
    repositorySlug: Text
    """Its name in URLs."""


class BitbucketSpec(SignedForgeSpec):
    """Requests of Bitbucket's, signed with `webhookSecret`, which argo-events does not have here."""

    forge = "Bitbucket"
    for_registration = ("auth", "repositories", "owner", "projectKey", "repositorySlug")

    auth: BitbucketAuth | None = None
    """Not used: register the hook yourself."""
    repositories: tuple[BitbucketRepository, ...] = ()
    """Not used: register the hook yourself."""
    owner: Text = ""
    """Not used: register the hook yourself."""
    projectKey: Text = ""
    """Not used: register the hook yourself."""
    repositorySlug: Text = ""
    """Not used: register the hook yourself."""


class BitbucketEndpoint(SignedForgeEndpoint):
    """Further attempts have the id of the first."""

    signature_header = "X-Hub-Signature"
    event_header = "x-event-key"
    id_headers = ("x-request-uuid", "x-request-id")
