"""I7: every action is invoked as its mode allows.

Two accounts are compared: the sensor's own invocation records, and the ledger of whoever was called. They need not
agree to the call: a replica that dies after it has called leaves no record, and one that dies before it has called
leaves an at-most-once action undone. Each such difference must be explained by a mishap of that very replica.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

import msgspec

from eventbus.formats import ActionFact, Invocation, action_fact
from eventbus.ports import Record
from sensors.audit.violations import Breach, Violation, event_places, place_of
from sensors.outcomes import DEAD_LETTERED, FAILED, LOST, RELEASED, SUCCEEDED, TAKEN
from sensors.tasks import AT_LEAST_ONCE, AT_MOST_ONCE, EXACTLY_ONCE

COMMIT_MS = 12_000
"""How long after a call its record may still be under way: a transaction's time-out, and a little more."""
_CLOCK_MS = 100
"""Replicas and targets may look at the same clock, but not at the same moment."""
_TURN_MS = 60_000
"""How long an action that was taken may wait for its turn."""
_BEGUN = (SUCCEEDED, FAILED, DEAD_LETTERED, LOST)


class Call(msgspec.Struct, frozen=True, gc=False):
    """One request that a target has seen. Times are milliseconds of the same clock as the invocation records'."""

    action: str
    replica: str
    """Who called; empty where that could not be found out."""
    began: int
    ended: int
    succeeded: bool


class Mishap(msgspec.Struct, frozen=True, gc=False):
    """Something that happened to a replica, and that it may not have survived with all it knew."""

    replica: str
    began: int
    ended: int
    name: str


class Difference(msgspec.Struct, frozen=True):
    """A call without a record, or an action without a call, and the mishap that explains it."""

    action: str
    trigger: str
    replica: str
    mishap: str


class InvocationReport(msgspec.Struct, frozen=True):
    """What the two accounts say."""

    violations: list[Violation]
    given_up: list[Difference]
    """At most once: taken, and never called."""
    unrecorded: list[Difference]
    """Called, and the record of it was never committed."""


def recorded_calls(invocations: Iterable[Invocation]) -> list[Call]:
    """The ledger of targets that nobody can ask: what the invocation records themselves say was sent and answered."""
    return [
        Call(note.action, note.replica, note.started, note.ended, note.outcome == SUCCEEDED)
        for note in invocations
        if note.outcome == SUCCEEDED or (note.outcome in (FAILED, DEAD_LETTERED) and note.status is not None)
    ]


def check_invocations(
    event_topic: str,
    actions: Sequence[Record],
    invocations: Iterable[Invocation],
    *,
    buried: set[str],
    calls: Iterable[Call],
    mishaps: Iterable[Mishap] | None,
) -> InvocationReport:
    """Judge how the actions were invoked.

    `buried` are the actions in the dead-letter topic. Where nobody knows what has happened to the replicas (`mishaps`
    is None), what their mode allows to be lost is reported, and no violation.
    """
    notes: defaultdict[str, list[Invocation]] = defaultdict(list)
    for note in invocations:
        notes[note.action].append(note)
    received: defaultdict[str, list[Call]] = defaultdict(list)
    for call in calls:
        received[call.action].append(call)
    cases = []
    for record in actions:
        fact = action_fact(record)
        cases.append(_Case(fact, record, notes[fact.id], received[fact.id], fact.id in buried))
    explanations = _Explanations(mishaps or (), cases)
    report = InvocationReport([], [], [])
    for case in cases:
        report.violations.extend(case.violations(event_topic))
        for call in case.unrecorded():
            mishap = explanations.of_unrecorded(call)
            report.unrecorded.append(case.difference(call.replica, mishap))
            if not mishap:
                report.violations.append(case.about(event_topic, Breach.UNEXPLAINED, "was called without a record"))
        last = case.given_up()
        if last is not None:
            mishap = explanations.of_given_up(case, last)
            report.given_up.append(case.difference(last.replica, mishap))
            if not mishap and mishaps is not None:
                report.violations.append(case.about(event_topic, Breach.LOST, "was taken and never called"))
    report.violations.extend(_orphans({case.fact.id for case in cases}, notes, received))
    return report


def _orphans(
    known: set[str], notes: Mapping[str, Sequence[Invocation]], received: Mapping[str, Sequence[Call]]
) -> Iterator[Violation]:
    """What was called or recorded, and nothing has asked for it."""
    for action in received.keys() - known - notes.keys():
        what = f"a call without an action: {action}"
        yield Violation(invariant="I7", breach=Breach.UNEXPLAINED, what=what, replica=received[action][0].replica)
    for action in notes.keys() - known:
        first = notes[action][0]
        what = f"an invocation ({first.outcome}) without an action: {action}"
        yield Violation(
            invariant="I7", breach=Breach.UNEXPLAINED, what=what, trigger=first.trigger, replica=first.replica
        )


