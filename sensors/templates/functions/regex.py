"""Regular expressions. RE2 is what Go has too, and it takes linear time whatever the pattern and the text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import islice
from typing import Any

import re2

from sensors.templates.budget import Budget
from sensors.templates.errors import TemplateError
from sensors.templates.printing import joined
from sensors.templates.values import Typed

MAX_PATTERN = 1000
_MAX_MEMORY = 1024 * 1024
_REFERENCE = re.compile(r"\$(?:(\$)|\{(\w+)\}|(\w+))", re.ASCII)


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> Any:
    if len(pattern) > MAX_PATTERN:
        raise TemplateError(f"a pattern must not be longer than {MAX_PATTERN:,} characters")
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MAX_MEMORY
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else str(error)
        raise TemplateError(f"`{pattern[:100]}` is not a pattern: {reason}") from None


def _matches(pattern: str, text: str, budget: Budget) -> Iterator[Any]:
    """Go leaves an empty match out where the one before it ended."""
    budget.spend_text(len(text))
    end = -1
    for found in _compiled(pattern).finditer(text):
        budget.spend()
        if found.end() > found.start() or found.start() != end:
            yield found
        end = found.end()


def _match(pattern: str, text: str) -> bool:
    return _compiled(pattern).search(text) is not None


def _find(pattern: str, text: str) -> str:
    found = _compiled(pattern).search(text)
    return found.group() if found else ""


def _find_all(budget: Budget, pattern: str, text: str, count: int) -> Typed:
    return Typed(found.group() for found in islice(_matches(pattern, text, budget), count if count >= 0 else None))


def _replace_all(budget: Budget, pattern: str, text: str, replacement: str) -> str:
    return _replaced(budget, pattern, text, lambda found: _expanded(replacement, found))


def _replace_all_literal(budget: Budget, pattern: str, text: str, replacement: str) -> str:
    return _replaced(budget, pattern, text, lambda _: replacement)


def _replaced(budget: Budget, pattern: str, text: str, replacement: Callable[[Any], str]) -> str:
    def parts() -> Iterator[str]:
        at = 0
        for found in _matches(pattern, text, budget):
            yield text[at : found.start()]
            yield replacement(found)
            at = found.end()
        yield text[at:]

    return joined(parts(), budget)


def _expanded(replacement: str, found: Any) -> str:
    """`$1`, `${1}` and `${name}` are groups; one that is not there is empty."""

    def group(reference: re.Match[str]) -> str:
        if reference[1]:
            return "$"
        name = reference[2] or reference[3]
        try:
            return found.group(int(name) if name.isdigit() else name) or ""
        except (IndexError, KeyError, OverflowError):
            return ""

    return _REFERENCE.sub(group, replacement)


def _split(budget: Budget, pattern: str, text: str, count: int) -> Typed:
    if count == 0:
        return Typed()
    parts, start, separator = Typed(), 0, -1
    for found in _matches(pattern, text, budget) if text else ():
        if len(parts) == count - 1:
            break
        separator = found.start()
        if found.end() > 0:  # an empty match at the very beginning separates nothing
            parts.append(text[start:separator])
        start = found.end()
    if separator != len(text):  # nor does one at the very end
        parts.append(text[start:])
    return parts


def _quote_meta(text: str) -> str:
    return re.sub(r"([\\.+*?()|\[\]{}^$])", r"\\\1", text)


_WITH_MUST: dict[str, Callable[..., Any]] = {
    "regexMatch": _match,
    "regexFind": _find,
    "regexFindAll": _find_all,
    "regexReplaceAll": _replace_all,
    "regexReplaceAllLiteral": _replace_all_literal,
    "regexSplit": _split,
}
FUNCTIONS: dict[str, Callable[..., Any]] = {
    **_WITH_MUST,
    **{f"mustR{name[1:]}": call for name, call in _WITH_MUST.items()},
    "regexQuoteMeta": _quote_meta,
}
