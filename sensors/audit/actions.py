"""I1 to I4: the actions are those that the events call for, and nothing is lost on the way."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import TypeAlias

import msgspec

from eventbus.formats import (
    ACTION_HEADER,
    FLUSH_HEADER,
    REDRIVEN_HEADER,
    TRIGGER_HEADER,
    ActionFact,
    DeadLetter,
    action_fact,
    dead_letter,
    header,
    trigger_fact,
)
from eventbus.names import Stage
from eventbus.ports import Record
from sensors.audit.expectations import Expectations, Expected, HeldPlace, Match
from sensors.audit.violations import Breach, Violation, event_places, place, place_of
from sensors.deadletters import (
    EXPIRED_EVENT,
    FLUSHED,
    INVALID_EVENT,
    NO_KEY,
    PAUSED,
    SPEC_CHANGED,
    TRANSFORM_FAILED,
    UNPRODUCIBLE,
)

Held: TypeAlias = AbstractSet[HeldPlace]
"""What a replica would hold if it restored now: trigger, correlation key, dependency, and where the event stands."""

_LET_GO = (EXPIRED_EVENT, FLUSHED)
_HELD = (SPEC_CHANGED, UNPRODUCIBLE, *_LET_GO)


class Letters(msgspec.Struct, frozen=True):
    """What the dead-letter topic says about events, trigger records and actions."""

    invalid: Counter[str]
    """Events that could not be read, by their place."""
    untransformed: Counter[str]
    """Events that a dependency could not transform, by their place."""
    parked: Counter[Match]
    """Trigger records that no longer fitted the spec, or that the log would not take."""
    unkeyed: Counter[tuple[str, str]]
    """Events without a correlation key, by trigger and place."""
    let_go: Counter[Match]
    """Held events that expired, or that an operator has dropped."""
    unproducible: set[str]
    """Actions that the log would not take."""
    actions: set[str]
    """Actions that were given up."""
    withheld: Counter[str]
    """Actions that wait for the end of a pause, or did."""

    @classmethod
    def of(cls, records: Iterable[Record]) -> Letters:
        letters = cls(Counter(), Counter(), Counter(), Counter(), Counter(), set(), set(), Counter())
        by_place = {INVALID_EVENT: letters.invalid, TRANSFORM_FAILED: letters.untransformed}
        for record in records:
            letter = dead_letter(record)
            if letter.action is not None and letter.reason == PAUSED:
                letters.withheld[letter.action] += 1
            elif letter.action is not None:
                letters.actions.add(letter.action)
            elif letter.reason in by_place:
                by_place[letter.reason][_place(letter)] += 1
            elif letter.reason == NO_KEY:
                letters.unkeyed[letter.trigger or "", _place(letter)] += 1
            elif letter.reason in _HELD and header(record.headers, TRIGGER_HEADER):
                fact = trigger_fact(record)
                counts = letters.let_go if letter.reason in _LET_GO else letters.parked
                counts[Match(fact.trigger, fact.source, fact.key)] += 1
            elif letter.reason == UNPRODUCIBLE and header(record.headers, ACTION_HEADER):
                letters.unproducible.add(action_fact(record).id)
        return letters

    def buried(self, actions: Iterable[Record]) -> set[str]:
        """The actions that are in the dead letters for good, or still wait there for the end of a pause."""
        written = Counter(action_fact(record).id for record in actions) if self.withheld else Counter()
        return self.actions | {action for action, count in self.withheld.items() if count >= written[action]}


def _place(letter: DeadLetter) -> str:
    return place(letter.topic, letter.partition, letter.offset)


def check_sequence(
    reference: Expectations, event_topic: str, actions: Sequence[Record], letters: Letters
) -> Iterator[Violation]:
    """I1: the actions that are due are there, and in order, and no others."""
    expected = {action.id: (rank, action) for rank, action in enumerate(reference.actions)}
    seen: set[str] = set()
    latest: dict[tuple[int, tuple[object, ...]], int] = {}
    went_on = _Successors()
    for record in actions:
        fact = action_fact(record)
        rank, action = expected.get(fact.id, (-1, None))
        if action is None:
            yield _about(fact, record, event_topic, Breach.UNEXPLAINED, "an action that nothing has caused")
            continue
        went_on.note(action, fact.replica)
        lane = (record.partition, action.lane)
        if rank < latest.get(lane, -1) and fact.id not in seen:
            yield _about(fact, record, event_topic, Breach.OUT_OF_ORDER, "an action that was due earlier")
        latest[lane] = max(rank, latest.get(lane, -1))
        seen.add(fact.id)
    for _, action in expected.values():
        if action.id not in seen and action.id not in letters.unproducible:
            yield Violation(
                invariant="I1",
                breach=Breach.LOST,
                what=f"the action {action.id} is not there",
                trigger=action.trigger,
                events=action.events,
                place=action.place,
                replica=went_on.after(action),
            )


def check_uses(event_topic: str, actions: Iterable[Record]) -> Iterator[Violation]:
    """I2: no event is used twice by one trigger."""
    used: set[Match] = set()
    for record in actions:
        fact = action_fact(record)
        uses = {Match(fact.trigger, event.source, fact.key) for event in fact.events}
        if uses & used:
            yield _about(fact, record, event_topic, Breach.DUPLICATED, "an event that was used already", "I2")
        used |= uses


def check_trigger_records(
    reference: Expectations, event_topic: str, records: Iterable[Record], letters: Letters
) -> Iterator[Violation]:
    """I3, the first half of the way: every event that a trigger wants to join is in the trigger topic, once."""
    seen: set[Match] = set()
    for record in records:
        if header(record.headers, FLUSH_HEADER):
            continue
        fact = trigger_fact(record)
        match = Match(fact.trigger, fact.source, fact.key)
        if match in seen or match not in reference.to_join:
            again = match in seen
            yield Violation(
                invariant="I2" if again else "I1",
                breach=Breach.DUPLICATED if again else Breach.UNEXPLAINED,
                what="a trigger record that is there already" if again else "a trigger record that nothing has caused",
                trigger=fact.trigger,
                events=event_places(event_topic, [fact.source]),
                place=place_of(record),
                replica=fact.replica,
            )
        seen.add(match)
    for match in reference.to_join - seen - letters.parked.keys():
        yield _lost_match(reference, match, "is not in the trigger topic")


def check_trigger_order(event_topic: str, records: Iterable[Record]) -> Iterator[Violation]:
    """I1, the first half of the way: in the order of their events, where one partition leads to another."""
    latest: dict[tuple[int, int], int] = {}
    for record in records:
        if header(record.headers, FLUSH_HEADER) or header(record.headers, REDRIVEN_HEADER):
            continue
        fact = trigger_fact(record)
        lane = record.partition, fact.source.partition
        if fact.source.offset < latest.get(lane, 0):
            yield Violation(
                invariant="I1",
                breach=Breach.OUT_OF_ORDER,
                what="a trigger record behind one whose event came later",
                trigger=fact.trigger,
                events=event_places(event_topic, [fact.source]),
                place=place_of(record),
                replica=fact.replica,
            )
        latest[lane] = fact.source.offset


def check_balance(
    reference: Expectations, event_topic: str, actions: Iterable[Record], held: Held, letters: Letters
) -> Iterator[Violation]:
    """I3: what was matched is used, held, let go or parked. I4: what is held would be restored, and no more."""
    facts = [action_fact(record) for record in actions]
    used = {Match(fact.trigger, event.source, fact.key) for fact in facts for event in fact.events}
    given_up = {
        Match(action.trigger, source, action.key)
        for action in reference.actions
        if action.id in letters.unproducible
        for source in action.sources
    }
    kept = {Match(trigger, source, key) for trigger, key, _, source in held}
    accounted = used | given_up | kept | reference.unused | letters.parked.keys()
    for match in reference.matched.keys() - accounted:
        yield _lost_match(reference, match, "is neither used nor held nor let go nor in the dead letters")
    wanted = reference.held
    for trigger, key, name, source in sorted(wanted - held, key=str):
        what = f"would not be restored for the dependency {name}"
        yield _lost_match(reference, Match(trigger, source, key), what, "I4")
    for trigger, key, name, source in sorted(held - wanted, key=str):
        events = event_places(event_topic, [source])
        what = f"holds an event for the dependency {name} that it should not" + (f" (key {key})" if key else "")
        yield Violation(invariant="I4", breach=Breach.UNEXPLAINED, what=what, trigger=trigger, events=events)
    yield from check_letters(reference, event_topic, letters)


def check_letters(reference: Expectations, event_topic: str, letters: Letters) -> Iterator[Violation]:
    """I3: what could not be used is in the dead letters, as often as it has to be."""
    yield from _check_held_letters(reference, event_topic, "no longer fits the spec", reference.parked, letters.parked)
    yield from _check_held_letters(reference, event_topic, "was let go", reference.buried, letters.let_go)
    for trigger, event in (reference.unkeyed - letters.unkeyed) + (letters.unkeyed - reference.unkeyed):
        wrong = "lost" if (trigger, event) in reference.unkeyed else "too many"
        what = f"an event without a correlation key: its dead letter is {wrong}"
        yield Violation(invariant="I3", breach=Breach.LOST, what=what, trigger=trigger, events=(event,))
    yield from _check_event_letters("read", reference.invalid, letters.invalid)
    yield from _check_event_letters("transformed", reference.untransformed, letters.untransformed)


def _check_held_letters(
    reference: Expectations, event_topic: str, what: str, wanted: Iterable[Match], found: Counter[Match]
) -> Iterator[Violation]:
    expected = Counter(wanted)
    for match in expected - found:
        yield _lost_match(reference, match, f"{what} and is not in the dead letters")
    for match in found - expected:
        yield Violation(
            invariant="I3",
            breach=Breach.DUPLICATED,
            what=f"an event is in the dead letters too often as one that {what}",
            trigger=match.trigger,
            events=event_places(event_topic, [match.source]),
        )


def _check_event_letters(what: str, wanted: set[str], found: Counter[str]) -> Iterator[Violation]:
    for event in wanted - found.keys():
        lost = f"an event that cannot be {what} is not in the dead letters"
        yield Violation(invariant="I3", breach=Breach.LOST, what=lost, events=(event,))
    for event, count in found.items():
        if count > 1 or event not in wanted:
            often = f"an event is in the dead letters {count} times as one that cannot be {what}"
            yield Violation(invariant="I3", breach=Breach.DUPLICATED, what=often, events=(event,))


class _Successors:
    """Who wrote what came next from the same partition: whoever lost an action has gone on past it."""

    def __init__(self) -> None:
        self._written: defaultdict[tuple[Stage, int], list[tuple[int, str]]] = defaultdict(list)

    def note(self, action: Expected, replica: str) -> None:
        stage, partition, offset = action.origin
        self._written[stage, partition].append((offset, replica))

    def after(self, lost: Expected) -> str:
        stage, partition, offset = lost.origin
        later = [each for each in self._written[stage, partition] if each[0] >= offset]
        return min(later)[1] if later else ""


def _lost_match(reference: Expectations, match: Match, what: str, invariant: str = "I3") -> Violation:
    place = reference.matched.get(match, "")
    return Violation(
        invariant=invariant,
        breach=Breach.LOST,
        what=f"an event {what}",
        trigger=match.trigger,
        events=(place,) if place else (),
        place=place,
    )


def _about(  # noqa: PLR0917
    fact: ActionFact, record: Record, event_topic: str, breach: Breach, what: str, invariant: str = "I1"
) -> Violation:
    return Violation(
        invariant=invariant,
        breach=breach,
        what=f"{what} (the action {fact.id})",
        trigger=fact.trigger,
        events=event_places(event_topic, (event.source for event in fact.events)),
        place=place_of(record),
        replica=fact.replica,
    )
