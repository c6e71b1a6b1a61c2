"""Stateful triggers: what one slot (a trigger and a correlation key) does when an event arrives.

Theory of operation
-------------------
A slot holds, per dependency, the newest events that it needs; it remembers when it fired and which events it has seen.
An arriving event goes through these steps, and nothing but arriving events changes the outcome of anything:

1. *Forget* what the partition's clock has outlived: events past `ttl`, firings past `onceWithin`, ids past `dedupe`.
   The sweep does the same to slots that nobody visits. It only cleans up: whoever comes would do it first.
2. *Deduplicate*: an event that was seen is gone.
3. *Add* it. Newer is what was appended to the event topic later, whoever arrives first; of two events that are too far
   apart (`within`, or a reset between them) the older one goes, arriving or held. Then only as many stay as are needed.
4. *Fire* when the condition is true and no firing is too near. Either way nothing is held any more.

Every change is noted as a change of the slot's records in the state topic, which is the only place they live in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice, takewhile
from operator import itemgetter
from typing import TypeAlias

import msgspec

from eventbus.stateformats import FiredKey, Firing, HeldKey, SeenKey
from sensors.conditions import Condition
from sensors.held import Held
from sensors.rules import DUPLICATE, EXPIRED, SUPERSEDED, SUPPRESSED, Rules

_FORGOTTEN_AT_ONCE = 1000
"""Of what was seen: one event must not make a transaction without end."""


class Kept(msgspec.Struct, frozen=True, gc=False):
    """A held event, the partition's clock when it came, and the number that tells its record from others."""

    event: Held
    clock: int
    n: int


Memory: TypeAlias = HeldKey | FiredKey | SeenKey
"""Names one record of a slot in the state topic."""
Changes: TypeAlias = dict[Memory, Kept | tuple[Firing, ...] | int | None]
"""What the state topic has to say from now on: a held event, firings, since when something was seen, or nothing."""


class Gone(msgspec.Struct, frozen=True):
    """An event that will not be used."""

    reason: str
    dependency: str
    event: Held


class Arrival(msgspec.Struct, frozen=True):
    """What came of one event."""

    gone: list[Gone]
    fired: list[tuple[str, Held]] | None
    """The events of the action, by dependency, the oldest first."""


