"""What an action is: one file under `sensors/actions` that defines a spec model and a class with `invoke`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Protocol, runtime_checkable

import msgspec

from eventbus.events import Event
from eventbus.ports import Output
from sensors.spec.base import SpecModel
from sensors.spec.policy import Policy

__all__ = ["Action", "ActionCall", "ActionContext", "ActionError", "SpecModel", "TransactionalAction"]


class ActionCall(msgspec.Struct, frozen=True):
    """One invocation of a trigger's action."""

    id: str
    """The action's stable id: the same for every attempt and every replica. Use it as an idempotency key."""
    sensor: str
    trigger: str
    key: str
    """The correlation key; empty for a trigger that has none."""
    events: Mapping[str, Event]
    """The event of every dependency that was held when the condition became true."""
    attempt: int = 1
    traceparent: str | None = None
    """W3C trace context of the event that completed the condition."""
    tracestate: str | None = None


class ActionError(Exception):
    """An attempt failed. `retriable`: another try may help. `sent`: the target may have seen the request."""

    def __init__(
        self,
        message: str,
        *,
        retriable: bool,
        sent: bool,
        status: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.retriable = retriable
        self.sent = sent
        self.status = status
        self.retry_after = retry_after


class ActionContext(msgspec.Struct, frozen=True):
    """What an action may know of its surroundings."""

    sensor: str
    namespace: str
    bootstrap_servers: str
    """The bus's own brokers; empty on an in-memory bus."""
    partitions: Mapping[str, int]
    """Partition counts of the bus's own topics that this sensor's `kafka` actions write to."""
    policy: Policy = Policy()
    """When the trigger's action counts as a success."""


class Action(Protocol):
    """Runs in a worker thread, several calls at a time: it must be thread-safe."""

    Spec: ClassVar[type[SpecModel]]

    def invoke(self, call: ActionCall) -> str:
        """Do it. Return a short status for the invocation record; raise `ActionError` when it failed."""

    def close(self) -> None:
        """Release connections."""


@runtime_checkable
class TransactionalAction(Protocol):
    """An action that only writes to the bus's own cluster: its records join the transaction that marks it done."""

    Spec: ClassVar[type[SpecModel]]

    def outputs(self, call: ActionCall) -> Sequence[Output]:
        """The records to write. Raises `ActionError` (never retriable) when they cannot be made."""

    def close(self) -> None:
        """Release connections."""
