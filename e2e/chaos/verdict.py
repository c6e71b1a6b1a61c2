"""What the evidence means, from four sides: the log, a concurrent reader, the invocation records, the sink's ledger."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import msgspec

from e2e.chaos.evidence import Call, Evidence, Fingerprint, Mishap, fingerprint
from eventbus.formats import Invocation, action_fact, invocation
from eventbus.ports import Record
from sensors.checks import check_actions
from sensors.invoke import DEAD_LETTERED, FAILED, LOST, RELEASED, SUCCEEDED, TAKEN

AFTER_CALL_MS = 12_000
"""A call is repeated if its replica comes to grief before its outcome is committed, 10 s later at most."""
AFTER_TAKEN_MS = 60_000
"""An action that was taken is invoked soon, unless its lane waits for the sink."""
_CLOCK_MS = 100
"""Replicas and sink look at the same clock, but not at the same moment."""
_UNREAD_MS = 1000
"""After which the sink has read what it was sent."""
_ATTEMPTS = frozenset((SUCCEEDED, FAILED, DEAD_LETTERED, LOST))


class Explained(msgspec.Struct, frozen=True):
    """Something that is allowed because of what happened to a replica."""

    action: str
    trigger: str
    replica: str
    at_ms: int
    mishap: str


class Findings(msgspec.Struct):
    """The first four lists are empty where all is well."""

    lost: list[str] = msgspec.field(default_factory=list)
    duplicated: list[str] = msgspec.field(default_factory=list)
    out_of_order: list[str] = msgspec.field(default_factory=list)
    unexplained: list[str] = msgspec.field(default_factory=list)
    given_up: list[Explained] = msgspec.field(default_factory=list)
    """At most once: taken, and never invoked, because the replica came to grief."""
    repeated: list[Explained] = msgspec.field(default_factory=list)
    """Calls whose outcome was not recorded, because the replica came to grief."""

    @property
    def clean(self) -> bool:
        return not (self.lost or self.duplicated or self.out_of_order or self.unexplained)


def judge(evidence: Evidence) -> Findings:
    findings = Findings()
    _judge_log(evidence, findings)
    _compare(map(fingerprint, evidence.actions), evidence.concurrent, findings)
    _judge_invocations(evidence, findings)
    return findings


def _judge_log(evidence: Evidence, findings: Findings) -> None:
    verdict = check_actions(
        evidence.plan,
        evidence.topology,
        events=evidence.events,
        triggers=evidence.triggers,
        actions=evidence.actions,
    )
    findings.lost += verdict.lost
    findings.duplicated += verdict.repeated
    findings.out_of_order += verdict.out_of_order
    findings.unexplained += [f"action {action}: nothing has caused it" for action in verdict.unexpected]


def _compare(dumped: Iterable[Fingerprint], concurrent: Sequence[Fingerprint], findings: Findings) -> None:
    """Whoever reads all the time and whoever reads in the end must see the same, to the record and in order."""
    by_partition: dict[int, list[Fingerprint]] = defaultdict(list)
    for entry in concurrent:
        by_partition[entry[0]].append(entry)
    if any(entries != sorted(entries) for entries in by_partition.values()):
        findings.unexplained.append("the concurrent reader saw records out of order")
    found, seen = set(dumped), set(concurrent)
    if len(seen) < len(concurrent):
        findings.unexplained.append(f"the concurrent reader saw {len(concurrent) - len(seen)} records twice")
    for what, entries in (("only in the dump", found - seen), ("only by the concurrent reader", seen - found)):
        for partition, offset, _ in sorted(entries):
            findings.unexplained.append(f"action topic [{partition}]@{offset}: seen {what}")


# --- invocations ----------------------------------------------------------------------------------------------------


class _Story(msgspec.Struct):
    """All that is known about one action."""

    record: Record
    trigger: str
    notes: list[Invocation] = msgspec.field(default_factory=list)
    calls: list[Call] = msgspec.field(default_factory=list)

    def count(self, outcome: str) -> int:
        return sum(note.outcome == outcome for note in self.notes)


def _judge_invocations(evidence: Evidence, findings: Findings) -> None:
    stories: dict[str, _Story] = {}
    for record in evidence.actions:
        fact = action_fact(record)
        stories[fact.id] = _Story(record, fact.trigger)
    for note in map(invocation, evidence.invocations):
        if note.action in stories:
            stories[note.action].notes.append(note)
        else:
            findings.unexplained.append(f"action {note.action}: recorded as {note.outcome}, and there is none")
    for call in evidence.calls:
        if call.action in stories:
            stories[call.action].calls.append(call)
        else:
            findings.unexplained.append(f"action {call.action}: called by replica {call.replica}, and there is none")
    mishaps = _Mishaps(evidence.mishaps)
    lanes = _Lanes(stories.values())
    for action, story in stories.items():
        _judge_records(action, story, mishaps, findings)
        if story.trigger in evidence.at_least_once:
            if not story.count(SUCCEEDED) and not story.count(DEAD_LETTERED):
                findings.lost.append(f"{action} (at least once, neither succeeded nor dead-lettered)")
        else:
            _judge_at_most_once(action, story, mishaps, lanes, findings)


def _judge_records(action: str, story: _Story, mishaps: _Mishaps, findings: Findings) -> None:
    """Every success was seen by the sink; every call was recorded, or its replica came to grief."""
    calls = sorted(story.calls, key=lambda call: call.began_ms)
    for note in sorted(story.notes, key=lambda note: note.started):
        if note.outcome in _ATTEMPTS:
            call = next((call for call in calls if _is_of(note, call)), None)
            if call is not None:
                calls.remove(call)
            elif note.outcome == SUCCEEDED:
                findings.unexplained.append(
                    f"action {action}: replica {note.replica} recorded a success, and the sink saw no such call"
                )
    for call in calls:
        mishap = mishaps.first(call.replica, call.began_ms, call.ended_ms + AFTER_CALL_MS)
        if mishap is None:
            findings.unexplained.append(
                f"action {action}: called by replica {call.replica} at {call.began_ms}, status {call.status}: no "
                "record tells of it, and nothing had happened to the replica"
            )
        else:
            findings.repeated.append(Explained(action, story.trigger, call.replica, call.began_ms, mishap.name))


def _is_of(note: Invocation, call: Call) -> bool:
    ours = call.replica == note.replica
    # A request that nobody waits for any more still lies in the sink's socket.
    late = _CLOCK_MS if note.status else _UNREAD_MS
    in_time = note.started - _CLOCK_MS <= call.began_ms <= note.ended + late
    answered = note.outcome != SUCCEEDED or (call.status is not None and 200 <= call.status < 300)
    return ours and in_time and answered


def _judge_at_most_once(action: str, story: _Story, mishaps: _Mishaps, lanes: _Lanes, findings: Findings) -> None:
    if len(story.calls) > 1:
        findings.duplicated.append(f"{action} (at most once, called {len(story.calls)} times)")
    if story.calls or story.count(DEAD_LETTERED) or story.count(LOST):
        return
    taken = sorted((note for note in story.notes if note.outcome == TAKEN), key=lambda note: note.ended)
    if len(taken) != story.count(RELEASED) + 1:
        findings.lost.append(f"{action} (at most once, taken {len(taken)} times, never called)")
        return
    last = taken[-1]
    mishap = mishaps.first(last.replica, last.started, last.started + AFTER_TAKEN_MS)
    if mishap is None or lanes.went_on(story, last, mishap.began_ms):
        findings.lost.append(f"{action} (at most once, taken by replica {last.replica}, which never called it)")
    else:
        findings.given_up.append(Explained(action, story.trigger, last.replica, last.started, mishap.name))


class _Mishaps:
    """Who came to grief when."""

    def __init__(self, mishaps: Iterable[Mishap]) -> None:
        self._by_replica: dict[str, list[Mishap]] = defaultdict(list)
        for mishap in sorted(mishaps, key=lambda mishap: mishap.began_ms):
            self._by_replica[mishap.replica].append(mishap)

    def first(self, replica: str, began_ms: int, ended_ms: int) -> Mishap | None:
        """The first one of this replica in this time."""
        mishaps = self._by_replica.get(replica, [])
        overlapping = (m for m in mishaps if m.began_ms <= ended_ms and m.ended_ms >= began_ms)
        return next(overlapping, None)


class _Lanes:
    """Actions of one trigger and key are invoked in order: whoever has called a later one has not just died."""

    def __init__(self, stories: Iterable[_Story]) -> None:
        self._calls: dict[object, list[tuple[int, Call]]] = defaultdict(list)
        for story in stories:
            self._calls[_lane(story)] += [(story.record.offset, call) for call in story.calls]

    def went_on(self, story: _Story, taken: Invocation, until_ms: int) -> bool:
        return any(
            offset > story.record.offset and call.replica == taken.replica and taken.ended <= call.began_ms < until_ms
            for offset, call in self._calls[_lane(story)]
        )


def _lane(story: _Story) -> tuple[int, bytes | None]:
    return story.record.partition, story.record.key
