"""When an attempt counts as a success, when it is repeated, and how many may begin in which time."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, StrictInt

from sensors.spec.base import SpecModel
from sensors.spec.fields import Amount, Bool, CountFromOne, Duration, StringMap

PolicyKind: TypeAlias = Literal["k8s", "status"]


class RetryStrategy(SpecModel):
    """When a failed action is tried again. Without one it is tried once."""

    steps: CountFromOne = 5
    """Attempts in all, the first included."""
    duration: Duration = timedelta(seconds=1)
    """The pause after the first attempt: `500ms`, `3s`, `1m30s`; a bare number counts nanoseconds."""
    factor: Amount = 1.0
    """Each further pause is this many times the one before."""
    jitter: Amount = 1.0
    """Up to this fraction of a pause is added to it at random."""


class RateLimit(SpecModel):
    """How many attempts may begin, evenly spaced. See [rate limits](actions.md#rate-limits)."""

    unit: Literal["Second", "Minute", "Hour"] = "Second"
    """In which time."""
    requestsPerUnit: CountFromOne
    """How many. The first attempt of an action counts, and so does every further one."""

    @property
    def seconds(self) -> int:
        return {"Second": 1, "Minute": 60, "Hour": 3600}[self.unit]


class StatusPolicy(SpecModel):
    """What a target may answer."""

    allow: Annotated[tuple[Annotated[StrictInt, Field(ge=100, le=599)], ...], Field(min_length=1)]
    """Exactly these statuses are a success; without a policy all of 200 to 299 are."""


class K8sPolicy(SpecModel):
    """What has to become of the object that was made."""

    labels: Annotated[StringMap, Field(min_length=1)]
    """The object has succeeded when it has these labels."""
    backoff: RetryStrategy = RetryStrategy()
    """When to look."""
    errorOnBackoffTimeout: Bool = False
    """Whether the action has failed if the object never gets these labels."""


class Policy(SpecModel):
    """When an action has succeeded, beyond what its kind says."""

    status: StatusPolicy | None = None
    k8s: K8sPolicy | None = None

    def accepts(self, status: int) -> bool:
        """Whether this answer is a success."""
        return status in self.status.allow if self.status is not None else 200 <= status < 300
