"""The bodies of messages, and what else is text in them."""

from __future__ import annotations

from base64 import b64encode

import msgspec

_check_json = msgspec.json.Decoder(msgspec.Raw).decode


NOT_JSON = "the message is not JSON, and `jsonBody` says that it is"


def as_body(body: bytes, *, json: bool) -> msgspec.Raw | str | None:
    """As argo-events has it: the JSON itself where JSON is promised, None where it is none; base64 otherwise."""
    return as_json(body) if json else b64encode(body).decode()


def as_json(body: bytes) -> msgspec.Raw | None:
    """As it is, with every digit; None where it is no JSON, or too deep to be read by anybody."""
    try:
        body.decode()
        return msgspec.Raw(_check_json(body))
    except (UnicodeDecodeError, msgspec.DecodeError, RecursionError):
        return None


def as_text(value: bytes) -> str:
    """As Go writes bytes into JSON: what is not UTF-8 is replaced."""
    return value.decode(errors="replace")
