"""The functions of templates: Go's own, sprig's, and the ones that are refused by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sensors.spec.suggestions import suggest
from sensors.templates.errors import TemplateSyntaxError
from sensors.templates.functions import builtin, dates, dicts, encoding, lists, numbers, regex, semver, strings
from sensors.templates.functions.refused import REFUSED
from sensors.templates.functions.registry import Function

GROUPS: Mapping[str, Mapping[str, Callable[..., Any]]] = {
    "Go's own": builtin.FUNCTIONS,
    "text": strings.FUNCTIONS,
    "regular expressions (RE2)": regex.FUNCTIONS,
    "numbers": numbers.FUNCTIONS,
    "lists": lists.FUNCTIONS,
    "objects": dicts.FUNCTIONS,
    "defaults and types": builtin.SPRIG,
    "encodings": encoding.FUNCTIONS,
    "times": dates.FUNCTIONS,
    "versions": semver.FUNCTIONS,
}
"""Everything that can be called, as the documentation lists it; `and` and `or` are part of the language."""

_FUNCTIONS = {name: Function.of(name, call) for group in GROUPS.values() for name, call in group.items()}


def find_function(name: str, index: int) -> Function:
    if name in _FUNCTIONS:
        return _FUNCTIONS[name]
    if name in REFUSED:
        raise TemplateSyntaxError(f"the function `{name}` is not allowed: {REFUSED[name]}", index)
    raise TemplateSyntaxError(f"there is no function `{name}`; {suggest(name, (*_FUNCTIONS, 'and', 'or'))}", index)
