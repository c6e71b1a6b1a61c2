"""What the status of a resource says, in the words of Kubernetes: conditions that are true, false or not known yet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

_MAX_MESSAGE = 2000


class Condition(msgspec.Struct, frozen=True):
    """One aspect of a resource."""

    type: str
    status: bool | None
    """None: it is not known."""
    reason: str
    """One word in CamelCase, for programs."""
    message: str = ""


def worded(status: bool | None) -> str:
    return "Unknown" if status is None else str(status)


def told(
    conditions: Iterable[Condition], before: Iterable[Mapping[str, Any]], generation: int, now: str
) -> list[dict[str, Any]]:
    """As they stand in a status: each with the time since when it has been so."""
    known = {each.get("type"): each for each in before}
    return [_told(condition, known.get(condition.type, {}), generation, now) for condition in conditions]


def _told(condition: Condition, before: Mapping[str, Any], generation: int, now: str) -> dict[str, Any]:
    status = worded(condition.status)
    since = before.get("lastTransitionTime") if before.get("status") == status else None
    return {
        "type": condition.type,
        "status": status,
        "reason": condition.reason,
        "message": condition.message[:_MAX_MESSAGE],
        "observedGeneration": generation,
        "lastTransitionTime": since or now,
    }
