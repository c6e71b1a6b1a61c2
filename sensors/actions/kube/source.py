"""Where the object that an action is about comes from, as a manifest says it. Reading it is `fetch`'s business."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from eventbus.errors import ConfigError
from sensors.actions.kube.objects import object_fault, parse_object
from sensors.secrets import ConfigMapKeySelector, SecretKeySelector
from sensors.spec.base import Flaw, SpecModel, get
from sensors.spec.fields import Bool, CountFromOne, KubernetesName, Text

_ENDPOINT = re.compile(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:\d{1,5})?")
_BUCKET = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")
_REFERENCE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._/+@-]*")
_GIT_URL = re.compile(r"(https?|ssh|git|file)://[\x21-\x7e]+|[A-Za-z0-9._-]+@[A-Za-z0-9.-]+:[\x21-\x7e]+|/[^\0]+")


def _valid_endpoint(text: str) -> str:
    if not _ENDPOINT.fullmatch(text):
        raise ValueError("must be a host, with or without a port, and without `http://`")
    return text


def _valid_bucket(text: str) -> str:
    if not _BUCKET.fullmatch(text):
        raise ValueError("must be the name of a bucket: letters, digits, `-`, `_` and `.`, not beginning with `.`")
    return text


def _valid_key(text: str) -> str:
    """HTTP clients follow `..` upwards, into other buckets."""
    if not text or {".", ".."} & set(text.split("/")):
        raise ValueError("must be the key of an object, without `.` and `..` as steps")
    return text


def _valid_url(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or not re.fullmatch(r"[\x21-\x7e]+", text):
        raise ValueError("must be a complete http:// or https:// address")
    if "@" in parts.netloc:
        raise ValueError("must not contain a user name or password: they would show up in logs")
    return text


def _valid_git_url(text: str) -> str:
    if not _GIT_URL.fullmatch(text):
        raise ValueError("must be an address that git can clone: https://…, ssh://…, git@host:path, or a directory")
    if text.startswith("http") and "@" in urlsplit(text).netloc:
        raise ValueError("must not contain a user name or password: they would show up in logs; use `creds`")
    return text


def _valid_reference(text: str) -> str:
    """What begins with a dash would be an option of git."""
    if text and (not _REFERENCE.fullmatch(text) or ".." in text):
        raise ValueError("must be the name of a branch, tag or reference")
    return text


def _valid_file_path(text: str) -> str:
    steps = text.split("/")
    if not all(steps) or not text.isprintable() or ".." in steps or "~" in text or "\\" in text:
        raise ValueError("must be the path of a file inside the repository, without `..`, `~` or backslashes")
    return text


def _valid_directory(text: str) -> str:
    if text and (not text.startswith("/") or ".." in text.split("/")):
        raise ValueError("must be an absolute path without `..`")
    return text


GitReference = Annotated[Text, AfterValidator(_valid_reference)]


class S3Bucket(SpecModel):
    """Which object of the store."""

    name: Annotated[Text, AfterValidator(_valid_bucket)]
    """The bucket."""
    key: Annotated[Text, AfterValidator(_valid_key)]
    """The object in it."""


class S3Source(SpecModel):
    """An object of an S3-compatible store."""

    not_yet: ClassVar[frozenset[str]] = frozenset(("events", "filter", "metadata"))

    endpoint: Annotated[Text, AfterValidator(_valid_endpoint)]
    """Host and port of the store. A parameter may change the port, but not the host."""
    bucket: S3Bucket
    region: Text = ""
    """The region that requests are signed for; empty means `us-east-1`."""
    insecure: Bool = False
    """Plain HTTP. Anybody in between can then choose what is created."""
    accessKey: SecretKeySelector
    """The secret with the access key."""
    secretKey: SecretKeySelector
    """The secret with the secret key."""
    caCertificate: SecretKeySelector | None = None
    """The secret with the certificate authorities to trust instead of the system's."""

    @property
    def host(self) -> str:
        return self.endpoint.rpartition(":")[0] or self.endpoint if not self.endpoint.endswith("]") else self.endpoint


class FileSource(SpecModel):
    """A file that the sensor can read."""

    path: Annotated[Text, Field(min_length=1)]
    """Where it is."""


class UrlSource(SpecModel):
    """A page of a web server. Redirects are not followed."""

    path: Annotated[Text, AfterValidator(_valid_url)]
    """The address. A parameter may change what follows the host, but not the host."""
    verifyCert: Bool = True
    """False, as argo-events has it by default: accept any certificate. Anybody in between can then choose what is
    created."""
    verifycert: Bool | None = None
    """The same, as argo-events' examples spell it."""

    @property
    def verified(self) -> bool:
        return self.verifyCert if self.verifycert is None else self.verifycert

    @property
    def origin(self) -> tuple[str, str]:
        parts = urlsplit(self.path)
        return parts.scheme, parts.netloc.lower()


