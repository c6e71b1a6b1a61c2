"""The match stage: which dependencies does an event satisfy, and for which triggers?

One record per (event, trigger), listing every dependency that the event matched. A trigger for which any single
dependency is enough gets its action at once; for all others the event goes to the trigger topic to be joined.

An event is found by (source, name) in one dictionary, so one that concerns nobody costs the same with 1 or 1,000
triggers. Its name is its subject, as argo-events has it; where no dependency asks for that, its type.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import msgspec

from eventbus.cloudevents import from_kafka, to_json
from eventbus.errors import InvalidEvent
from eventbus.events import Event
from eventbus.formats import (
    TRIGGER_HEADER,
    VERSION,
    Source,
    Trace,
    TriggerFact,
    encode_fact,
    header,
)
from eventbus.hashing import partition_of, slot_key
from eventbus.names import Kind, Stage
from eventbus.ports import Headers, Output, Record
from eventbus.topics import Topology
from sensors.actionrecords import ActionWriter, DirectWriter
from sensors.deadletters import INVALID_EVENT, DeadLetters
from sensors.plan import SensorPlan, TriggerPlan

_TRACE_PARENT_LENGTH = 55
_TRACE_STATE_LIMIT = 512


class _Route(msgspec.Struct, frozen=True):
    """What to do with an event for one trigger."""

    trigger: TriggerPlan
    dependencies: tuple[str, ...]
    key: bytes
    partition: int
    direct: DirectWriter | None
    """Writes the action at once, where one event is enough for it."""


class Matcher:
    """Turns records of the event topic into records of the trigger and action topics. Keeps no state."""

    def __init__(self, plan: SensorPlan, topology: Topology, replica: str) -> None:
        self._trigger_topic = plan.name.topic(Kind.TRIGGER)
        self._dead_letters = DeadLetters(plan.name, Stage.MATCH, topology, replica)
        self._replica = replica
        self._routes = _routes(plan, topology, replica)

    def outputs(self, record: Record) -> list[Output]:
        """Everything that one record of the event topic causes."""
        try:
            event = from_kafka(record.headers, record.value)
        except InvalidEvent as error:
            return [self._dead_letters.of(record, INVALID_EVENT, str(error))]
        routes = self.routes(event)
        if not routes:
            return []
        document = to_json(event)
        trace = _trace(event, record.headers)
        outputs = []
        for route in routes:
            if route.direct is not None:
                outputs.append(route.direct.output(record, event, document, trace))
            else:
                fact = TriggerFact(
                    version=VERSION,
                    trigger=route.trigger.name,
                    dependencies=route.dependencies,
                    source=Source(record.partition, record.offset, record.timestamp),
                    shape=route.trigger.shape,
                    replica=self._replica,
                    trace=trace,
                )
                headers = [(TRIGGER_HEADER, encode_fact(fact))]
                outputs.append(Output(self._trigger_topic, route.partition, route.key, document, headers))
        return outputs

    def routes(self, event: Event) -> Sequence[_Route]:
        """Which triggers want this event."""
        attributes = event.attributes
        source = attributes["source"]
        routes = self._routes.get((source, attributes.get("subject")))
        return self._routes.get((source, attributes["type"]), ()) if routes is None else routes


def _routes(plan: SensorPlan, topology: Topology, replica: str) -> dict[tuple[object, object], tuple[_Route, ...]]:
    wanted: dict[tuple[object, object], set[str]] = defaultdict(set)
    for dependency in plan.dependencies:
        wanted[dependency.source, dependency.event_name].add(dependency.name)
    writer = ActionWriter(plan, replica)
    routes = {}
    for event, names in wanted.items():
        found = []
        for trigger in plan.triggers.values():
            matched = tuple(sorted(names & trigger.condition.names))
            if matched:
                key = slot_key(trigger.name, b"")
                partition = partition_of(key, topology.trigger_partitions)
                direct = DirectWriter(writer, trigger, matched, topology.action_partitions) if trigger.direct else None
                found.append(_Route(trigger, matched, key, partition, direct))
        routes[event] = tuple(found)
    return routes


def _trace(event: Event, headers: Headers) -> Trace | None:
    """W3C trace context: CloudEvents' tracing extension, else the headers that Kafka instrumentation writes."""
    parent, state = event.attributes.get("traceparent"), event.attributes.get("tracestate")
    if parent is None:
        if len(headers) == len(event.attributes):
            return None  # every header is an attribute: the common case, without a search
        raw = header(headers, "traceparent")
        if raw is None:
            return None
        parent = raw.decode("ascii", "replace")
        state = (header(headers, "tracestate") or b"").decode("ascii", "replace")
    if not isinstance(parent, str) or len(parent) != _TRACE_PARENT_LENGTH:
        return None
    return Trace(parent, state if isinstance(state, str) and len(state) <= _TRACE_STATE_LIMIT else "")
