"""Data filters: one value of the event's data, compared."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, TypeAlias

from sensors.filters.candidate import Candidate, Check, Rejection
from sensors.filters.spec import TRUTHS, DataFilter
from sensors.paths import MISSING, compile_path
from sensors.patterns import compile_patterns
from sensors.templates import TemplateError, compile_template
from sensors.values import as_text, parse_number, shown

REASON = "data"
_Test: TypeAlias = Callable[[Any], bool | None]
"""Whether a value fits; None where it is of another type."""


def compile_data(spec: DataFilter) -> Check:
    path = spec.path
    find = compile_path(path)
    render = None if spec.template is None else compile_template(spec.template).render
    fits = _TESTS[spec.type](spec)
    wanted = f"{spec.comparator} {' or '.join(spec.value)}"

    def check(candidate: Candidate) -> Rejection | None:
        document = candidate.document
        if document is MISSING:
            return Rejection(REASON, candidate.unreadable)
        value = find(document)
        if value is MISSING:
            return Rejection(REASON, f"`{path}` is not in the data")
        if render is not None:
            try:
                value = render({"Input": as_text(value) or ""})
            except TemplateError as error:
                return Rejection(REASON, f"the template for `{path}`: {error}")
        fit = fits(value)
        if fit:
            return None
        if fit is None:
            return Rejection(REASON, f"`{path}` is {shown(value)}, which is no {spec.type}")
        return Rejection(REASON, f"`{path}` is {shown(value)}, not {wanted}")

    return check


def _string_test(spec: DataFilter) -> _Test:
    found, wanted = compile_patterns(spec.value), spec.comparator == "="

    def fits(value: Any) -> bool | None:
        text = value if isinstance(value, str) else as_text(value)
        return None if text is None else found(text) is wanted

    return fits


_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}


def _number_test(spec: DataFilter) -> _Test:
    numbers = [number for text in spec.value if (number := parse_number(text)) is not None]
    if spec.comparator in ("=", "!="):
        equal = spec.comparator == "="
        return lambda value: None if (number := _number(value)) is None else (number in numbers) is equal
    compare = _COMPARISONS[spec.comparator]
    return lambda value: (
        None if (number := _number(value)) is None else any(compare(number, other) for other in numbers)
    )


def _number(value: Any) -> float | None:
    """A number, or a text that is one; `true` is not 1 and a word is not 0."""
    if isinstance(value, str):
        return parse_number(value)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _bool_test(spec: DataFilter) -> _Test:
    wanted, equal = {TRUTHS[text] for text in spec.value}, spec.comparator == "="

    def fits(value: Any) -> bool | None:
        truth = TRUTHS.get(value) if isinstance(value, str) else value
        return (truth in wanted) is equal if isinstance(truth, bool) else None

    return fits


_TESTS: dict[str, Callable[[DataFilter], _Test]] = {
    "string": _string_test,
    "number": _number_test,
    "bool": _bool_test,
}
