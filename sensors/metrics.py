"""Every Prometheus metric of a sensor, in one place.

A process may run several sensors and several replicas (in tests), so each `SensorMetrics` has its own registry;
the health server exposes the registries of all sensors in the process.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from operator import attrgetter

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge

from eventbus.formats import DLQ_HEADER, header
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
        self.retried = self._counter("retries", "Attempts to invoke an action after the first one", trigger)
        self.filtered = self._counter(
            "filtered", "Events that a dependency's filters or transform turned away", ["dependency", "reason"]
        )
        self.unused = self._counter("unused", "Events that a trigger let go without using them", ["trigger", "reason"])
        self.dead_letters = self._counter("dead_letters", "Records put into the dead-letter topic", ["reason"])
        self.lag = self._gauge("lag_records", "Records not yet processed", stage)
        self.since_commit = self._gauge(
            "seconds_since_commit_with_lag", "Time since the last commit while there is lag; 0 without lag", stage
        )
        self.paused = self._gauge("paused", "1 for a paused trigger; without a name, for all of them", trigger)
        self.held = self._gauge("held_events", "Events that wait for others", trigger)
        self.held_age = self._gauge("held_age_seconds", "Age of the oldest event that waits for others", trigger)

    def stage(self, stage: Stage) -> StageMetrics:
        return StageMetrics(self, stage, self._clock, self.name)

    def expect(self, triggers: Iterable[str]) -> None:
        """Show what has not happened yet as 0: a counter that appears with its first event hides that event."""
        for trigger in triggers:
            self.fired.labels(str(self.name), trigger)
            self.retried.labels(str(self.name), trigger)

    def expect_filtered(self, dependency: str, reasons: Iterable[str]) -> None:
        for reason in reasons:
            self.filtered.labels(str(self.name), dependency, reason)

    def count_filtered(self, dependency: str, reason: str, count: int) -> None:
        self.filtered.labels(str(self.name), dependency, reason).inc(count)

    def expect_unused(self, trigger: str, reasons: Iterable[str]) -> None:
        for reason in reasons:
            self.unused.labels(str(self.name), trigger, reason)

    def count_unused(self, trigger: str, reason: str, count: int) -> None:
        self.unused.labels(str(self.name), trigger, reason).inc(count)

    def show_paused(self, *, ended: Iterable[str], begun: Iterable[str]) -> None:
        for triggers, value in ((ended, 0), (begun, 1)):
            for trigger in triggers:
                self.paused.labels(str(self.name), trigger).set(value)

    def watch_held(self, triggers: Iterable[str], held_since: Callable[[str], Sequence[int]]) -> None:
        """`held_since` tells when each event that a trigger holds was appended. It is asked by every reader."""
        for trigger in triggers:
            timestamps = partial(held_since, trigger)
            self.held.labels(str(self.name), trigger).set_function(partial(_length, timestamps))
            self.held_age.labels(str(self.name), trigger).set_function(partial(_age, timestamps, self._clock))

    def _counter(self, name: str, text: str, labels: Sequence[str]) -> Counter:
        return Counter(f"eventbus_{name}", text, ["sensor", *labels], registry=self.registry)

    def _gauge(self, name: str, text: str, labels: Sequence[str]) -> Gauge:
        return Gauge(f"eventbus_{name}", text, ["sensor", *labels], registry=self.registry)


def _length(timestamps: Callable[[], Sequence[int]]) -> float:
    return len(timestamps())


def _age(timestamps: Callable[[], Sequence[int]], clock: Clock) -> float:
    now = clock.now_ms()
    return max(0, now - min(timestamps(), default=now)) / 1000


class _Reason(msgspec.Struct):
    reason: str


class StageMetrics:
    """What one stage loop reports. Labels are looked up once, not per batch."""

    def __init__(self, metrics: SensorMetrics, stage: Stage, clock: Clock, name: SensorName) -> None:
        sensor = str(name)
        self._sensor = sensor
        self._clock = clock
        self._fired = metrics.fired
        self._dead_letters = metrics.dead_letters
        self._action_topic = name.topic(Kind.ACTION)
        self._dlq_topic = name.topic(Kind.DLQ)
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
        written: collections.Counter[str] = collections.Counter()
        fired: collections.Counter[bytes] = collections.Counter()
        for (topic, key), count in collections.Counter(map(attrgetter("topic", "key"), outputs)).items():
            written[topic] += count
            if topic == self._action_topic:
                fired[(key or b"").split(b"\0", 1)[0]] += count  # an action's key begins with its trigger's name
        for topic in written.keys() & self._written.keys():
            self._written[topic].inc(written[topic])
        for trigger, count in fired.items():
            self._fired.labels(self._sensor, trigger.decode()).inc(count)
        if self._dlq_topic in written:
            self._count_dead_letters(outputs)

    def _count_dead_letters(self, outputs: Sequence[Output]) -> None:
        for output in outputs:
            fact = header(output.headers, DLQ_HEADER) if output.topic == self._dlq_topic else None
            if fact is not None:
                self._dead_letters.labels(self._sensor, msgspec.json.decode(fact, type=_Reason).reason).inc()

    def aborted(self) -> None:
        self._aborted.inc()

    def rebalanced(self) -> None:
        self._rebalances.inc()

    def lagging(self, records: int, *, working: bool) -> float:
        """Report the lag; returns for how many seconds there has been lag and nothing happened."""
        self._lag.set(records)
        now = self._clock.monotonic()
        if records == 0 or working:
            self._last_progress = now
        stalled = now - self._last_progress
        self._since_commit.set(stalled)
        return stalled
