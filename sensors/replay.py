"""Feeding past events to one sensor again.

Copies of them are appended to the event topic, marked with whom they are for: every other sensor passes over them. A
copy is an event like any other from then on: it is appended now, and that is the time that windows go by. Who repeats a
replay repeats its copies; only a trigger with `dedupe` tells that it has had them before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice

import msgspec

from eventbus.bus import Bus
from eventbus.cloudevents import CONTENT_TYPE, from_kafka, to_kafka
from eventbus.errors import InvalidEvent, LogError, RetriableError, UnproducibleError
from eventbus.events import REPLAY_FOR, REPLAY_OF, Event
from eventbus.names import SensorName
from eventbus.ports import Clock, Output, Reader, Record
from sensors.explain import Explainer
from sensors.plan import SensorPlan
from sensors.reading import Ranges, in_order_of_time

BATCH = 500


class Past(msgspec.Struct, frozen=True):
    """An event that the sensor asks for."""

    record: Record
    event: Event
    moment: int
    """Where a replay that begins with this event has to begin: at no later time."""
    dependencies: list[str]
    """Those that ask for its source and name."""


class Rehearsal(msgspec.Struct, frozen=True):
    """What a replay would do, if the sensor held nothing before."""

    events: int
    dependencies: dict[str, int]
    """How many events each dependency asks for."""
    filtered: dict[str, int]
    fired: dict[str, int]
    """By trigger."""


def past_events(reader: Reader, plan: SensorPlan, ranges: Ranges, clock: Clock) -> Iterator[Past]:
    """What a replay takes: events that a dependency asks for by source and name. Copies are not copied again."""
    explainer = Explainer(plan)
    for timed in in_order_of_time(reader, plan.name.event_topic, ranges, clock):
        record = timed.record
        try:
            event = from_kafka(record.headers, record.value)
        except InvalidEvent:
            continue  # it went to the dead letters then, and would again
        dependencies = explainer.asked_for_by(event)
        if dependencies and REPLAY_OF not in event.attributes:
            yield Past(record, event, timed.moment, dependencies)


def copy_for(name: SensorName, past: Past) -> Output:
    """The copy of an event: all as it was, in the same partition under the same key, so that order is kept."""
    record = past.record
    headers, value = to_kafka(marked(name, past))
    foreign = [(key, raw) for key, raw in record.headers if not key.startswith("ce_") and key.lower() != CONTENT_TYPE]
    return Output(record.topic, record.partition, record.key, value, [*headers, *foreign])


def marked(name: SensorName, past: Past) -> Event:
    place = f"{past.record.partition}:{past.record.offset}"
    return Event({**past.event.attributes, REPLAY_FOR: str(name), REPLAY_OF: place}, past.event.data)


class Replay:
    """Writes the copies, and knows how far it came whatever interrupts it."""

    def __init__(self, bus: Bus, name: SensorName, since: int) -> None:
        self._bus = bus
        self._name = name
        self.written = 0
        """So many copies are on all in-sync brokers."""
        self.resume_at = since
        """All events before this time (milliseconds since 1970) are dealt with; some of those at it may be, too."""

    def run(self, events: Iterable[Past]) -> Iterator[list[tuple[Past, str]]]:
        """Batch by batch: what the log has refused for good, and why. All else of a batch is acknowledged."""
        remaining = iter(events)
        while batch := list(islice(remaining, BATCH)):
            self.resume_at = batch[0].moment
            fates = self._bus.write(copy_for(self._name, past) for past in batch)
            refused = []
            for past, fate in zip(batch, fates, strict=True):
                if isinstance(fate, UnproducibleError):
                    refused.append((past, str(fate)))
                elif isinstance(fate, LogError):
                    raise fate
                elif fate is None:
                    raise RetriableError("not all events were acknowledged in time. Check that the brokers run")
            self.written += len(batch) - len(refused)
            self.resume_at = batch[-1].moment
            yield refused


def rehearse(plan: SensorPlan, events: Iterable[Past], now_ms: int) -> Rehearsal:
    """Publishes nothing. The copies would be appended now, so that is the time that counts."""
    explainer = Explainer(plan)
    count = 0
    dependencies: Counter[str] = Counter()
    filtered: Counter[str] = Counter()
    fired = Counter(dict.fromkeys(plan.triggers, 0))
    for past in events:
        count += 1
        explanation = explainer.feed(marked(plan.name, past), now_ms)
        dependencies.update(past.dependencies)
        filtered.update(explanation.filtered.keys())
        fired.update(firing.trigger for firing in explanation.fired)
    return Rehearsal(count, dict(dependencies), dict(filtered), dict(fired))
