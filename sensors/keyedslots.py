"""All slots of stateful triggers in one partition, and their records in the state topic: the only place they live in.

A record is written when it changes, and only once per batch: what came and went within a batch leaves no trace.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from heapq import heapify, heappop, heappush

import msgspec

from eventbus.formats import STATE_HEADER, VERSION, encode_fact
from eventbus.names import Kind
from eventbus.ports import Output, Record
from eventbus.stateformats import (
    Fired,
    FiredKey,
    Firing,
    HeldKey,
    Seen,
    SeenKey,
    StateFact,
    encode_state_key,
    fired,
    seen,
    state_fact,
)
from sensors.held import Held, identity_in
from sensors.keyed import Arrival, Changes, Gone, Kept, KeyedSlot, Memory
from sensors.plan import SensorPlan, TriggerPlan, keying_of

SWEEP = 1000
"""So many slots are cleaned up with one batch: a clock that jumps must not make a transaction without end."""

_STALE_DEADLINES = 10_000
"""From so many on it is worth to look whether most of them are of slots that are gone."""


class Stray(msgspec.Struct, frozen=True):
    """A held event that the spec no longer has a slot for."""

    key: HeldKey
    kept: Kept
    shape: str


class KeyedSlots:
    """What stateful triggers hold and remember in one partition."""

    def __init__(self, plan: SensorPlan, partition: int) -> None:
        self._plan = plan
        self._partition = partition
        self._state_topic = plan.name.topic(Kind.STATE)
        self.slots: defaultdict[str, dict[str, KeyedSlot]] = defaultdict(dict)
        self._shapes: dict[Memory, str] = {}
        """Of what was loaded: which spec it was written for."""
        self._stored: set[Memory] = set()
        self._changes: Changes = {}
        self._deadlines: list[tuple[int, str, str]] = []
        self._awaited: dict[tuple[str, str], int] = {}
        """The deadline of each slot that is next in the heap."""

    # --- restore ----------------------------------------------------------------------------------------------------

    def load(self, key: Memory, record: Record) -> bool:
        """Take over one record of the state topic; they come in its order. False: it is a plain trigger's."""
        if record.value is None:
            self._unload(key)
            return False
        match key:
            case HeldKey():
                fact = state_fact(record)
                if fact.arrived is None:
                    self._unload(key)
                    return False
                clock, offset = fact.arrived
                event = Held(record.value, identity_in(record), fact.source, fact.trace, offset)
                self._unload(key)
                self._slot(key).held.setdefault(key.dependency, []).append(Kept(event, clock, key.n))
                shape = fact.shape
            case FiredKey():
                firings = fired(record)
                self._slot(key).firings, shape = firings.firings, firings.shape
            case SeenKey():
                memory = seen(record)
                self._slot(key).seen[key.unique], shape = memory.clock, memory.shape
        self._shapes[key] = shape
        self._stored.add(key)
        return True

    def _unload(self, key: Memory) -> None:
        if key in self._stored:
            self._slot(key).lose(key)
            self._stored.discard(key)
            self._shapes.pop(key, None)

    def loaded(self) -> list[Stray]:
        """The state topic is read. What no longer fits the spec leaves it; the held events among that are returned."""
        strays = []
        for key, shape in self._shapes.items():
            if not self._fits(key, shape):
                slot = self._slot(key)
                if isinstance(key, HeldKey):
                    strays.append(Stray(key, next(k for k in slot.held[key.dependency] if k.n == key.n), shape))
                slot.lose(key)
                self._changes[key] = None
        self._shapes.clear()
        for slot in [slot for slots in self.slots.values() for slot in slots.values()]:
            slot.restored()
            trigger = self._plan.triggers.get(slot.trigger)
            if trigger is not None and trigger.rules is not None:
                slot.trim(trigger.rules, self._changes)  # it may need fewer events now
            self._settle(slot)
        return strays

    def _fits(self, key: Memory, shape: str) -> bool:
        trigger = self._plan.triggers.get(key.trigger)
        rules = None if trigger is None else trigger.rules
        if trigger is None or rules is None or trigger.keying != keying_of(shape):
            return False
        match key:
            case HeldKey():
                return key.dependency in trigger.condition.names
            case FiredKey():
                return rules.once_within is not None
            case SeenKey():
                return rules.dedupe is not None

    def adopt(self, trigger: str, dependency: str, event: Held, clock: int, *, stored: bool) -> None:
        """A plain trigger has become a stateful one: what it holds moves here."""
        key = HeldKey(trigger, "", dependency)
        if stored:
            self._stored.add(key)
        slot = self._slot(key)
        slot.keep(dependency, event, clock, self._changes)
        self._settle(slot)

    # --- evaluate ---------------------------------------------------------------------------------------------------

    def held(self, trigger: str) -> Iterator[tuple[str, str, Held]]:
        """What a trigger holds right now: correlation key, dependency and event. Looks through copies only."""
        for key, slot in self.slots.get(trigger, {}).copy().items():
            for dependency, events in sorted(slot.held.copy().items()):
                for kept in events.copy():
                    yield key, dependency, kept.event

    def arrive(
        self, trigger: TriggerPlan, key: str, events: dict[str, Held], unique: str | None, clock: int
    ) -> Arrival:
        if trigger.rules is None:
            raise ValueError(f"the trigger {trigger.name} is a plain one")
        slots = self.slots[trigger.name]
        slot = slots.get(key)
        if slot is None:
            slot = slots[key] = KeyedSlot(trigger.name, key)
        arrival = slot.arrive(trigger.rules, trigger.condition, events, unique, clock, changes=self._changes)
        self._settle(slot)
        return arrival

    def flush(self, trigger: TriggerPlan, key: str, clock: int, *, fire: bool) -> Arrival:
        """`fired` is what was held."""
        slot = self.slots[trigger.name].get(key)
        if slot is None or trigger.rules is None:
            return Arrival([], [])
        arrival = slot.flush(trigger.rules, clock, self._changes, fire=fire)
        self._settle(slot)
        return arrival

    def sweep(self, clock: int) -> Iterator[tuple[str, str, Gone]]:
        """Clean up slots that nobody visits: by trigger and key, the events that are gone."""
        for _ in range(SWEEP):
            if not self._deadlines or self._deadlines[0][0] >= clock:
                return
            _, trigger, key = heappop(self._deadlines)
            self._awaited.pop((trigger, key), None)
            slot = self.slots[trigger].get(key)
            rules = self._plan.triggers[trigger].rules
            if slot is not None and rules is not None:
                for gone in slot.forget(rules, clock, self._changes):
                    yield trigger, key, gone
                self._settle(slot)

    def overdue(self, clock: int) -> bool:
        """Whether a sweep has left something to do."""
        return bool(self._deadlines) and self._deadlines[0][0] < clock

    def _settle(self, slot: KeyedSlot) -> None:
        """Forget an empty slot; know when to look after the others."""
        place = slot.trigger, slot.key
        if not slot:
            del self.slots[slot.trigger][slot.key]
            return
        trigger = self._plan.triggers.get(slot.trigger)
        deadline = slot.deadline(trigger.rules) if trigger is not None and trigger.rules is not None else None
        if deadline is not None and deadline < self._awaited.get(place, deadline + 1):
            self._awaited[place] = deadline
            heappush(self._deadlines, (deadline, *place))
            if len(self._deadlines) > _STALE_DEADLINES and len(self._deadlines) > 2 * sum(
                map(len, self.slots.values())
            ):
                self._forget_stale_deadlines()

    def _forget_stale_deadlines(self) -> None:
        """Most keys are done long before their deadline: those of live slots are enough."""
        live = {place: end for place, end in self._awaited.items() if place[1] in self.slots[place[0]]}
        self._awaited = live
        self._deadlines = [(end, *place) for place, end in live.items()]
        heapify(self._deadlines)

    def _slot(self, key: Memory) -> KeyedSlot:
        return self.slots[key.trigger].setdefault(key.key, KeyedSlot(key.trigger, key.key))

    # --- records ----------------------------------------------------------------------------------------------------

    def outputs(self) -> list[Output]:
        """The changes since the last call, as records of the state topic."""
        outputs = []
        for key, value in self._changes.items():
            if value is not None:
                self._stored.add(key)
                outputs.append(self._written(key, value))
            elif key in self._stored:
                self._stored.discard(key)
                outputs.append(Output(self._state_topic, self._partition, encode_state_key(key), None))
        self._changes.clear()
        return outputs

    def _written(self, key: Memory, value: Kept | tuple[Firing, ...] | int) -> Output:
        shape = self._plan.triggers[key.trigger].shape
        written = encode_state_key(key)
        match value:
            case Kept(event=event):
                arrived = value.clock, -1 if event.offset is None else event.offset
                fact = StateFact(version=VERSION, shape=shape, source=event.source, trace=event.trace, arrived=arrived)
                headers = [(STATE_HEADER, encode_fact(fact))]
                return Output(self._state_topic, self._partition, written, event.document, headers)
            case int():
                memory: Fired | Seen = Seen(version=VERSION, shape=shape, clock=value)
            case _:
                memory = Fired(version=VERSION, shape=shape, firings=value)
        return Output(self._state_topic, self._partition, written, encode_fact(memory))
