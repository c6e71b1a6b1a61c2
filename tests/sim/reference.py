"""What a sensor should have done: a machine that never crashes, written as plainly as possible.

It shares nothing with the product's own join but the definition of an action's id, so that a bug in the one is not
hidden by the same bug in the other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from eventbus.formats import Source, TriggerFact, trigger_fact
from eventbus.hashing import action_id
from eventbus.ports import Record
from sensors.plan import SensorPlan


class Span(msgspec.Struct, frozen=True):
    """The records before `end` (and after the span before) were dealt with by this generation."""

    generation: int
    end: int


class Expected(msgspec.Struct, frozen=True):
    """An action that has to be there, and what it keeps its order with."""

    id: str
    trigger: str
    lane: object
    place: str


Wanted = tuple[str, int, int]
"""A record of the trigger topic: trigger, and partition and offset of its event."""


class _Identity(msgspec.Struct):
    source: str
    id: str


_identity = msgspec.json.Decoder(_Identity).decode


class Reference:
    """Fed with the committed log, and told which generation of the spec had its turn where."""

    def __init__(self, plans: Mapping[int, SensorPlan]) -> None:
        self._plans = plans
        self._name = plans[1].name
        self.actions: list[Expected] = []
        self.triggers: dict[Wanted, tuple[str, ...]] = {}
        self.held: dict[str, dict[str, tuple[Source, tuple[str, str]]]] = defaultdict(dict)
        self.parked: list[tuple[str, Source]] = []

    def match(self, events: Iterable[Record], spans: Sequence[Span]) -> None:
        """One partition of the event topic."""
        remaining = iter(events)
        event = next(remaining, None)
        for span in spans:
            plan = self._plans[span.generation]
            while event is not None and event.offset < span.end:
                self._match(plan, event)
                event = next(remaining, None)

    def _match(self, plan: SensorPlan, record: Record) -> None:
        headers = dict(record.headers)
        source, name, event_id = ((headers[f"ce_{key}"] or b"").decode() for key in ("source", "subject", "id"))
        satisfied = {each.name for each in plan.dependencies if (each.source, each.event_name) == (source, name)}
        for trigger in plan.triggers.values():
            matched = tuple(sorted(satisfied & trigger.condition.names))
            if matched and all(len(alternative) == 1 for alternative in trigger.condition.alternatives):
                reference = (record.topic, record.partition, record.offset, source, event_id)
                place = f"{record.topic}[{record.partition}]@{record.offset}"
                lane = (trigger.name, record.key, record.partition)
                action = action_id(str(self._name), trigger.name, [reference])
                self.actions.append(Expected(action, trigger.name, lane, place))
            elif matched:
                self.triggers[trigger.name, record.partition, record.offset] = matched

    def join(self, records: Iterable[Record], spans: Sequence[Span]) -> None:
        """One partition of the trigger topic."""
        remaining = iter(records)
        record = next(remaining, None)
        generation = spans[0].generation if spans else 1
        triggers: set[str] = set()
        for span in spans:
            plan = self._plans[span.generation]
            if span.generation != generation:
                generation = span.generation
                self._migrate(plan, triggers)
            while record is not None and record.offset < span.end:
                fact = trigger_fact(record)
                triggers.add(fact.trigger)
                self._join(plan, fact, record)
                record = next(remaining, None)

    def _migrate(self, plan: SensorPlan, triggers: Iterable[str]) -> None:
        for name in triggers:
            slot = self.held[name]
            trigger = plan.triggers.get(name)
            names = frozenset() if trigger is None or trigger.condition.single else trigger.condition.names
            for dependency in [each for each in slot if each not in names]:
                self.parked.append((name, slot.pop(dependency)[0]))

    def _join(self, plan: SensorPlan, fact: TriggerFact, record: Record) -> None:
        trigger = plan.triggers.get(fact.trigger)
        names = [name for name in fact.dependencies if trigger and name in trigger.condition.names]
        if trigger is None or not names:
            self.parked.append((fact.trigger, fact.source))
            return
        slot = self.held[fact.trigger]
        found = _identity(record.value or b"")
        for name in names:
            slot[name] = fact.source, (found.source, found.id)
        if not any(all(name in slot for name in alternative) for alternative in trigger.condition.alternatives):
            return
        used = dict.fromkeys(slot[name] for name in sorted(slot))
        references = [(self._name.event_topic, at.partition, at.offset, *identity) for at, identity in used]
        place = f"{record.topic}[{record.partition}]@{record.offset}"
        action = action_id(str(self._name), fact.trigger, references)
        self.actions.append(Expected(action, fact.trigger, (fact.trigger, "joined"), place))
        slot.clear()
