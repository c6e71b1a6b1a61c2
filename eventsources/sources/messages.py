"""The bodies of messages."""

from __future__ import annotations

import msgspec

_check_json = msgspec.json.Decoder(msgspec.Raw).decode


NOT_JSON = "the message is not JSON, and `jsonBody` says that it is"


def as_json(body: bytes) -> msgspec.Raw | None:
    """As it is, with every digit; None where it is no JSON, or nested without end."""
    try:
        body.decode()
        return msgspec.Raw(_check_json(body))
    except (UnicodeDecodeError, msgspec.DecodeError, RecursionError):
        return None
