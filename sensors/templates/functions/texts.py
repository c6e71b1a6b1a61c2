"""Go's texts are bytes, and sprig cuts them by bytes. A character that is cut apart becomes U+FFFD, as in Go's JSON."""

from __future__ import annotations


def size(text: str) -> int:
    return len(text.encode(errors="replace"))


def cut(text: str, start: int, end: int) -> str:
    if text.isascii():
        return text[start:end]
    return text.encode(errors="replace")[start:end].decode(errors="replace")
