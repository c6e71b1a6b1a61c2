"""What happens at Bitbucket, as its webhooks tell; both Bitbucket Cloud and a server of one's own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from eventsources.receiver.hooks import SignedForgeEndpoint, SignedForgeSpec
from eventsources.registration.plan import Place, hooks_below
from sensors.actions.http import BasicAuth
from sensors.secrets import Secret, SecretKeySelector
from sensors.spec.base import Flaw, SpecModel, get
from sensors.spec.fields import Text

if TYPE_CHECKING:
    from eventsources.registration.forge import Forge


class BitbucketAuth(SpecModel):
    """Credentials for Bitbucket's API."""

    basic: BasicAuth | None = None
    """An account and one of its API tokens, as name and password."""
    oauthToken: SecretKeySelector | None = None
    """An access token, where there is no `basic`."""

    @classmethod
    def flaws(cls, data: Any) -> Iterator[Flaw]:
        if get(data, "basic") is None and get(data, "oauthToken") is None:
            yield Flaw((), "`auth` needs `basic` or `oauthToken`")

    def selectors(self) -> Sequence[SecretKeySelector]:
        if self.basic is not None:
            return self.basic.username, self.basic.password
        return [] if self.oauthToken is None else [self.oauthToken]

    def header(self) -> Secret:
        if self.basic is not None:
            return self.basic.header()
        return Secret(" ".join(("Bearer", *(each.read().reveal() for each in self.selectors()))))


class BitbucketRepository(SpecModel):
    """One repository."""

    owner: Text
    """Whose it is."""
    repositorySlug: Text
    """Its name in URLs."""


class BitbucketSpec(SignedForgeSpec):
    """Requests of Bitbucket's, signed with `webhookSecret`, which argo-events does not have here."""

    forge = "Bitbucket"
    credentials = ("auth",)
    whereabouts = ("repositories",)

    auth: BitbucketAuth | None = None
    """With it and `webhook.url`, hooks are registered; at Bitbucket Cloud, not at a server of one's own."""
    repositories: tuple[BitbucketRepository, ...] = ()
    owner: Text = ""
    """Of `repositorySlug`; not used where there are `repositories`."""
    projectKey: Text = ""
    """Not used: Bitbucket Cloud finds a repository without it."""
    repositorySlug: Text = ""

    def places(self) -> Sequence[Place]:
        pairs = [(each.owner, each.repositorySlug) for each in self.repositories]
        if not pairs and self.owner and self.repositorySlug:
            pairs = [(self.owner, self.repositorySlug)]
        named = (
            Place(f"the repository `{owner}/{slug}`", hooks_below("repositories", owner, slug)) for owner, slug in pairs
        )
        return list(dict.fromkeys(named))

    def api(self) -> Forge:
        from eventsources.registration.bitbucket import BitbucketForge  # noqa: PLC0415 - only who registers hooks

        return BitbucketForge(self)


class BitbucketEndpoint(SignedForgeEndpoint):
    """Further attempts have the id of the first."""

    signature_header = "X-Hub-Signature"
    event_header = "x-event-key"
    id_headers = ("x-request-uuid", "x-request-id")
