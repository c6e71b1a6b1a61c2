"""What a target has said, in a form that can be shown: short, on one line, without our secrets."""

from __future__ import annotations

from collections.abc import Iterable

from sensors.secrets import Secret, redacted

MAX_EXCERPT = 200


def excerpt(reply: bytes | str, secrets: Iterable[Secret] = ()) -> str:
    text = reply if isinstance(reply, str) else reply[: 16 * MAX_EXCERPT].decode(errors="replace")
    text = redacted(text, secrets)[: 4 * MAX_EXCERPT]
    return " ".join("".join(character if character.isprintable() else " " for character in text).split())[:MAX_EXCERPT]
