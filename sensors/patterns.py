"""Regular expressions of manifests: RE2, whose time is linear in the text whatever the pattern is.

A pattern without special characters is searched for as plain text, which is what most filters do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TypeAlias

import re2

MAX_PATTERN = 1000
MAX_PROGRAM = 20_000
"""Instructions that a pattern may compile to, so that matching never runs out of RE2's memory budget."""

Finder: TypeAlias = Callable[[str], bool]
_PLAIN = re.compile(r"[^\\.+*?()|\[\]{}^$]*")

_OPTIONS = re2.Options()
_OPTIONS.log_errors = False
_OPTIONS.never_capture = True


def compile_patterns(patterns: Iterable[str]) -> Finder:
    """Whether any of these is found anywhere in a text. Raises `ValueError`."""
    wanted = list(patterns)
    for pattern in wanted:
        check_pattern(pattern)
    if all(_PLAIN.fullmatch(pattern) for pattern in wanted):
        return _plain_finder(wanted)
    patterns_set = re2.Set.SearchSet(_OPTIONS)
    for pattern in wanted:
        patterns_set.Add(pattern)
    patterns_set.Compile()
    match = patterns_set.Match
    return lambda text: match(text) is not None


def _plain_finder(wanted: list[str]) -> Finder:
    if len(wanted) == 1:
        [only] = wanted
        return lambda text: only in text
    return lambda text: any(each in text for each in wanted)


def check_pattern(pattern: str) -> None:
    """Raise `ValueError` for a pattern that cannot be used."""
    if len(pattern) > MAX_PATTERN:
        raise ValueError(f"a regular expression must not be longer than {MAX_PATTERN:,} characters")
    try:
        size = re2.compile(pattern, _OPTIONS).programsize
    except re2.error as error:
        [reason] = error.args
        shown = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        raise ValueError(f"`{pattern}` is not a regular expression of RE2: {shown}") from None
    if size > MAX_PROGRAM:
        raise ValueError(f"the regular expression `{pattern}` is too complex: repeat less")


_GLOB_PART = re.compile(r"\\.|.", re.DOTALL)


def compile_glob(glob: str) -> Finder:
    r"""Whether a whole text fits `*` (anything), `?` (any character) and `\x` (x itself). Raises `ValueError`."""
    pattern = "".join(map(_regular, _GLOB_PART.findall(glob)))
    return compile_patterns([rf"\A(?s:{pattern})\z"])


def _regular(part: str) -> str:
    wild = {"*": ".*", "?": "."}
    return wild[part] if part in wild else str(re2.escape(part[-1]))
