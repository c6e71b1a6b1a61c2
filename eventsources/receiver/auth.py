"""Who may send: compared in constant time, over the raw bytes, and closed where anything is missing."""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

from eventbus.errors import ConfigError
from eventsources.base import Refusal, Request
from sensors.actions.http import BasicAuth
from sensors.secrets import Secret, SecretKeySelector
from sensors.spec.base import Flaw, SpecModel, get
from sensors.spec.fields import Text

_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_HASHES: Mapping[str, Callable[..., Any]] = {"sha1": hashlib.sha1, "sha256": hashlib.sha256, "sha512": hashlib.sha512}


class SignatureSpec(SpecModel):
    """The request carries a digest (HMAC) of its body that only who knows the secret can make."""

    secret: SecretKeySelector
    header: Text = "X-Hub-Signature-256"
    """Where the digest is."""
    algorithm: Literal["sha256", "sha512", "sha1"] = "sha256"
    """How the digest is made."""
    encoding: Literal["hex", "base64"] = "hex"
    """How it is written."""
    prefix: Text = "sha256="
    """What stands before the digest."""

    @classmethod
    def flaws(cls, data: Any) -> Iterator[Flaw]:
        header = get(data, "header")
        if isinstance(header, str) and not _HEADER.fullmatch(header):
            yield Flaw(("header",), f"`header` cannot be `{header}`, which is not the name of an HTTP header")


def check_bearer(request: Request, selector: SecretKeySelector) -> None:
    """Raises `Refusal`."""
    scheme, _, token = (request.header("authorization") or "").partition(" ")
    expected = read_secret(selector)
    if scheme.lower() != "bearer" or not same(token.strip(), expected.reveal()):
        raise Refusal(401, "the bearer token is missing or wrong")


def check_basic(request: Request, spec: BasicAuth) -> None:
    """Raises `Refusal`."""
    scheme, _, given = (request.header("authorization") or "").partition(" ")
    expected = f"{read_secret(spec.username).reveal()}:{read_secret(spec.password).reveal()}"
    if scheme.lower() != "basic" or not same(given.strip(), b64encode(expected.encode()).decode()):
        raise Refusal(401, "the name or the password is missing or wrong")


def check_token(request: Request, header: str, selector: SecretKeySelector) -> None:
    """Raises `Refusal`."""
    expected = read_secret(selector)
    if not same(request.header(header.lower()) or "", expected.reveal()):
        raise Refusal(401, f"the token in the header `{header}` is missing or wrong")


def check_signature(request: Request, spec: SignatureSpec, signed: bytes | None = None) -> None:
    """Over the body, unless something else is `signed`. Raises `Refusal`."""
    given = request.header(spec.header.lower())
    if given is None:
        raise Refusal(401, f"the header `{spec.header}` is missing: this path takes only signed requests")
    secret = read_secret(spec.secret).reveal().encode()
    digest = hmac.new(secret, request.body if signed is None else signed, _HASHES[spec.algorithm]).digest()
    expected = digest.hex() if spec.encoding == "hex" else b64encode(digest).decode()
    if not same(given, spec.prefix + expected):
        raise Refusal(401, "the signature does not fit the body")


def read_secret(selector: SecretKeySelector) -> Secret:
    """Raises `Refusal`: who cannot check lets nobody in. An empty secret would let everybody in."""
    try:
        secret = selector.read()
    except ConfigError as error:
        raise Refusal(503, "this path cannot check who sends: its secret is not there") from error
    if not secret.reveal():
        raise Refusal(503, "this path cannot check who sends: its secret is empty")
    return secret


def same(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), expected.encode())
