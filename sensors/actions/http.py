"""The `http` action: one request per action, with an idempotency key, and an honest account of what happened to it."""

from __future__ import annotations

import re
import ssl
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from eventbus.errors import ConfigError
from sensors.actions.base import ActionCall, ActionContext, ActionError, SpecModel
from sensors.actions.body import JSON, body_of, trace_of
from sensors.parameters import Payload
from sensors.spec.base import Flaw, get
from sensors.spec.fields import Bool, CountFromOne, StringMap, Text

if TYPE_CHECKING:
    from sensors.actions.http_client import Answer

MAX_EXCERPT = 200
_RETRIABLE = frozenset((408, 425, 429))
_WITHOUT_BODY = frozenset(("GET", "DELETE"))
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_HEADER_VALUE = re.compile(r"[\x20-\x7e\t]*")
_OUR_HEADERS = frozenset(("idempotency-key", "traceparent", "tracestate", "content-length", "transfer-encoding"))


# --- manifest -------------------------------------------------------------------------------------------------------


def _valid_url(text: str) -> str:
    try:
        parts = urlsplit(text)
        host = (parts.hostname or "").encode("idna")  # refuses what no name server could be asked for
        complete = parts.scheme in ("http", "https") and bool(host) and parts.port != 0
    except ValueError:
        complete = False
    if not complete or not re.fullmatch(r"[\x21-\x7e]+", text):
        raise ValueError("must be a complete http:// or https:// address")
    if "@" in parts.netloc:
        raise ValueError("must not contain a user name or password: they would show up in logs; use `headers`")
    return text


class HttpTls(SpecModel):
    """How to trust the server, and who we are."""

    not_yet: ClassVar[frozenset[str]] = frozenset(("caCertSecret", "clientCertSecret", "clientKeySecret"))

    caCertFile: Text | None = None
    """PEM file with the certificate authorities to trust instead of the system's."""
    clientCertFile: Text | None = None
    """PEM file with our certificate, where the server asks for one."""
    clientKeyFile: Text | None = None
    """PEM file with its key, unless it is in `clientCertFile` too."""
    insecureSkipVerify: Bool = False
    """Accept any certificate. Anybody in between can then read and change everything."""

    @classmethod
    def flaws(cls, data: Any) -> Iterator[Flaw]:
        if get(data, "clientKeyFile") is not None and get(data, "clientCertFile") is None:
            yield Flaw(("clientKeyFile",), "`clientKeyFile` needs `clientCertFile`")

    def context(self) -> ssl.SSLContext:
        """Raises `ConfigError` when a file cannot be used."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if self.insecureSkipVerify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        elif self.caCertFile is None:
            context.load_default_certs()
        else:
            _use(self.caCertFile, context.load_verify_locations)
        if self.clientCertFile is not None:
            # An empty pass phrase, because OpenSSL would ask for it on the terminal.
            _use(self.clientCertFile, lambda file: context.load_cert_chain(file, self.clientKeyFile, lambda: ""))
        return context


def _use(file: str, load: Callable[[str], None]) -> None:
    try:
        load(file)
    except OSError as error:
        reason = "it is not a usable PEM file" if isinstance(error, ssl.SSLError) else error.strerror
        raise ConfigError(f"the TLS file `{file}` cannot be used: {reason}") from None


class HttpSpec(SpecModel):
    """Call an HTTP server."""

    not_yet: ClassVar[frozenset[str]] = frozenset(
        ("parameters", "basicAuth", "secureHeaders", "dynamicHeaders", "host")
    )

    url: Annotated[Text, AfterValidator(_valid_url)]
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"] = "POST"
    headers: StringMap = Field(default={})
    payload: Payload | None = None
    """The body. Without it, the body is a JSON object with one structured CloudEvent per dependency."""
    timeout: CountFromOne = 60
    """Seconds for the whole call."""
    tls: HttpTls | None = None

    @classmethod
    def flaws(cls, data: Any) -> Iterator[Flaw]:
        if get(data, "tls") is not None and str(get(data, "url")).startswith("http://"):
            yield Flaw(("tls",), "`tls` does nothing for an http:// address; write https://")
        yield from _header_flaws(get(data, "headers"))


def _header_flaws(headers: Any) -> Iterator[Flaw]:
    seen: set[str] = set()
    for name, value in headers.items() if isinstance(headers, Mapping) else ():
        message = _header_fault(str(name), value, seen)
        if message is not None:
            yield Flaw(("headers", str(name)), message, about_key=True)
        seen.add(str(name).lower())


def _header_fault(name: str, value: Any, seen: Collection[str]) -> str | None:
    if not _HEADER_NAME.fullmatch(name):
        return f"{name!r} cannot be the name of a header"
    if isinstance(value, str) and not _HEADER_VALUE.fullmatch(value):
        return f"the header `{name}` contains a line break or another character that is not allowed"
    if name.lower() in _OUR_HEADERS:
        return f"the header `{name}` is set for every call and cannot be changed"
    if name.lower() in seen:
        return f"the header `{name}` is set twice; upper and lower case do not matter"
    return None


# --- action ---------------------------------------------------------------------------------------------------------


class HttpAction:
    """Sends requests; 2xx is success, 408, 425, 429 and 5xx are worth another try, anything else is final."""

    Spec: ClassVar[type[SpecModel]] = HttpSpec

    def __init__(self, spec: HttpSpec, _context: ActionContext, now: Callable[[], float] = time.time) -> None:
        from sensors.actions.http_client import HttpClient  # noqa: PLC0415 - only who calls servers pays for urllib3

        self._spec = spec
        self._now = now
        tls = (spec.tls or HttpTls()).context() if spec.url.startswith("https:") else None
        self._client = HttpClient(spec.timeout, tls)
        given = {name.lower() for name in spec.headers}
        defaults = {"Content-Type": JSON, "User-Agent": "kafka-eventbus"}
        self._headers = {name: value for name, value in defaults.items() if name.lower() not in given} | spec.headers

    def invoke(self, call: ActionCall) -> str:
        spec = self._spec
        body = None if spec.payload is None and spec.method in _WITHOUT_BODY else body_of(call, spec.payload)
        headers = {**self._headers, "Idempotency-Key": call.id, **trace_of(call)}
        answer = self._client.request(spec.method, spec.url, headers, body)
        if 200 <= answer.status < 300:
            return str(answer.status)
        raise self._failure(answer)

    def close(self) -> None:
        self._client.close()

    def _failure(self, answer: Answer) -> ActionError:
        retriable = answer.status in _RETRIABLE or answer.status >= 500
        redirect = "; redirects are not followed" if 300 <= answer.status < 400 else ""
        excerpt = _excerpt(answer.body)
        return ActionError(
            f"the server answered {_status_text(answer.status)}{redirect}{f': {excerpt}' if excerpt else ''}",
            retriable=retriable,
            sent=True,
            status=str(answer.status),
            retry_after=self._retry_after(answer.retry_after) if retriable else None,
        )

    def _retry_after(self, value: str | None) -> float | None:
        """Seconds, from either form of the header; None where it says nothing useful."""
        if value is None:
            return None
        if re.fullmatch(r"\d{1,9}", value):
            return float(value)
        try:
            return max(0.0, parsedate_to_datetime(value).timestamp() - self._now())
        except (ValueError, OverflowError):
            return None


def _status_text(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


def _excerpt(body: bytes) -> str:
    text = body[: 4 * MAX_EXCERPT].decode(errors="replace")
    return " ".join("".join(character if character.isprintable() else " " for character in text).split())[:MAX_EXCERPT]