class ConfigMapSource(ConfigMapKeySelector):
    """An entry of a config map: mounted or in the environment, as others are, or else read from the cluster."""

    namespace: KubernetesName | None = None
    """Where the cluster has it; the sensor's namespace unless given."""


class GitCredentials(SpecModel):
    """Who we are, by name and password."""

    username: SecretKeySelector
    """The secret with the name."""
    password: SecretKeySelector
    """The secret with the password or token."""


class GithubApp(SpecModel):
    """Who we are, as a GitHub App. Needs the `openssl` command, and an https:// address."""

    privateKey: SecretKeySelector
    """The secret with the app's private key in PEM format."""
    appID: CountFromOne
    """The app."""
    installationID: CountFromOne
    """The app's installation, which says whose repositories it may read."""


class GitRemote(SpecModel):
    """A remote repository to fetch from instead of `url`."""

    name: GitReference
    """What git calls it."""
    urls: Annotated[tuple[Annotated[Text, AfterValidator(_valid_git_url)], ...], Field(min_length=1)]
    """Its addresses; the first is used."""


class GitSource(SpecModel):
    """A file of a git repository. Needs the `git` command, and `ssh` for `sshKeySecret`."""

    url: Annotated[Text, AfterValidator(_valid_git_url)]
    """The repository."""
    filePath: Annotated[Text, AfterValidator(_valid_file_path)]
    """The file in it."""
    cloneDirectory: Annotated[Text, AfterValidator(_valid_directory)] = ""
    """Where to keep the repository between calls; without it, every call fetches it anew."""
    creds: GitCredentials | None = None
    sshKeySecret: SecretKeySelector | None = None
    """The secret with the private key for ssh."""
    githubApp: GithubApp | None = None
    branch: GitReference = ""
    """The branch; without `branch`, `tag` and `ref`, the repository's own default."""
    tag: GitReference = ""
    """The tag; it wins over `branch`."""
    ref: GitReference = ""
    """Any reference or commit, for instance `refs/pull/1/head`; it wins over both."""
    remote: GitRemote | None = None
    insecureIgnoreHostKey: Bool = False
    """Accept any ssh host, also one that `known_hosts` does not list. Anybody in between can then choose what is
    created."""

    @classmethod
    def flaws(cls, data: Any) -> Iterator[Flaw]:
        ways = [name for name in ("creds", "sshKeySecret", "githubApp") if get(data, name) is not None]
        if len(ways) > 1:
            yield Flaw((ways[1],), f"`{ways[0]}` and `{ways[1]}` both say who we are; leave one out", about_key=True)
        if "githubApp" in ways and not str(get(data, "url")).startswith("https://"):
            yield Flaw(("githubApp",), "`githubApp` needs an https:// address", about_key=True)

    @property
    def address(self) -> str:
        return self.url if self.remote is None else self.remote.urls[0]

    @property
    def wanted(self) -> str:
        """What to fetch."""
        if self.ref:
            return self.ref
        if self.tag:
            return f"refs/tags/{self.tag}"
        return f"refs/heads/{self.branch}" if self.branch else "HEAD"


class Source(SpecModel):
    """Where the object comes from: exactly one of these. All but `resource` and `inline` are read for every call."""

    resource: dict[Text, Any] | None = None
    """The object itself."""
    inline: Text | None = None
    """The object as YAML or JSON text."""
    file: FileSource | None = None
    url: UrlSource | None = None
    configmap: ConfigMapSource | None = None
    git: GitSource | None = None
    s3: S3Source | None = None

    @classmethod
    def flaws(cls, data: Any) -> Iterator[Flaw]:
        if not isinstance(data, Mapping):
            return
        given = [name for name in cls.model_fields if get(data, name) is not None]
        if len(given) != 1:
            known = ", ".join(f"`{name}`" for name in cls.model_fields)
            yield Flaw((), f"a source has exactly one of {known}; this one has {len(given)}")
            return
        resource, inline = get(data, "resource"), get(data, "inline")
        if isinstance(resource, Mapping):
            fault = object_fault(resource)
            if fault is not None:
                yield Flaw(("resource",), fault)
        if isinstance(inline, str):
            try:
                parse_object(inline, "inline")
            except ConfigError as error:
                yield Flaw(("inline",), f"the text is not one Kubernetes object: {error}")

    @property
    def written(self) -> Mapping[str, Any] | None:
        """The object, where the manifest itself has it."""
        return parse_object(self.inline, "inline") if self.inline is not None else self.resource
