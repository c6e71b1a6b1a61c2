"""What the APIs of GitHub, GitLab and Bitbucket have in common: hooks are listed, made, changed and removed over HTTP.

Nothing that a service says leads a request elsewhere: of the address of a next page only its query is used, so that
the token goes to no other host.
"""

from __future__ import annotations

import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import quote, urlsplit

import msgspec

from eventbus.errors import ConfigError
from eventsources.registration.plan import Found, Place
from sensors.actions.addresses import AddressGuard
from sensors.actions.base import ActionError
from sensors.actions.http_client import Answer, HttpClient
from sensors.actions.replies import excerpt, seconds_asked, status_text
from sensors.actions.tls import Tls, TlsSecrets
from sensors.secrets import Secret, SecretKeySelector

if TYPE_CHECKING:
    from eventsources.receiver.hooks import ForgeSpec

_REQUEST_SECONDS = 10.0
_MOST_BYTES = 4 << 20
"""Of one page of hooks."""
_MOST_PAGES = 50
_LIMITED_SECONDS = 60.0
"""How long to wait where a service does not say for how long."""
_LONGEST_LIMIT = 3600.0
_NEXT = re.compile(r'<([^>]*)>[^,]*;\s*rel="?next"?')


class ForgeError(Exception):
    """A service did not do what it was asked for; the message says why, and what to check."""

    def __init__(
        self, message: str, *, lasting: bool = False, everywhere: bool = False, seconds: float | None = None
    ) -> None:
        """`lasting`: somebody has to change something; to ask again soon would only be a nuisance.

        `everywhere`: it would be no better for another place. `seconds`: the service wants no requests for so long.
        """
        super().__init__(message)
        self.lasting = lasting
        self.everywhere = everywhere
        self.seconds = seconds


