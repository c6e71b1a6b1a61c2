"""When an action that was carried out counts as a success: what its target says, or what becomes of what it made."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from pydantic import Field

from sensors.spec.base import SpecModel
from sensors.spec.fields import Amount, Bool, CountFromOne, Duration, StringMap

__all__ = ["Backoff", "Policy", "ResourcePolicy", "StatusPolicy"]


class Backoff(SpecModel):
    """How often, and with which pauses."""

    steps: CountFromOne = 5
    """Attempts in all, the first included."""
    duration: Duration = timedelta(seconds=1)
    """The pause after the first attempt: `500ms`, `3s`, `1m30s`; a bare number counts nanoseconds."""
    factor: Amount = 1.0
    """Each further pause is this many times the one before."""
    jitter: Amount = 1.0
    """Up to this fraction of a pause is added to it at random."""


class ResourcePolicy(SpecModel):
    """Success of `k8s` and `argoWorkflow` actions: the labels of the object they made or changed."""

    labels: StringMap = Field(default={})
    """What the object must be labelled with, for instance `workflows.argoproj.io/phase: Succeeded`."""
    backoff: Backoff = Backoff()
    """When to look. The first look is at once; the last is at most an hour later."""
    errorOnBackoffTimeout: Bool = False
    """Whether the action has failed when the labels are still not there after the last look."""


class StatusPolicy(SpecModel):
    """Success of actions that get an HTTP status."""

    allow: Annotated[tuple[CountFromOne, ...], Field(min_length=1)]
    """The statuses that count as success; all others are failures."""


class Policy(SpecModel):
    """When the action counts as a success."""

    k8s: ResourcePolicy | None = None
    status: StatusPolicy | None = None
