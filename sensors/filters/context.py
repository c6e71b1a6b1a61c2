"""Context filters: attributes and extensions of the event."""

from __future__ import annotations

from collections.abc import Mapping

from eventbus.cloudevents import attribute_text
from sensors.filters.candidate import Candidate, Check, Rejection
from sensors.values import shown

REASON = "context"


def compile_context(wanted: Mapping[str, str]) -> Check:
    def check(candidate: Candidate) -> Rejection | None:
        attributes = candidate.event.attributes
        for name, value in wanted.items():
            actual = attributes.get(name)
            if actual is None:
                return Rejection(REASON, f"the event has no attribute `{name}`")
            if attribute_text(actual) != value:
                return Rejection(REASON, f"the attribute `{name}` is {shown(actual)}, not {shown(value)}")
        return None

    return check
