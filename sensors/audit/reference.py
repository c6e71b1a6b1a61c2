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
from eventbus.events import REPLAY_FOR, Event
from eventbus.formats import FLUSH_HEADER, UNREADABLE, Flush, Source, TriggerFact, flush, header, trigger_fact
from eventbus.hashing import action_id
from eventbus.names import SensorName, Stage
from eventbus.ports import Record
from sensors.audit.expectations import Expectations, Expected, HeldPlace, Match
from sensors.audit.violations import event_places, place_of
from sensors.filters.candidate import Candidate
from sensors.filters.gate import TRANSFORM, Gate
from sensors.plan import SensorPlan, TriggerPlan, keying_of
from sensors.rules import Rules

ENDLESS = 2**63


class Span(msgspec.Struct, frozen=True):
    """The records before `end` (and after the span before) were dealt with by this generation of the spec."""

    generation: int
    end: int


class Waiting(msgspec.Struct, frozen=True, gc=False):
    """An event that is held. Ordered by `rank`, the newest is the greatest."""

    source: Source
    identity: tuple[str, str]
    clock: int
    rank: tuple[int, int]


class _Slot(msgspec.Struct):
    """What one trigger holds and remembers for one correlation key."""

    held: dict[str, list[Waiting]] = msgspec.field(default_factory=lambda: defaultdict(list))
    firings: list[tuple[int, int]] = msgspec.field(default_factory=list)
    """The newest event of each, and the clock."""
    seen: dict[str, int] = msgspec.field(default_factory=dict)


class _Identity(msgspec.Struct):
    source: str
    id: str


_identity = msgspec.json.Decoder(_Identity).decode


