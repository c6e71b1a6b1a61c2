"""All that an event has to go through to satisfy a dependency: the transform, then the filters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from sensors.filters import context, data, expr, script, timeofday
from sensors.filters.candidate import Candidate, Check, Rejection, ScriptError, Scripts, Transform
from sensors.filters.spec import Filters
from sensors.filters.spec import Transform as TransformSpec

TRANSFORM = "transform"
"""The reason of events whose transform failed."""


class Gate(msgspec.Struct, frozen=True):
    """What stands before a dependency. Never raises."""

    transform: Transform | None
    check: Check | None
    reasons: tuple[str, ...]
    """Every reason for which it may turn an event away."""

    def admit(self, candidate: Candidate) -> Candidate | Rejection:
        """The event as the dependency gets it, or why it does not."""
        if self.transform is not None:
            try:
                candidate = candidate.transformed(self.transform)
            except ScriptError as error:
                return Rejection(TRANSFORM, str(error))
        rejection = None if self.check is None else self.check(candidate)
        return candidate if rejection is None else rejection


def compile_gate(
    filters: Filters | None, operator: str, transform: TransformSpec | None, scripts: Scripts
) -> Gate | None:
    """None where every event may pass as it is."""
    change = None if transform is None else _compile_transform(transform, scripts)
    kinds = {} if filters is None else dict(_kinds(filters, scripts))
    if change is None and not kinds:
        return None
    check = _combined(operator, list(kinds.values())) if kinds else None
    return Gate(change, check, (*kinds, *([] if change is None else [TRANSFORM])))


def _compile_transform(spec: TransformSpec, scripts: Scripts) -> Transform:
    return scripts.jq_transform(spec.jq) if spec.jq else scripts.lua_transform(spec.script)


def _kinds(filters: Filters, scripts: Scripts) -> Iterator[tuple[str, Check]]:
    """The kinds of filters that there are, in argo-events' order."""
    if filters.exprs:
        yield expr.REASON, _combined(filters.exprLogicalOperator, map(expr.compile_expr, filters.exprs))
    if filters.data:
        yield data.REASON, _combined(filters.dataLogicalOperator, map(data.compile_data, filters.data))
    if filters.context:
        yield context.REASON, context.compile_context(filters.context)
    if filters.time is not None:
        yield timeofday.REASON, timeofday.compile_time(filters.time)
    if filters.script:
        yield script.REASON, script.compile_script(filters.script, scripts)


def _combined(operator: str, checks: Iterable[Check]) -> Check:
    given = tuple(checks)
    if len(given) == 1:
        return given[0]
    return _any_of(given) if operator == "or" else _all_of(given)


def _all_of(checks: Sequence[Check]) -> Check:
    def check(candidate: Candidate) -> Rejection | None:
        for each in checks:
            rejection = each(candidate)
            if rejection is not None:
                return rejection
        return None

    return check


def _any_of(checks: Sequence[Check]) -> Check:
    """Where all turn the event away, it counts for the first of them."""

    def check(candidate: Candidate) -> Rejection | None:
        rejections = []
        for each in checks:
            rejection = each(candidate)
            if rejection is None:
                return None
            rejections.append(rejection)
        return Rejection(rejections[0].reason, "; ".join(rejection.text for rejection in rejections))

    return check
