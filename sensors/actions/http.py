"""The `http` action: one request per action, with an idempotency key, and an honest account of what happened to it."""

from __future__ import annotations

import re
import time
from base64 import b64encode
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from eventbus.errors import ConfigError
from sensors.actions.addresses import AddressGuard
from sensors.actions.base import ActionCall, ActionContext, ActionError, SpecModel
from sensors.actions.body import JSON, body_of, trace_of
from sensors.actions.patched import Patch, PatchableSpec, keep_secrets
from sensors.actions.replies import excerpt, seconds_asked, status_text
from sensors.actions.tls import Tls, TlsSecrets
from sensors.actions.values import SecureHeader
from sensors.parameters import ParameterError, Parameters, Payload, as_text, resolved
from sensors.secrets import Refreshed, Secret, SecretKeySelector
from sensors.spec.base import Flaw, Path, entries, get
from sensors.spec.fields import CountFromOne, StringMap, Text

if TYPE_CHECKING:
    from sensors.actions.http_client import Answer, HttpClient

_RETRIABLE = frozenset((408, 425, 429))
_WITHOUT_BODY = frozenset(("GET", "DELETE"))
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_HEADER_VALUE = re.compile(r"[\x20-\x7e\t]*")
_HOST = re.compile(r"[A-Za-z0-9._-]+(:\d{1,5})?|\[[0-9A-Fa-f:.]+\](:\d{1,5})?")
_OUR_HEADERS = frozenset(("idempotency-key", "traceparent", "tracestate", "content-length", "transfer-encoding"))


# --- manifest -------------------------------------------------------------------------------------------------------


def valid_url(text: str) -> str:
    try:
        parts = urlsplit(text)
        host = (parts.hostname or "").encode("idna")  # refuses what no name server could be asked for
        complete = parts.scheme in ("http", "https") and bool(host) and parts.port != 0
    except ValueError:
        complete = False
    if not complete or not re.fullmatch(r"[\x21-\x7e]+", text):
        raise ValueError("must be a complete http:// or https:// address")
    if "@" in parts.netloc:
        raise ValueError("must not contain a user name or password: they would show up in logs; use `basicAuth`")
    return text


def _valid_host(text: str) -> str:
    if not _HOST.fullmatch(text):
        raise ValueError("must be a host name, with or without a port")
    return text


def _valid_allowed_host(text: str) -> str:
    if not re.fullmatch(r"(\*\.)?[A-Za-z0-9_-][A-Za-z0-9._-]*|[0-9A-Fa-f:.]+", text):
        raise ValueError("must be a host name or an address, without a port; `*.` before a name is all hosts below it")
    return text


class BasicAuth(SpecModel):
    """Who we are, by name and password."""

    not_yet: ClassVar[frozenset[str]] = frozenset(("namespace",))

    username: SecretKeySelector
    """The secret with the name."""
    password: SecretKeySelector
    """The secret with the password."""

    def header(self) -> Secret:
        pair = f"{self.username.read().reveal()}:{self.password.read().reveal()}"
        return Secret(f"Basic {b64encode(pair.encode()).decode()}")


class HttpSpec(PatchableSpec):
    """Call an HTTP server."""

    patchable: ClassVar[tuple[str, ...]] = ("url", "method", "host", "headers.*", "payload.*.src.value")

    url: Annotated[Text, AfterValidator(valid_url)]
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"] = "POST"
    headers: StringMap = Field(default={})
    secureHeaders: tuple[SecureHeader, ...] = ()
    """Headers whose values are secrets, read for every request."""
    dynamicHeaders: Parameters = Field(default=())
    """Headers whose values come from events; `dest` is the name of the header."""
    basicAuth: BasicAuth | None = None
    host: Annotated[Text, AfterValidator(_valid_host)] | None = None
    """The `Host` header, where it is not the host of `url`."""
    payload: Payload | None = None
    """The body. Without it, the body is a JSON object with one structured CloudEvent per dependency."""
    timeout: CountFromOne = 60
    """Seconds for the whole call."""
    tls: Tls | None = None
    allowHosts: tuple[Annotated[Text, AfterValidator(_valid_allowed_host)], ...] = ()
    """Hosts that events may lead to although they are not on the public Internet: `api.shop.svc`, `*.shop.svc`."""

    @classmethod
    def flaws(cls, data: Any) -> Iterator[Flaw]:
        yield from super().flaws(data)
        if get(data, "tls") is not None and str(get(data, "url")).startswith("http://"):
            yield Flaw(("tls",), "`tls` does nothing for an http:// address; write https://")
        yield from _header_flaws(data)

    @property
    def has_secrets(self) -> bool:
        return self.basicAuth is not None or bool(self.secureHeaders)

    @property
    def origin(self) -> tuple[str, str]:
        parts = urlsplit(self.url)
        return parts.scheme, parts.netloc.lower()

    def secret_headers(self) -> dict[str, Secret]:
        """Raises `ConfigError` when a secret is not there."""
        values = {header.name: header.valueFrom.read() for header in self.secureHeaders}
        return values if self.basicAuth is None else {"Authorization": self.basicAuth.header(), **values}

    def secrets(self) -> list[Secret]:
        """All that a server may repeat of them, the longest first."""
        secrets = list(self.secret_headers().values())
        if self.basicAuth is not None:
            secrets += [Secret(self.basicAuth.header().reveal().partition(" ")[2]), self.basicAuth.password.read()]
        return secrets


def _header_flaws(data: Any) -> Iterator[Flaw]:
    """All names of headers, wherever they are written, must be possible and different."""
    stand_for = {"basicAuth": "authorization", "host": "host"}
    seen = {header for field, header in stand_for.items() if get(data, field) is not None}
    for path, name, value in _written_headers(data):
        message = header_fault(name, value) or _repetition(name, seen)
        if message is not None:
            yield Flaw(path, message, about_key=path[0] == "headers")
        seen.add(name.lower())