class Reference(Expectations):
    """Fed with the committed log, and told which generation of the spec had its turn where."""

    def __init__(self, plans: Mapping[int, SensorPlan]) -> None:
        super().__init__()
        self._plans = plans
        self._name: SensorName = next(iter(plans.values())).name
        self._satisfied = {generation: _by_event(plan) for generation, plan in plans.items()}
        self._gates = {generation: _gates(plan) for generation, plan in plans.items()}
        self._slots: dict[tuple[str, str], _Slot] = defaultdict(_Slot)

    @property
    def held(self) -> set[HeldPlace]:
        """By trigger, correlation key and dependency: what is held in the end."""
        return {
            (trigger, key, name, waiting.source)
            for (trigger, key), slot in self._slots.items()
            for name, events in slot.held.items()
            for waiting in events
        }

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
        if event.attributes.get(REPLAY_FOR) not in (None, str(self._name)):
            return  # a copy for another sensor
        source = Source(record.partition, record.offset, record.timestamp)
        names = self._satisfied[generation]
        named = names.get((event.source, event.subject)) or names.get((event.source, event.type), set())
        satisfied = {
            name: candidate for name in named if (candidate := self._admitted(generation, name, event, record))
        }
        for trigger in self._plans[generation].triggers.values():
            wanted = {name: satisfied[name] for name in trigger.condition.names if name in satisfied}
            if wanted and _one_is_enough(trigger):
                self.matched[Match(trigger.name, source)] = place_of(record)
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
            elif wanted:
                for key in self._keys(trigger, wanted, record):
                    match = Match(trigger.name, source, key)
                    self.matched[match] = place_of(record)
                    self.to_join.add(match)

    def _keys(self, trigger: TriggerPlan, wanted: Mapping[str, Candidate], record: Record) -> set[str]:
        correlation = trigger.correlation
        if correlation is None:
            return {""}
        keys = {correlation.select[name](candidate) for name, candidate in wanted.items()}
        if None in keys and not correlation.ignore_missing:
            self.unkeyed[trigger.name, place_of(record)] += 1
        return {key for key in keys if key is not None}

    def _admitted(self, generation: int, name: str, event: Event, record: Record) -> Candidate | None:
        gates = self._gates[generation]
        if name not in gates:
            return None
        gate = gates[name]
        candidate = Candidate(event, record.timestamp)
        answer = candidate if gate is None else gate.admit(candidate)
        if isinstance(answer, Candidate):
            return answer
        if answer.reason == TRANSFORM:
            self.untransformed.add(place_of(record))
        return None

    # --- join -------------------------------------------------------------------------------------------------------

    def join(self, records: Iterable[Record], spans: Sequence[Span]) -> None:
        """One partition of the trigger topic, in order."""
        remaining = iter(records)
        record = next(remaining, None)
        generation = spans[0].generation if spans else 0
        slots: dict[tuple[str, str], str] = {}
        clock = 0
        for span in spans:
            plan = self._plans[span.generation]
            if span.generation != generation:
                before, generation = self._plans[generation], span.generation
                self._sweep(before, slots, clock)
                self._migrate(before, plan, slots, clock)
            while record is not None and record.offset < span.end:
                clock = self._join(plan, record, slots, clock)
                record = next(remaining, None)
        if spans:
            self._sweep(self._plans[generation], slots, clock)

    def _sweep(self, plan: SensorPlan, slots: Iterable[tuple[str, str]], clock: int) -> None:
        """Nobody waits for a visitor to let go of what is too old."""
        for place in slots:
            trigger = plan.triggers.get(place[0])
            if trigger is not None and trigger.rules is not None:
                self._forget(trigger.rules, self._slots[place], place, clock)

    def _forget(self, rules: Rules, slot: _Slot, place: tuple[str, str], clock: int) -> None:
        for events in slot.held.values():
            self._expire(rules, place, events, [each for each in events if _outlived(rules.ttl, each.clock, clock)])
        slot.firings = [each for each in slot.firings if not _outlived(rules.once_within, each[1], clock)]
        if rules.dedupe is not None:
            slot.seen = {each: since for each, since in slot.seen.items() if clock - since <= rules.dedupe.span}

    def _migrate(self, before: SensorPlan, plan: SensorPlan, slots: Mapping[tuple[str, str], str], clock: int) -> None:
        """Another spec: what is held and fits no more, or will not be asked for again, is parked."""
        for place, keying in slots.items():
            slot = self._slots[place]
            trigger = plan.triggers.get(place[0])
            fits = trigger is not None and not _one_is_enough(trigger) and trigger.keying == keying
            for name in [name for name in slot.held if not trigger or not fits or name not in trigger.condition.names]:
                self.parked += [Match(place[0], waiting.source, place[1]) for waiting in slot.held.pop(name)]
            rules = trigger.rules if trigger is not None and fits else None
            if rules is None or rules.once_within is None:
                slot.firings = []
            if rules is None or rules.dedupe is None:
                slot.seen = {}
            if trigger is None or not fits:
                continue
            was_plain = (old := before.triggers.get(place[0])) is None or old.rules is None
            for name, events in slot.held.items():
                if was_plain and rules is not None:
                    events[:] = [Waiting(e.source, e.identity, clock, (e.source.timestamp, e.rank[0])) for e in events]
                self._keep_newest(trigger, place, name, events)
                if rules is None and not was_plain:
                    events[:] = [msgspec.structs.replace(each, rank=(each.rank[1], 0)) for each in events]

    def _join(self, plan: SensorPlan, record: Record, slots: dict[tuple[str, str], str], clock: int) -> int:
        if header(record.headers, FLUSH_HEADER):
            self._flush(plan, flush(record), record, clock)
            return clock
        try:
            fact = trigger_fact(record)
            found = _identity(record.value or b"")
        except (FormatError, *UNREADABLE):
            return clock  # dead-lettered, and judged as such where records are damaged on purpose
        clock = max(clock, fact.source.timestamp)
        trigger = plan.triggers.get(fact.trigger)
        fits = trigger is not None and trigger.keying == keying_of(fact.shape)
        names = [name for name in fact.dependencies if trigger and fits and name in trigger.condition.names]
        if trigger is None or not names:
            self.parked.append(Match(fact.trigger, fact.source, fact.key))
            return clock
        slots[fact.trigger, fact.key] = trigger.keying
        slot = self._slots[fact.trigger, fact.key]
        arrived = Waiting(fact.source, (found.source, found.id), clock, (fact.source.timestamp, record.offset))
        if trigger.rules is None:
            arrived = msgspec.structs.replace(arrived, rank=(record.offset, 0))
            for name in names:
                slot.held[name].append(arrived)
                self._keep_newest(trigger, (fact.trigger, fact.key), name, slot.held[name])
        elif not self._arrive(trigger, slot, fact, names, arrived):
            return clock
        enough = {name for name, events in slot.held.items() if len(events) >= _wanted(trigger, name)}
        if any(alternative <= enough for alternative in trigger.condition.alternatives):
            self._complete(trigger, slot, fact.key, record, clock)
        return clock

    def _flush(self, plan: SensorPlan, wanted: Flush, record: Record, clock: int) -> None:
        trigger = plan.triggers.get(wanted.trigger)
        slot = self._slots[wanted.trigger, wanted.key]
        if trigger is not None and trigger.rules is not None:
            self._forget(trigger.rules, slot, (wanted.trigger, wanted.key), clock)
        held = [waiting for events in slot.held.values() for waiting in events]
        if trigger is None or not held:
            return
        if wanted.fire:
            self._complete(trigger, slot, wanted.key, record, clock, forced=True)
            return
        slot.held.clear()
        dropped = [Match(trigger.name, waiting.source, wanted.key) for waiting in held]
        self.unused.update(dropped)
        self.buried += dropped

    def _arrive(self, trigger: TriggerPlan, slot: _Slot, fact: TriggerFact, names: list[str], arrived: Waiting) -> bool:
        """A stateful trigger gets an event. Returns whether it counts. Every rule looks at everything, every time."""
        place = fact.trigger, fact.key
        rules = trigger.rules or Rules()
        clock = arrived.clock
        self._forget(rules, slot, place, clock)
        if rules.dedupe is not None and fact.unique is not None:
            if fact.unique in slot.seen:
                self.unused.add(Match(fact.trigger, fact.source, fact.key))
                return False
            slot.seen[fact.unique] = clock
        for name in names:
            slot.held[name].append(arrived)
        newest = max(each.source.timestamp for events in slot.held.values() for each in events)
        for name, events in slot.held.items():
            apart = [each for each in events if _apart(rules, each.source.timestamp, newest)]
            self._expire(rules, place, events, apart)
            self._keep_newest(trigger, place, name, events)
        return True

    def _expire(self, rules: Rules, place: tuple[str, str], events: list[Waiting], expired: Iterable[Waiting]) -> None:
        for waiting in expired:
            events.remove(waiting)
            match = Match(place[0], waiting.source, place[1])
            self.unused.add(match)
            if rules.bury_expired:
                self.buried.append(match)

    def _keep_newest(self, trigger: TriggerPlan, place: tuple[str, str], name: str, events: list[Waiting]) -> None:
        events.sort(key=lambda waiting: waiting.rank)
        while len(events) > _wanted(trigger, name):
            self.unused.add(Match(place[0], events.pop(0).source, place[1]))

    def _complete(
        self, trigger: TriggerPlan, slot: _Slot, key: str, record: Record, clock: int, *, forced: bool = False
    ) -> None:
        used = dict.fromkeys(
            (waiting.source, waiting.identity) for name in sorted(slot.held) for waiting in slot.held[name]
        )
        slot.held.clear()
        newest = max(source.timestamp for source, _ in used)
        once = None if trigger.rules is None else trigger.rules.once_within
        if once is not None:
            if not forced and any(abs(newest - timestamp) < once for timestamp, _ in slot.firings):
                self.unused |= {Match(trigger.name, source, key) for source, _ in used}
                return
            slot.firings.append((newest, clock))
        topic = self._name.event_topic
        references = [(topic, at.partition, at.offset, *identity) for at, identity in used]
        sources = tuple(source for source, _ in used)
        self.actions.append(
            Expected(
                id=action_id(str(self._name), trigger.name, references),
                trigger=trigger.name,
                sources=sources,
                lane=(trigger.name, key),
                origin=(Stage.JOIN, record.partition, record.offset),
                place=place_of(record),
                events=event_places(topic, sources),
                key=key,
            )
        )


def _wanted(trigger: TriggerPlan, name: str) -> int:
    return 1 if trigger.rules is None else trigger.rules.count.get(name, 1)


def _outlived(span: int | None, since: int, clock: int) -> bool:
    return span is not None and clock - since > span


def _apart(rules: Rules, older: int, newer: int) -> bool:
    if rules.within is not None and newer - older > rules.within:
        return True
    ticks = (reset.next_after(older) for reset in rules.resets)
    return any(tick is not None and tick <= newer for tick in ticks)


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
    return trigger.rules is None and all(len(alternative) == 1 for alternative in trigger.condition.alternatives)
