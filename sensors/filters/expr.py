"""Expression filters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sensors.expressions import Expression, parse
from sensors.filters.candidate import Candidate, Check, Rejection
from sensors.filters.spec import ExprFilter
from sensors.operators import EvaluationError
from sensors.paths import MISSING, compile_path
from sensors.values import shown

REASON = "expr"


def compile_expr(spec: ExprFilter) -> Check:
    return check_of(parse(spec.expr), {field.name: field.path for field in spec.fields})


def check_of(expression: Expression, paths: Mapping[str, str]) -> Check:
    """`paths` says where in the data the names of the expression are."""
    fields = [(name, path, compile_path(path)) for name, path in paths.items()]

    def check(candidate: Candidate) -> Rejection | None:
        document = candidate.document
        if document is MISSING:
            return Rejection(REASON, candidate.unreadable)
        values: dict[str, Any] = {}
        for name, path, find in fields:
            value = find(document)
            if value is MISSING:
                return Rejection(REASON, f"`{path}` is not in the data")
            values[name] = value
        try:
            result = expression.evaluate(values)
        except EvaluationError as error:
            return Rejection(REASON, f"`{expression.text}`: {error}")
        if result is True:
            return None
        given = ", ".join(f"{name} = {shown(value)}" for name, value in values.items())
        return Rejection(REASON, f"`{expression.text}` is {shown(result)} with {given}")

    return check