def _written_headers(data: Any) -> Iterator[tuple[Path, str, Any]]:
    headers = get(data, "headers")
    for name, value in headers.items() if isinstance(headers, Mapping) else ():
        yield ("headers", str(name)), str(name), value
    for list_name, field in (("secureHeaders", "name"), ("dynamicHeaders", "dest")):
        for index, each in entries(data, list_name):
            name = get(each, field)
            if isinstance(name, str):
                yield (list_name, index, field), name, ""


def header_fault(name: str, value: Any) -> str | None:
    """Why this cannot be a header."""
    if not _HEADER_NAME.fullmatch(name):
        return f"{name!r} cannot be the name of a header"
    if isinstance(value, str) and not _HEADER_VALUE.fullmatch(value):
        return f"the header `{name}` contains a line break or another character that is not allowed"
    if name.lower() in _OUR_HEADERS:
        return f"the header `{name}` is set for every call and cannot be changed"
    return None


def _repetition(name: str, seen: Collection[str]) -> str | None:
    if name.lower() in seen:
        return f"the header `{name}` is set twice; upper and lower case do not matter"
    return None


# --- action ---------------------------------------------------------------------------------------------------------


class HttpAction:
    """Sends requests; 2xx is success, or what the policy allows; 408, 425, 429 and 5xx are worth another try."""

    Spec: ClassVar[type[SpecModel]] = HttpSpec

    def __init__(self, spec: HttpSpec, context: ActionContext, now: Callable[[], float] = time.time) -> None:
        self._spec = spec
        self._policy = context.policy
        self._patch = Patch(spec)
        self._host = spec.host or _host_in(spec.headers)
        self._now = now
        self._client: Refreshed[TlsSecrets, HttpClient] = Refreshed(self._tls_secrets, self._new_client, _close)
        spec.secret_headers()  # a secret that is not there is told now

    def invoke(self, call: ActionCall) -> str:
        spec = self._patch.spec(call)
        if spec.has_secrets:
            keep_secrets(self._spec.origin, spec.origin)
        body = None if spec.payload is None and spec.method in _WITHOUT_BODY else body_of(call, spec.payload)
        headers = {**_headers(spec, call), "Idempotency-Key": call.id, **trace_of(call)}
        if spec.has_secrets and _host_in(headers) != self._host:
            message = "the parameters lead to another `Host`, which must not get the secrets of the trigger"
            raise ActionError(message, retriable=False, sent=False)
        try:
            headers |= {name: _header_value(name, secret.reveal()) for name, secret in spec.secret_headers().items()}
            secrets = spec.secrets()
            client = self._client.get()
        except ConfigError as error:  # a secret that is not there, but may come back
            raise ActionError(str(error), retriable=True, sent=False) from None
        answer = client.request(spec.method, spec.url, headers, body)
        if self._policy.accepts(answer.status):
            return str(answer.status)
        raise self._failure(answer, secrets)

    def close(self) -> None:
        self._client.close()

    def _tls_secrets(self) -> TlsSecrets:
        return TlsSecrets() if self._spec.tls is None else self._spec.tls.secrets()

    def _new_client(self, secrets: TlsSecrets) -> HttpClient:
        from sensors.actions.http_client import HttpClient  # noqa: PLC0415 - only who calls servers pays for urllib3

        spec = self._spec
        may_need_tls = spec.url.startswith("https:") or any(each.dest == "url" for each in spec.parameters)
        tls = (spec.tls or Tls()).context(secrets) if may_need_tls else None
        return HttpClient(spec.timeout, tls, guard=AddressGuard.of(spec.url, spec.allowHosts))

    def _failure(self, answer: Answer, secrets: Sequence[Secret]) -> ActionError:
        retriable = answer.status in _RETRIABLE or answer.status >= 500
        redirect = "; redirects are not followed" if 300 <= answer.status < 400 else ""
        refused = ", which the policy does not allow" if 200 <= answer.status < 300 else ""
        said = excerpt(answer.body, secrets)
        return ActionError(
            f"the server answered {status_text(answer.status)}{redirect}{refused}{f': {said}' if said else ''}",
            retriable=retriable,
            sent=True,
            status=str(answer.status),
            retry_after=seconds_asked(answer.retry_after, self._now()) if retriable else None,
        )


def _close(client: HttpClient) -> None:
    client.close()


def _headers(spec: HttpSpec, call: ActionCall) -> dict[str, str]:
    """All but the secret ones, and ours."""
    headers = {"Content-Type": JSON, "User-Agent": "kafka-eventbus"}
    given = {**spec.headers, **_dynamic_headers(spec, call)}
    replaced = {name.lower() for name in given}
    headers = {name: value for name, value in headers.items() if name.lower() not in replaced} | given
    return headers if spec.host is None else {**headers, "Host": spec.host}


def _host_in(headers: Mapping[str, str]) -> str | None:
    return next((value for name, value in headers.items() if name.lower() == "host"), None)


def _dynamic_headers(spec: HttpSpec, call: ActionCall) -> dict[str, str]:
    try:
        texts = {parameter.dest: as_text(value) for parameter, value in resolved(spec.dynamicHeaders, call.events)}
    except ParameterError as error:
        raise ActionError(f"the headers cannot be made: {error}", retriable=False, sent=False) from None
    return {name: _header_value(name, text) for name, text in texts.items()}


def _header_value(name: str, text: str) -> str:
    """The message does not show the text: it may be a secret."""
    fault = header_fault(name, text)
    if fault is not None:
        raise ActionError(fault, retriable=False, sent=False)
    return text