class _Case(msgspec.Struct, frozen=True):
    """One action, and both accounts of it."""

    fact: ActionFact
    record: Record
    notes: Sequence[Invocation]
    calls: Sequence[Call]
    buried: bool

    def violations(self, event_topic: str) -> Iterator[Violation]:
        """What no mishap excuses."""
        if not self.notes:
            if not self.buried:
                yield self.about(event_topic, Breach.LOST, "was never dealt with")
            return
        recorded = Counter(note.outcome for note in self.notes)
        succeeded = sum(call.succeeded for call in self.calls)
        mode = self.notes[-1].mode
        if mode == EXACTLY_ONCE and len(self.calls) + self.buried != 1:
            yield self.about(event_topic, Breach.DUPLICATED, f"was written {len(self.calls)} times")
        elif mode == AT_LEAST_ONCE and not succeeded and not self.buried:
            yield self.about(event_topic, Breach.LOST, "did not succeed and is not in the dead letters")
        elif mode == AT_MOST_ONCE and len(self.calls) > 1:
            yield self.about(event_topic, Breach.DUPLICATED, f"may be called once, and was {len(self.calls)} times")
        elif mode == AT_MOST_ONCE and self.notes[-1].outcome == RELEASED and not self.buried:
            yield self.about(event_topic, Breach.LOST, "was given back and never taken again")
        taken = self._taken()
        if mode == AT_MOST_ONCE and taken > 1:
            yield self.about(event_topic, Breach.DUPLICATED, f"was taken {taken} times")
        if recorded[SUCCEEDED] > succeeded:
            yield self.about(event_topic, Breach.UNEXPLAINED, "is recorded as done, and was not done")

    def _taken(self) -> int:
        """How often this very record was taken and not given back: one that was driven back is another record."""
        place = self.record.partition, self.record.offset
        outcomes = Counter(note.outcome for note in self.notes if (note.partition, note.offset) == place)
        return outcomes[TAKEN] - outcomes[RELEASED]

    def unrecorded(self) -> list[Call]:
        """Calls beyond what their replica has recorded."""
        remaining = list(self.calls)
        if not remaining:
            return remaining
        begun = [note for note in self.notes if note.outcome in _BEGUN]
        for note in sorted(begun, key=lambda note: note.status is None):  # of those it is less certain which they were
            candidates = [call for call in remaining if _may_tell_of(note, call)]
            if candidates:
                remaining.remove(min(candidates, key=partial(_unlikeness, note)))
        return remaining

    def given_up(self) -> Invocation | None:
        """The last record of an at-most-once action that was taken and that nobody was called for."""
        last = self.notes[-1] if self.notes else None
        if last is None or last.mode != AT_MOST_ONCE or self.calls or self.buried:
            return None
        return last if last.outcome in (TAKEN, FAILED, LOST) else None

    def difference(self, replica: str, mishap: str) -> Difference:
        return Difference(self.fact.id, self.fact.trigger, replica, mishap)

    def about(self, event_topic: str, breach: Breach, what: str) -> Violation:
        return Violation(
            invariant="I7",
            breach=breach,
            what=f"the action {self.fact.id} {what}",
            trigger=self.fact.trigger,
            events=event_places(event_topic, (event.source for event in self.fact.events)),
            place=place_of(self.record),
            replica=self.notes[-1].replica if self.notes else self.fact.replica,
        )


def _may_tell_of(note: Invocation, call: Call) -> bool:
    if call.replica not in ("", note.replica):
        return False
    # What has no status may never have been sent: only a call at that very time makes it likely.
    return note.outcome in (SUCCEEDED, LOST) or note.status is not None or _apart(note, call) <= _CLOCK_MS


def _unlikeness(note: Invocation, call: Call) -> tuple[bool, int]:
    return note.outcome == SUCCEEDED and not call.succeeded, _apart(note, call)


def _apart(note: Invocation, call: Call) -> int:
    """Milliseconds between the beginning of a call and the attempt that the record tells of."""
    return max(note.started - call.began, call.began - note.ended, 0)


class _Explanations:
    """Finds the mishap that explains a difference between the two accounts."""

    def __init__(self, mishaps: Iterable[Mishap], cases: Iterable[_Case]) -> None:
        self._mishaps: defaultdict[str, list[Mishap]] = defaultdict(list)
        for mishap in sorted(mishaps, key=lambda each: each.began):
            self._mishaps[mishap.replica].append(mishap)
        self._lanes: defaultdict[tuple[int, bytes | None], list[tuple[int, Call]]] = defaultdict(list)
        for case in cases:
            record = case.record
            self._lanes[record.partition, record.key] += [(record.offset, call) for call in case.calls]

    def of_unrecorded(self, call: Call) -> str:
        """It happened between the call and the moment when the record of it would have been committed."""
        suspects = [call.replica] if call.replica else list(self._mishaps)
        for replica in suspects:
            for mishap in self._mishaps[replica]:
                if mishap.began <= call.ended + COMMIT_MS and call.began <= mishap.ended:
                    return mishap.name
        return ""

    def of_given_up(self, case: _Case, last: Invocation) -> str:
        """It happened after the action was taken, and before the replica went on to the next one of its lane."""
        if last.outcome == LOST:
            return "still running when the partition was given up"
        for mishap in self._mishaps[last.replica]:
            if mishap.ended >= last.ended:
                in_time = mishap.began <= last.ended + _TURN_MS
                return mishap.name if in_time and not self._went_on(case.record, last, mishap) else ""
        return ""

    def _went_on(self, record: Record, last: Invocation, mishap: Mishap) -> bool:
        return any(
            offset > record.offset and call.replica == last.replica and last.ended <= call.began < mishap.began
            for offset, call in self._lanes[record.partition, record.key]
        )