class Forge(ABC):
    """The hooks of one event at one service. Used by one thread."""

    updating: ClassVar[str]
    """The method that changes a hook."""
    first_page: ClassVar[str]
    """The query for as many hooks at once as there can be."""
    permission: ClassVar[str]
    """What the credentials must allow."""
    headers: ClassVar[Mapping[str, str]] = {}
    """What every request says beside who we are."""

    def __init__(
        self,
        spec: ForgeSpec,
        base: str,
        credentials: Iterable[SecretKeySelector],
        secret: SecretKeySelector | None,
        now: Callable[[], float] = time.time,
    ) -> None:
        """`base` is the address of the API, `secret` what the service is to prove its requests with."""
        self.places = spec.places()
        self.url = spec.webhook.url.rstrip("/") + spec.webhook.endpoint
        self._spec = spec
        self._base = base.rstrip("/")
        self._credentials = tuple(credentials)
        self._secret = secret
        self._now = now
        self._proof = ""
        tls = Tls().context(TlsSecrets()) if base.startswith("https:") else None
        self._client = HttpClient(_REQUEST_SECONDS, tls, guard=AddressGuard.of(base, ()), max_body=_MOST_BYTES)

    def secret(self) -> Secret | None:
        """Raises `ConfigError`."""
        found = None if self._secret is None else self._secret.read()
        if found is not None and not found.reveal():
            raise ConfigError(f"`{self._spec.proofs[0]}` is empty: nobody could be let in with it")
        return found

    def secrets(self) -> tuple[Secret, ...]:
        """All that is read from elsewhere and may change. Raises `ConfigError`."""
        selectors = (*self._credentials, *(() if self._secret is None else (self._secret,)))
        return tuple(each.read() for each in selectors)

    def close(self) -> None:
        self._client.close()

    # --- what each service has its own way of -------------------------------------------------------------------------

    @abstractmethod
    def settings(self) -> Mapping[str, Any]:
        """What is wanted, in the form of `Found.settings`. Raises `ForgeError`."""

    @abstractmethod
    def found(self, hook: Mapping[str, Any]) -> Found:
        """A hook as the service shows it; any error means that it is none."""

    @abstractmethod
    def body(self, settings: Mapping[str, Any], secret: Secret | None) -> Mapping[str, Any]:
        """What is sent to make a hook, or to change one."""

    @abstractmethod
    def authorization(self) -> tuple[str, Secret]:
        """The header that proves who we are. Raises `ConfigError` or `ForgeError`."""

    def page(self, answer: Answer) -> tuple[Sequence[Any], str]:
        """The entries of a page, and where the next one is: empty where there is none."""
        following = _NEXT.search(answer.headers.get("Link", ""))
        return _json(answer), following[1] if following else ""

    # --- what they share ----------------------------------------------------------------------------------------------

    def hooks(self, place: Place) -> list[Found]:
        """In the order of age. Raises `ForgeError` or `ConfigError`."""
        try:
            return sorted(map(self.found, self.all_of(place.path, place)), key=self.age)
        except (AttributeError, KeyError, TypeError, ValueError):
            raise ForgeError(f"{self._spec.forge} has answered with something other than a list of hooks") from None

    def age(self, hook: Found) -> Any:
        """What is smaller for a hook that was made earlier."""
        return int(hook.id)

    def all_of(self, path: str, place: Place) -> list[Any]:
        entries: list[Any] = []
        query = self.first_page
        for _ in range(_MOST_PAGES):
            content, following = self.page(self._ask("GET", f"{path}?{query}", place))
            entries += content
            query = urlsplit(following).query
            if not query:
                return entries
        raise ForgeError(f"{self._spec.forge} has more than {_MOST_PAGES} pages of hooks here", lasting=True)

    def create(self, place: Place, settings: Mapping[str, Any], secret: Secret | None) -> None:
        self._ask("POST", place.path, place, self.body(settings, secret))

    def update(self, place: Place, id: str, settings: Mapping[str, Any], secret: Secret | None) -> None:
        self._ask(self.updating, self._path(place, id), place, self.body(settings, secret))

    def remove(self, place: Place, id: str) -> None:
        """Whoever has removed it already has done no harm."""
        self._ask("DELETE", self._path(place, id), place, absent=True)

    def _path(self, place: Place, id: str) -> str:
        return f"{place.path}/{quote(id, safe='')}"

    def _ask(
        self, method: str, path: str, place: Place, body: Mapping[str, Any] | None = None, *, absent: bool = False
    ) -> Answer:
        answer = self.send(method, path, self.authorization(), body)
        if 200 <= answer.status < 300 or (absent and answer.status == 404):
            return answer
        raise self.error(answer, place.label)

    def send(self, method: str, path: str, proof: tuple[str, Secret], body: Mapping[str, Any] | None = None) -> Answer:
        name, value = proof
        self._proof = _header_value(value)
        headers = {"Accept": "application/json", "User-Agent": "kafka-eventbus", **self.headers, name: self._proof}
        if body is not None:
            headers["Content-Type"] = "application/json"
        try:
            content = None if body is None else msgspec.json.encode(body)
            return self._client.request(method, self._base + path, headers, content)
        except ActionError as error:
            raise ForgeError(f"{self._spec.forge} cannot be reached: {error}", everywhere=True) from None

    def error(self, answer: Answer, label: str) -> ForgeError:
        """One line that says what was asked for, and what to check."""
        forge, status = self._spec.forge, answer.status
        waiting = self._limit(answer)
        if waiting is not None:
            message = f"{forge} wants no more requests for {waiting:.0f} s ({status})"
            return ForgeError(message, everywhere=True, seconds=waiting)
        credentials = " or ".join(f"`{name}`" for name in self._spec.credentials if getattr(self._spec, name))
        if status == 401:
            message = f"{forge} does not accept {credentials} (401): it is wrong or has expired"
            return ForgeError(message, lasting=True, everywhere=True)
        if status == 403:
            return ForgeError(f"{forge} does not permit it (403): {credentials} needs {self.permission}", lasting=True)
        if status == 404:
            message = f"{forge} does not know {label}, or {credentials} may not administer it (404): "
            return ForgeError(f"{message}check the name, and that it has {self.permission}", lasting=True)
        said = excerpt(answer.body, [Secret(self._proof.rpartition(" ")[2]), *self.secrets()])
        return ForgeError(f"{forge} answered {status_text(status)}{f': {said}' if said else ''}", lasting=status < 500)

    def _limit(self, answer: Answer) -> float | None:
        """For how long it wants no requests, if it says that there were too many, or that it is down for a while."""
        headers, now = answer.headers, self._now()
        asked = seconds_asked(answer.retry_after, now)
        none_left = headers.get("X-RateLimit-Remaining") == "0"
        too_many = none_left or asked is not None or b"rate limit" in answer.body[:4096].lower()
        if not (answer.status == 429 or (answer.status == 403 and too_many) or (answer.status == 503 and asked)):
            return None
        reset = headers.get("X-RateLimit-Reset" if none_left else "RateLimit-Reset", "")
        if asked is None and re.fullmatch(r"\d{1,12}", reset):
            asked = float(reset) - now
        return min(max(1.0, _LIMITED_SECONDS if asked is None else asked), _LONGEST_LIMIT)


def _json(answer: Answer) -> Any:
    try:
        return msgspec.json.decode(answer.body)
    except msgspec.DecodeError:
        return None


def _header_value(secret: Secret) -> str:
    """The message does not show it."""
    text = secret.reveal()
    if not re.fullmatch(r"[\x21-\x7e]+( [\x21-\x7e]+)?", text):
        message = "the credentials are empty or contain characters that no token has"
        raise ForgeError(message, lasting=True, everywhere=True)
    return text
