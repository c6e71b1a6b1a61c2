"""What happens at GitHub, as its webhooks tell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

from pydantic import StrictInt

from eventsources.base import Refusal, Request
from eventsources.receiver.content import FORM, checked_object, form_of, media_type_of
from eventsources.receiver.hooks import SignedForgeEndpoint, SignedForgeSpec
from eventsources.registration.plan import Place, hooks_below
from sensors.extras import lacking
from sensors.secrets import SecretKeySelector
from sensors.spec.base import Flaw, SpecModel, get
from sensors.spec.fields import Bool, Text

if TYPE_CHECKING:
    from eventsources.registration.forge import Forge


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
    credentials = ("apiToken", "githubApp")
    whereabouts = ("repositories", "organizations")
    address = "githubBaseURL"

    id: StrictInt = 0
    """Not used, as in argo-events."""
    contentType: Literal["json", "form"] = "json"
    """How a registered hook sends its content; both are understood."""
    insecure: Bool = False
    """A registered hook is not to check the certificate at `webhook.url`."""
    active: Bool = True
    """Whether a registered hook sends anything; argo-events' own default is that it does not."""
    apiToken: SecretKeySelector | None = None
    """A token that may administer hooks: with it and `webhook.url`, hooks are registered."""
    githubApp: GithubApp | None = None
    """An App that may, where there is no `apiToken`."""
    repositories: tuple[OwnedRepositories, ...] = ()
    organizations: tuple[Text, ...] = ()
    owner: Text = ""
    """Of `repository`; not used where there are `repositories`."""
    repository: Text = ""
    githubBaseURL: Text = ""
    """Of a GitHub Enterprise Server."""
    githubUploadURL: Text = ""
    """Not used: nothing is uploaded."""

    @classmethod
    def flaws(cls, data: Any) -> Iterator[Flaw]:
        yield from super().flaws(data)
        missing = lacking("github", ("cryptography",)) if get(data, "githubApp") is not None else None
        if missing is not None:
            yield Flaw(("githubApp",), missing, about_key=True)

    def places(self) -> Sequence[Place]:
        pairs = [(each.owner, name) for each in self.repositories for name in each.names]
        if not self.repositories and self.owner and self.repository:
            pairs = [(self.owner, self.repository)]
        repositories = [
            Place(f"the repository `{owner}/{name}`", hooks_below("repos", owner, name)) for owner, name in pairs
        ]
        organizations = [Place(f"the organization `{name}`", hooks_below("orgs", name)) for name in self.organizations]
        return list(dict.fromkeys([*repositories, *organizations]))

    def api(self) -> Forge:
        from eventsources.registration.github import GithubForge  # noqa: PLC0415 - only who registers hooks needs it

        return GithubForge(self)


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