class KeyedSlot:
    """What one trigger holds and remembers for one correlation key."""

    def __init__(self, trigger: str, key: str) -> None:
        self.trigger = trigger
        self.key = key
        self.held: dict[str, list[Kept]] = {}
        self.firings: tuple[Firing, ...] = ()
        self.seen: dict[str, int] = {}
        """By what must not count twice, the partition's clock when it came; the oldest first."""

    def __bool__(self) -> bool:
        return bool(self.held or self.firings or self.seen)

    def events(self) -> Iterator[tuple[str, Kept]]:
        for name in sorted(self.held):
            for kept in self.held[name]:
                yield name, kept

    # --- an event arrives -------------------------------------------------------------------------------------------

    def arrive(
        self,
        rules: Rules,
        condition: Condition,
        events: Mapping[str, Held],
        unique: str | None,
        clock: int,
        *,
        changes: Changes,
    ) -> Arrival:
        """One event, by dependency: each may have a document of its own."""
        gone = self.forget(rules, clock, changes)
        if rules.dedupe is not None and unique is not None:
            since = self.seen.get(unique)
            if since is not None and clock - since <= rules.dedupe.span:
                return Arrival([*gone, *(Gone(DUPLICATE, name, event) for name, event in events.items())], None)
            self.seen.pop(unique, None)  # what is seen last stands last
            self.seen[unique] = clock
            changes[SeenKey(self.trigger, self.key, unique)] = clock
        for name, event in events.items():
            self.keep(name, event, clock, changes)
        gone += self._drop_separated(rules, changes)
        gone += self.trim(rules, changes)
        if not condition.holds(rules.complete(self.held)):
            return Arrival(gone, None)
        used = self._drop_all(changes)
        if self._fires(rules, max(event.source.timestamp for _, event in used), clock, changes):
            return Arrival(gone, used)
        return Arrival([*gone, *(Gone(SUPPRESSED, name, event) for name, event in used)], None)

    def keep(self, dependency: str, event: Held, clock: int, changes: Changes) -> None:
        events = self.held.get(dependency)
        if events is None:
            kept = Kept(event, clock, 0)
            self.held[dependency] = [kept]
        else:
            taken = {kept.n for kept in events}
            kept = Kept(event, clock, next(n for n in range(len(taken) + 1) if n not in taken))
            events.append(kept)
            events.sort(key=_age)
        changes[self._key_of(dependency, kept)] = kept

    def _drop_separated(self, rules: Rules, changes: Changes) -> list[Gone]:
        times = [kept.event.source.timestamp for events in self.held.values() for kept in events]
        newest = max(times)
        if rules.separated(min(times), newest) is None:
            return []  # nor is any that is younger
        gone = []
        for name, events in list(self.held.items()):
            reasons = [(kept, rules.separated(kept.event.source.timestamp, newest)) for kept in events]
            gone += [Gone(reason, name, kept.event) for kept, reason in reasons if reason is not None]
            self._drop(name, [kept for kept, reason in reasons if reason is not None], changes)
        return gone

    def trim(self, rules: Rules, changes: Changes) -> list[Gone]:
        """The newest events of a dependency win."""
        gone = []
        for name, events in list(self.held.items()):
            if len(events) <= rules.wanted(name):
                continue
            surplus = events[: -rules.wanted(name)]
            gone += [Gone(SUPERSEDED, name, kept.event) for kept in surplus]
            self._drop(name, surplus, changes)
        return gone

    def _fires(self, rules: Rules, newest: int, clock: int, changes: Changes) -> bool:
        if rules.once_within is None:
            return True
        if any(abs(newest - firing.timestamp) < rules.once_within for firing in self.firings):
            return False
        self._remember((*self.firings, Firing(newest, clock)), changes)
        return True

    def flush(self, rules: Rules, clock: int, changes: Changes, *, fire: bool) -> Arrival:
        """Hold nothing any more. To fire with what was held is a firing like any other."""
        gone = self.forget(rules, clock, changes)
        used = self._drop_all(changes)
        if used and fire and rules.once_within is not None:
            newest = max(event.source.timestamp for _, event in used)
            self._remember((*self.firings, Firing(newest, clock)), changes)
        return Arrival(gone, used)

    # --- time passes ------------------------------------------------------------------------------------------------

    def forget(self, rules: Rules, clock: int, changes: Changes) -> list[Gone]:
        """Let go of what has been there for too long. Returns the events among it."""
        gone = []
        if rules.ttl is not None:
            for name, events in list(self.held.items()):
                expired = [kept for kept in events if clock - kept.clock > rules.ttl]
                gone += [Gone(EXPIRED, name, kept.event) for kept in expired]
                self._drop(name, expired, changes)
        if rules.once_within is not None:
            span = rules.once_within
            firings = tuple(firing for firing in self.firings if clock - firing.clock <= span)
            if len(firings) < len(self.firings):
                self._remember(firings, changes)
        if rules.dedupe is not None:
            span = rules.dedupe.span
            outlived = takewhile(lambda unique: clock - self.seen[unique] > span, self.seen)
            for unique in list(islice(outlived, _FORGOTTEN_AT_ONCE)):
                del self.seen[unique]
                changes[SeenKey(self.trigger, self.key, unique)] = None
        return gone

    def deadline(self, rules: Rules) -> int | None:
        """The last clock at which there is nothing to forget."""
        ends = []
        if rules.ttl is not None:
            ends += [kept.clock + rules.ttl for events in self.held.values() for kept in events]
        if rules.once_within is not None:
            ends += [firing.clock + rules.once_within for firing in self.firings]
        if rules.dedupe is not None and self.seen:
            ends.append(next(iter(self.seen.values())) + rules.dedupe.span)
        return min(ends, default=None)

    # --- records of the state topic ---------------------------------------------------------------------------------

    def lose(self, key: Memory) -> None:
        """The state topic has this record no more."""
        match key:
            case HeldKey():
                self._without(key.dependency, {key.n})
            case FiredKey():
                self.firings = ()
            case SeenKey():
                self.seen.pop(key.unique, None)

    def restored(self) -> None:
        """The state topic has its records in any order."""
        for events in self.held.values():
            events.sort(key=_age)
        self.seen = dict(sorted(self.seen.items(), key=itemgetter(1)))

    def _remember(self, firings: tuple[Firing, ...], changes: Changes) -> None:
        self.firings = firings
        changes[FiredKey(self.trigger, self.key)] = firings or None

    def _drop(self, dependency: str, gone: list[Kept], changes: Changes) -> None:
        if not gone:
            return
        changes.update((self._key_of(dependency, kept), None) for kept in gone)
        self._without(dependency, {kept.n for kept in gone})

    def _drop_all(self, changes: Changes) -> list[tuple[str, Held]]:
        """Returns what was held, by dependency."""
        used = []
        for name, kept in self.events():
            used.append((name, kept.event))
            changes[self._key_of(name, kept)] = None
        self.held.clear()
        return used

    def _without(self, dependency: str, numbers: set[int]) -> None:
        left = [kept for kept in self.held[dependency] if kept.n not in numbers]
        if left:
            self.held[dependency] = left
        else:
            del self.held[dependency]

    def _key_of(self, dependency: str, kept: Kept) -> HeldKey:
        return HeldKey(self.trigger, self.key, dependency, kept.n)


def _age(kept: Kept) -> tuple[int, int]:
    return kept.event.age
