"""The match stage: which dependencies does an event satisfy, and for which triggers?

One record per (event, trigger), listing every dependency that the event matched. A trigger for which any single
dependency is enough gets its action at once; for all others the event goes to the trigger topic to be joined.

Where dependencies transform the same event in different ways the record to be joined has a document for each of them:
an event arrives once, whatever it is turned into. An action for which one event is enough has one document, that of the
first dependency in the order of the condition.

An event is found by (source, name) in one dictionary, so one that concerns nobody costs the same with 1 or 1,000
triggers. Its name is its subject, as argo-events has it; where no dependency asks for that, its type. It goes to the
partition of its trigger and correlation key, so that all that may be joined meets there. A copy that was replayed for
another sensor concerns nobody here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import TypeAlias

import msgspec

from eventbus.cloudevents import from_kafka, to_json
from eventbus.errors import InvalidEvent
from eventbus.events import REPLAY_FOR, Event
from eventbus.formats import TRIGGER_HEADER, VERSION, OwnDocument, Source, Trace, TriggerFact, encode_fact, header
from eventbus.hashing import partition_of, slot_key
from eventbus.names import Kind, Stage
from eventbus.ports import Headers, Output, Record
from eventbus.topics import Topology
from sensors.actionrecords import ActionWriter, DirectWriter
from sensors.deadletters import INVALID_EVENT, NO_KEY, TRANSFORM_FAILED, DeadLetters
from sensors.filters.candidate import Candidate, Rejection
from sensors.filters.gate import TRANSFORM, Gate
from sensors.plan import SensorPlan, TriggerPlan
from sensors.selectors import bounded

CORRELATE = "correlate"
"""The reason of events that a trigger passes over because they have no value to correlate by."""
_TRACE_PARENT_LENGTH = 55
_TRACE_STATE_LIMIT = 512
_REMEMBERED_WRITERS = 1000
_REMEMBERED_PLACES = 10_000


OnRejected: TypeAlias = Callable[[str, Rejection], None]
"""Told which dependency does not get an event, and why."""


class _Route(msgspec.Struct, frozen=True):
    """What to do with an event for one trigger."""

    trigger: TriggerPlan
    dependencies: tuple[str, ...]
    direct: DirectWriter | None
    """Writes the action at once, where one event is enough for it."""


class _Routes(msgspec.Struct, frozen=True):
    """What to do with the events of one source and name."""

    routes: tuple[_Route, ...]
    gates: tuple[tuple[str, Gate | None], ...]
    """Every dependency in the routes; none where nobody looks closer at an event."""


class Matcher:
    """Turns records of the event topic into records of the trigger and action topics. Keeps no state."""

    def __init__(
        self, plan: SensorPlan, topology: Topology, replica: str, on_rejected: OnRejected | None = None
    ) -> None:
        self._sensor = str(plan.name)
        self._trigger_topic = plan.name.topic(Kind.TRIGGER)
        self._dead_letters = DeadLetters.of_stage(plan.name, Stage.MATCH, topology, replica)
        self._replica = replica
        self._on_rejected = on_rejected
        self._place = lru_cache(_REMEMBERED_PLACES)(partial(_place, topology.trigger_partitions))
        self._routes = _routes(plan, topology, replica)
        writer = ActionWriter(plan, topology, replica)
        self._direct_writer = lru_cache(_REMEMBERED_WRITERS)(
            lambda trigger, names: DirectWriter(writer, plan.triggers[trigger], names, topology.action_partitions)
        )

    def outputs(self, record: Record) -> list[Output]:
        """Everything that one record of the event topic causes."""
        try:
            event = from_kafka(record.headers, record.value)
        except InvalidEvent as error:
            return [self._dead_letters.of(record, INVALID_EVENT, str(error))]
        found = self._found(event)
        if found is None:
            return []
        if found.gates:
            return self._sifted(record, event, found)
        document = to_json(event)
        trace = _trace(event, record.headers)
        outputs = []
        for route in found.routes:
            if route.direct is not None:
                outputs.append(route.direct.output(record, event, document, trace))
            else:
                outputs.append(self._to_join(route.trigger, route.dependencies, record, document, trace))
        return outputs

    def asked_for_by(self, event: Event) -> list[str]:
        """The dependencies in conditions that ask for events of this source and name, whatever their filters say."""
        found = self._found(event)
        return sorted({name for route in found.routes for name in route.dependencies}) if found else []

    def _found(self, event: Event) -> _Routes | None:
        attributes = event.attributes
        if attributes.get(REPLAY_FOR, self._sensor) != self._sensor:
            return None
        source = attributes["source"]
        return self._routes.get((source, attributes.get("subject"))) or self._routes.get((source, attributes["type"]))

    def _to_join(
        self,
        trigger: TriggerPlan,
        dependencies: tuple[str, ...],
        record: Record,
        document: bytes,
        trace: Trace | None,
        *,
        own: tuple[OwnDocument, ...] = (),
        key: str = "",
        unique: str | None = None,
    ) -> Output:
        fact = TriggerFact(
            version=VERSION,
            trigger=trigger.name,
            dependencies=dependencies,
            source=Source(record.partition, record.offset, record.timestamp),
            shape=trigger.shape,
            replica=self._replica,
            trace=trace,
            own=own,
            key=key,
            unique=unique,
        )
        slot, partition = self._place(trigger.name, key)
        return Output(self._trigger_topic, partition, slot, document, [(TRIGGER_HEADER, encode_fact(fact))])

    # --- dependencies and triggers that look closer -----------------------------------------------------------------

    def _sifted(self, record: Record, event: Event, found: _Routes) -> list[Output]:
        """What is left of the routes when every dependency has transformed and filtered the event."""
        candidate = Candidate(event, record.timestamp)
        admitted: dict[str, Candidate] = {}
        failures = []
        for name, gate in found.gates:
            answer = candidate if gate is None else gate.admit(candidate)
            if isinstance(answer, Candidate):
                admitted[name] = answer
                continue
            self._reject(name, answer)
            if answer.reason == TRANSFORM:
                failures.append(f"dependency `{name}`: {answer.text}")
        outputs = [self._dead_letters.of(record, TRANSFORM_FAILED, "; ".join(failures))] if failures else []
        documents = _documents(admitted)
        trace = _trace(event, record.headers)
        for route in found.routes:
            names = route.dependencies
            if len(admitted) < len(found.gates):
                names = tuple(name for name in names if name in admitted)
            if not names:
                continue
            if route.direct is not None:
                document = documents[names[0]]
                shared = tuple(name for name in names if documents[name] == document)
                outputs.append(self._direct_writer(route.trigger.name, shared).output(record, event, document, trace))
                continue
            for key, group in self._by_key(route.trigger, names, admitted, record, outputs).items():
                document = documents[group[0]]
                others = [name for name in group if documents[name] != document]
                own = tuple(OwnDocument(name, msgspec.Raw(documents[name])) for name in others)
                unique = _unique(route.trigger, group[0], admitted[group[0]])
                outputs.append(
                    self._to_join(route.trigger, group, record, document, trace, own=own, key=key, unique=unique)
                )
        return outputs

    def _by_key(
        self,
        trigger: TriggerPlan,
        names: tuple[str, ...],
        admitted: Mapping[str, Candidate],
        record: Record,
        outputs: list[Output],
    ) -> Mapping[str, tuple[str, ...]]:
        """The dependencies by correlation key: each may look for it somewhere else."""
        correlation = trigger.correlation
        if correlation is None:
            return {"": names}
        keys: dict[str, tuple[str, ...]] = {}
        missing = []
        for name in names:
            key = correlation.select[name](admitted[name])
            if key is None:
                missing.append(name)
            else:
                keys[key] = (*keys.get(key, ()), name)
        if missing and correlation.ignore_missing:
            for name in missing:
                self._reject(name, Rejection(CORRELATE, f"the event has no value at `{correlation.by[name]}`"))
        elif missing:
            where = ", ".join(f"`{correlation.by[name]}` (dependency `{name}`)" for name in missing)
            detail = f"the trigger `{trigger.name}` correlates by a value that the event does not have: {where}"
            outputs.append(self._dead_letters.of(record, NO_KEY, detail, trigger=trigger.name))
        return keys

    def _reject(self, dependency: str, rejection: Rejection) -> None:
        if self._on_rejected is not None:
            self._on_rejected(dependency, rejection)


def _place(partitions: int, trigger: str, key: str) -> tuple[bytes, int]:
    """Key and partition of all that may be joined with each other."""
    slot = slot_key(trigger, key.encode())
    return slot, partition_of(slot, partitions)


def _unique(trigger: TriggerPlan, dependency: str, candidate: Candidate) -> str | None:
    dedupe = None if trigger.rules is None else trigger.rules.dedupe
    if dedupe is None:
        return None
    if dedupe.select is not None:
        value = dedupe.select(candidate)
        return None if value is None else f"{dependency} {value}"  # events of another dependency are no repeats
    return bounded(f"{candidate.event.source} {candidate.event.id}")


def _documents(candidates: Mapping[str, Candidate]) -> dict[str, bytes]:
    """The event of each dependency as it is written; most share one."""
    written: dict[int, bytes] = {}
    documents = {}
    for name, candidate in candidates.items():
        if id(candidate) not in written:
            written[id(candidate)] = to_json(candidate.event)
        documents[name] = written[id(candidate)]
    return documents


def _routes(plan: SensorPlan, topology: Topology, replica: str) -> dict[tuple[object, object], _Routes]:
    wanted: dict[tuple[object, object], set[str]] = defaultdict(set)
    for dependency in plan.dependencies:
        wanted[dependency.source, dependency.event_name].add(dependency.name)
    gates = {dependency.name: dependency.gate for dependency in plan.dependencies}
    writer = ActionWriter(plan, topology, replica)
    routes = {}
    for event, names in wanted.items():
        found = []
        for trigger in plan.triggers.values():
            matched = tuple(sorted(names & trigger.condition.names))
            if matched:
                direct = DirectWriter(writer, trigger, matched, topology.action_partitions) if trigger.direct else None
                found.append(_Route(trigger, matched, direct))
        used = sorted({name for route in found for name in route.dependencies})
        gated = any(gates[name] is not None for name in used) or any(map(_looks_closer, found))
        routes[event] = _Routes(tuple(found), tuple((name, gates[name]) for name in used) if gated else ())
    return routes


def _looks_closer(route: _Route) -> bool:
    rules = route.trigger.rules
    return rules is not None and (rules.correlation is not None or rules.dedupe is not None)


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
