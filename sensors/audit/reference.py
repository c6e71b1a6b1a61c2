"""What a sensor should have done: a machine that never crashes, written as plainly as possible.

It shares nothing with the product's own match and join but the definitions of an event, of an action's id and of what a
dependency's filters let pass, so that a bug in the one is not hidden by the same bug in the other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from eventbus.cloudevents import from_kafka
from eventbus.errors import FormatError, InvalidEvent
from eventbus.events import Event
from eventbus.formats import UNREADABLE, Source, TriggerFact, trigger_fact
from eventbus.hashing import action_id
from eventbus.names import SensorName, Stage
from eventbus.ports import Record
from sensors.audit.violations import event_places, place_of
from sensors.filters.candidate import Candidate
from sensors.filters.gate import TRANSFORM, Gate
from sensors.plan import SensorPlan, TriggerPlan

ENDLESS = 2**63


class Span(msgspec.Struct, frozen=True):
    """The records before `end` (and after the span before) were dealt with by this generation of the spec."""

    generation: int
    end: int


class Match(msgspec.Struct, frozen=True, gc=False):
    """An event that a trigger wants."""

    trigger: str
    source: Source


class Expected(msgspec.Struct, frozen=True, gc=False):
    """An action that has to be there."""

    id: str
    trigger: str
    sources: tuple[Source, ...]
    lane: tuple[object, ...]
    """What it keeps its order with."""
    origin: tuple[Stage, int, int]
    """The record that completes it: who reads it, and its partition and offset."""
    place: str
    events: tuple[str, ...]


class _Identity(msgspec.Struct):
    source: str
    id: str


_identity = msgspec.json.Decoder(_Identity).decode


class Reference:
    """Fed with the committed log, and told which generation of the spec had its turn where."""

    def __init__(self, plans: Mapping[int, SensorPlan]) -> None:
        self._plans = plans
        self._name: SensorName = next(iter(plans.values())).name
        self._satisfied = {generation: _by_event(plan) for generation, plan in plans.items()}
        self._gates = {generation: _gates(plan) for generation, plan in plans.items()}
        self.actions: list[Expected] = []
        self.matched: dict[Match, str] = {}
        """Everything that a trigger wants, and where it stands."""
        self.to_join: set[Match] = set()
        """What of that has to be in the trigger topic."""
        self.invalid: set[str] = set()
        """Events that nobody can read."""
        self.untransformed: set[str] = set()
        """Events that a dependency could not transform."""
        self.held: dict[str, dict[str, tuple[Source, tuple[str, str]]]] = defaultdict(dict)
        self.superseded: set[Match] = set()
        self.parked: list[Match] = []

    # --- match ------------------------------------------------------------------------------------------------------

    def match(self, events: Iterable[Record], spans: Sequence[Span]) -> None:
        """One partition of the event topic, in order."""
        remaining = iter(events)
        event = next(remaining, None)
        for span in spans:
            while event is not None and event.offset < span.end:
                self._match(span.generation, event)
                event = next(remaining, None)

    def _match(self, generation: int, record: Record) -> None:
        try:
            event = from_kafka(record.headers, record.value)
        except InvalidEvent:
            self.invalid.add(place_of(record))
            return
        source = Source(record.partition, record.offset, record.timestamp)
        names = self._satisfied[generation]
        named = names.get((event.source, event.subject)) or names.get((event.source, event.type), set())
        satisfied = {name for name in named if self._admits(generation, name, event, record)}
        for trigger in self._plans[generation].triggers.values():
            if satisfied.isdisjoint(trigger.condition.names):
                continue
            match = Match(trigger.name, source)
            self.matched[match] = place_of(record)
            if _one_is_enough(trigger):
                reference = (record.topic, record.partition, record.offset, event.source, event.id)
                self.actions.append(
                    Expected(
                        id=action_id(str(self._name), trigger.name, [reference]),
                        trigger=trigger.name,
                        sources=(source,),
                        lane=(trigger.name, event.key if record.key is None else record.key, record.partition),
                        origin=(Stage.MATCH, record.partition, record.offset),
                        place=place_of(record),
                        events=(place_of(record),),
                    )
                )
            else:
                self.to_join.add(match)

    def _admits(self, generation: int, name: str, event: Event, record: Record) -> bool:
        gates = self._gates[generation]
        gate = gates.get(name)
        answer = event if gate is None else gate.admit(Candidate(event, record.timestamp))
        if isinstance(answer, Event):
            return name in gates
        if answer.reason == TRANSFORM:
            self.untransformed.add(place_of(record))
        return False

    # --- join -------------------------------------------------------------------------------------------------------

    def join(self, records: Iterable[Record], spans: Sequence[Span]) -> None:
        """One partition of the trigger topic, in order."""
        remaining = iter(records)
        record = next(remaining, None)
        generation = spans[0].generation if spans else 0
        triggers: set[str] = set()
        for span in spans:
            plan = self._plans[span.generation]
            if span.generation != generation:
                generation = span.generation
                self._migrate(plan, triggers)
            while record is not None and record.offset < span.end:
                self._join(plan, record, triggers)
                record = next(remaining, None)

    def _migrate(self, plan: SensorPlan, triggers: Iterable[str]) -> None:
        """Another spec: what is held and fits no more, or will not be asked for again, is parked."""
        for name in triggers:
            slot = self.held[name]
            trigger = plan.triggers.get(name)
            names = frozenset() if trigger is None or _one_is_enough(trigger) else trigger.condition.names
            for dependency in [each for each in slot if each not in names]:
                self.parked.append(Match(name, slot.pop(dependency)[0]))

    def _join(self, plan: SensorPlan, record: Record, triggers: set[str]) -> None:
        try:
            fact = trigger_fact(record)
            found = _identity(record.value or b"")
        except (FormatError, *UNREADABLE):
            return  # dead-lettered, and judged as such where records are damaged on purpose
        triggers.add(fact.trigger)
        trigger = plan.triggers.get(fact.trigger)
        names = [name for name in fact.dependencies if trigger and name in trigger.condition.names]
        if trigger is None or not names:
            self.parked.append(Match(fact.trigger, fact.source))
            return
        slot = self.held[fact.trigger]
        for name in names:
            if name in slot:
                self.superseded.add(Match(fact.trigger, slot[name][0]))
            slot[name] = fact.source, (found.source, found.id)
        if any(all(name in slot for name in alternative) for alternative in trigger.condition.alternatives):
            self._fire(fact, record, slot)

    def _fire(self, fact: TriggerFact, record: Record, slot: dict[str, tuple[Source, tuple[str, str]]]) -> None:
        used = dict.fromkeys(slot[name] for name in sorted(slot))
        topic = self._name.event_topic
        references = [(topic, at.partition, at.offset, *identity) for at, identity in used]
        sources = tuple(source for source, _ in used)
        self.actions.append(
            Expected(
                id=action_id(str(self._name), fact.trigger, references),
                trigger=fact.trigger,
                sources=sources,
                lane=(fact.trigger,),
                origin=(Stage.JOIN, record.partition, record.offset),
                place=place_of(record),
                events=event_places(topic, sources),
            )
        )
        slot.clear()


def _gates(plan: SensorPlan) -> Mapping[str, Gate | None]:
    """Of the dependencies that any trigger uses: nobody asks the others."""
    used = {name for trigger in plan.triggers.values() for name in trigger.condition.names}
    return {dependency.name: dependency.gate for dependency in plan.dependencies if dependency.name in used}


def _by_event(plan: SensorPlan) -> Mapping[tuple[str, str | None], set[str]]:
    names: defaultdict[tuple[str, str | None], set[str]] = defaultdict(set)
    for dependency in plan.dependencies:
        names[dependency.source, dependency.event_name].add(dependency.name)
    return dict(names)


def _one_is_enough(trigger: TriggerPlan) -> bool:
    return all(len(alternative) == 1 for alternative in trigger.condition.alternatives)
