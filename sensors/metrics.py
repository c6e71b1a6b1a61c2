"""Every Prometheus metric of a sensor, in one place.

A process may run several sensors and several replicas (in tests), so each `SensorMetrics` has its own registry;
the health server exposes the registries of all sensors in the process.
"""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge

from eventbus.names import Kind, SensorName, Stage
from eventbus.ports import Clock, Output


class SensorMetrics:
    """The metrics of one replica of one sensor."""

    def __init__(self, name: SensorName, clock: Clock) -> None:
        self._clock = clock
        self.registry = CollectorRegistry()
        self.name = name
        stage, trigger = ["stage"], ["trigger"]
        self.received = self._counter("records_received", "Records read from the stage's input topic", stage)
        self.written = self._counter("records_written", "Records committed to each kind of topic", ["kind"])
        self.committed = self._counter("transactions_committed", "Transactions committed", stage)
        self.aborted = self._counter("transactions_aborted", "Transactions aborted and restored from", stage)
        self.rebalances = self._counter("rebalances", "Changes of the partition assignment", stage)
        self.fired = self._counter("fired", "Actions written by conditions that became true", trigger)
        self.invoked = self._counter("invocations", "Attempts to invoke an action", ["trigger", "outcome"])
        self.lag = self._gauge("lag_records", "Records not yet processed", stage)
        self.since_commit = self._gauge(
            "seconds_since_commit_with_lag", "Time since the last commit while there is lag; 0 without lag", stage
        )
        self.held = self._gauge("held_events", "Events that wait for others", trigger)
        self.held_age = self._gauge("held_age_seconds", "Age of the oldest event that waits for others", trigger)

    def stage(self, stage: Stage) -> StageMetrics:
        return StageMetrics(self, stage, self._clock, self.name)

    def _counter(self, name: str, text: str, labels: Sequence[str]) -> Counter:
        return Counter(f"eventbus_{name}", text, ["sensor", *labels], registry=self.registry)

    def _gauge(self, name: str, text: str, labels: Sequence[str]) -> Gauge:
        return Gauge(f"eventbus_{name}", text, ["sensor", *labels], registry=self.registry)


class StageMetrics:
    """What one stage loop reports. Labels are looked up once, not per batch."""

    def __init__(self, metrics: SensorMetrics, stage: Stage, clock: Clock, name: SensorName) -> None:
        sensor = str(name)
        self._clock = clock
        self._received = metrics.received.labels(sensor, stage)
        self._committed = metrics.committed.labels(sensor, stage)
        self._aborted = metrics.aborted.labels(sensor, stage)
        self._rebalances = metrics.rebalances.labels(sensor, stage)
        self._lag = metrics.lag.labels(sensor, stage)
        self._since_commit = metrics.since_commit.labels(sensor, stage)
        self._written = {name.topic(kind): metrics.written.labels(sensor, kind) for kind in Kind}
        self._last_progress = clock.monotonic()

    def received(self, records: int) -> None:
        self._received.inc(records)

    def committed(self, outputs: Sequence[Output]) -> None:
        self._committed.inc()
        self._last_progress = self._clock.monotonic()
        counts: dict[str, int] = {}
        for output in outputs:
            counts[output.topic] = counts.get(output.topic, 0) + 1
        for topic, count in counts.items():
            if topic in self._written:
                self._written[topic].inc(count)

    def aborted(self) -> None:
        self._aborted.inc()

    def rebalanced(self) -> None:
        self._rebalances.inc()

    def lagging(self, records: int) -> float:
        """Report the lag; returns for how many seconds there has been lag without a commit."""
        self._lag.set(records)
        now = self._clock.monotonic()
        if records == 0:
            self._last_progress = now
        stalled = now - self._last_progress
        self._since_commit.set(stalled)
        return stalled
