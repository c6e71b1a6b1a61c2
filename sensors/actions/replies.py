"""What a target has said, in a form that can be shown: short, on one line, without our secrets."""

from __future__ import annotations

import re
from collections.abc import Iterable
from email.utils import parsedate_to_datetime
from http import HTTPStatus

from sensors.secrets import Secret, redacted

MAX_EXCERPT = 200


def excerpt(reply: bytes | str, secrets: Iterable[Secret] = ()) -> str:
    text = reply if isinstance(reply, str) else reply[: 16 * MAX_EXCERPT].decode(errors="replace")
    text = redacted(text, secrets)[: 4 * MAX_EXCERPT]
    return " ".join("".join(character if character.isprintable() else " " for character in text).split())[:MAX_EXCERPT]


def seconds_asked(retry_after: str | None, now: float) -> float | None:
    """What either form of the header asks for; None where it says nothing useful."""
    if retry_after is None:
        return None
    if re.fullmatch(r"\d{1,9}", retry_after):
        return float(retry_after)
    try:
        return max(0.0, parsedate_to_datetime(retry_after).timestamp() - now)
    except (ValueError, OverflowError):
        return None


def status_text(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)
