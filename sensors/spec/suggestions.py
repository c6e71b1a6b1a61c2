"""What to say after "there is no such name": the name that was probably meant, or the ones there are."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

_LISTED = 12


def suggest(name: str, known: Iterable[str]) -> str:
    """A half sentence such as "did you mean `eventName`?"; without a near miss, the known names themselves."""
    names = sorted(known)
    by_lower = {each.lower(): each for each in names}
    close = get_close_matches(name.lower(), by_lower, n=1)
    if close:
        return f"did you mean `{by_lower[close[0]]}`?"
    listed = ", ".join(f"`{each}`" for each in names[:_LISTED])
    return f"known are {listed}{', …' if len(names) > _LISTED else ''}" if names else "none are known"
