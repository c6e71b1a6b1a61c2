"""Every Prometheus metric of an event source, in one place."""

from __future__ import annotations

from enum import StrEnum

from prometheus_client import CollectorRegistry, Counter, Gauge

from eventsources.base import Identity


class Outcome(StrEnum):
    """What becomes of an event."""

    PUBLISHED = "published"
    FILTERED = "filtered"
    DEAD_LETTERED = "dead-lettered"
    """It cannot be on the bus, for instance because it is too large."""
    FAILED = "failed"
    """It was not taken, and whoever sent it was told so."""


HOOK_OUTCOMES = ("kept", "created", "updated", "removed", "failed")
_LABELS = ["eventsource", "event"]


class SourceMetrics:
    """The metrics of all sources of one EventSource in this process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._events = Counter(
            "eventbus_source_events",
            "What became of the events of a source",
            [*_LABELS, "outcome"],
            registry=self.registry,
        )
        self._refused = Counter(
            "eventbus_source_requests_refused",
            "Requests that a source did not take, by status",
            [*_LABELS, "status"],
            registry=self.registry,
        )
        self._restarts = Counter(
            "eventbus_source_restarts", "How often a source had to begin again", _LABELS, registry=self.registry
        )
        self._hooks = Counter(
            "eventbus_source_hooks",
            "What looks at registered hooks have led to; not shown where none are registered",
            [*_LABELS, "outcome"],
            registry=self.registry,
        )
        self._leading = Gauge(
            "eventbus_source_leading",
            "1 where this process is the one that runs the source",
            ["eventsource"],
            registry=self.registry,
        )

    def expect(self, identity: Identity) -> None:
        """Show what has not happened yet as 0: a counter that appears with its first event hides that event."""
        for outcome in Outcome:
            self._events.labels(identity.source, identity.name, outcome)
        self._restarts.labels(identity.source, identity.name)

    def expect_hooks(self, identity: Identity) -> None:
        for outcome in HOOK_OUTCOMES:
            self._hooks.labels(identity.source, identity.name, outcome)

    def count(self, identity: Identity, outcome: Outcome, number: int = 1) -> None:
        self._events.labels(identity.source, identity.name, outcome).inc(number)

    def refused(self, identity: Identity, status: int) -> None:
        self._refused.labels(identity.source, identity.name, str(status)).inc()

    def restarted(self, identity: Identity) -> None:
        self._restarts.labels(identity.source, identity.name).inc()

    def hook(self, identity: Identity, outcome: str) -> None:
        self._hooks.labels(identity.source, identity.name, outcome).inc()

    def leading(self, source: str, *, leads: bool) -> None:
        self._leading.labels(source).set(leads)
