"""What to say after "there is no such name": the name that was probably meant, or the ones there are."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

_LISTED = 12


def closest(name: str, known: Iterable[str]) -> str | None:
    """The name that was probably meant."""
    by_lower = {each.lower(): each for each in sorted(known)}
    close = get_close_matches(name.lower(), by_lower, n=1)
    return by_lower[close[0]] if close else None


def suggest(name: str, known: Iterable[str]) -> str:
    """A half sentence such as "did you mean `eventName`?"; without a near miss, the known names themselves."""
    names = sorted(known)
    meant = closest(name, names)
    if meant is not None:
        return f"did you mean `{meant}`?"
    listed = ", ".join(f"`{each}`" for each in names[:_LISTED])
    return f"known are {listed}{', …' if len(names) > _LISTED else ''}" if names else "none are known"
