"""The whole verdict on a sensor, from everything that it has left behind."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from eventbus.formats import REDRIVEN_HEADER, header, invocation, is_redrive_mark
from eventbus.names import Stage
from eventbus.ports import Record
from sensors.audit.actions import (
    Held,
    Letters,
    check_balance,
    check_sequence,
    check_trigger_order,
    check_trigger_records,
    check_uses,
)
from sensors.audit.commits import (
    SeenCommit,
    check_at_rest,
    check_commits,
    check_replay,
    spans_of,
)
from sensors.audit.dlqactions import check_dlq_actions, is_dlq_action
from sensors.audit.invocations import Call, Difference, Mishap, check_invocations
from sensors.audit.reference import ENDLESS, Reference, Span
from sensors.audit.violations import Breach, Violation
from sensors.plan import SensorPlan


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a sensor. Records are committed ones, in the order of the log within each partition."""

    plans: Mapping[int, SensorPlan]
    """By generation. Where there are several, all commits must have been seen."""
    events: Sequence[Record]
    """Since the sensor began."""
    triggers: Sequence[Record]
    actions: Sequence[Record]
    invocations: Sequence[Record]
    letters: Sequence[Record]
    commits: Sequence[SeenCommit]
    """In their order; at least the last one of every partition."""
    held: Held
    """What a replica would restore now."""
    calls: Sequence[Call]
    mishaps: Sequence[Mishap] = ()
    horizon: int


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it."""

    events: int
    expected: int
    """How many actions there should be, beside those of `dlqTrigger`s."""
    actions: int
    invoked: int
    dead_lettered: int
    violations: list[Violation]
    given_up: list[Difference]
    """At-most-once actions that were taken and never called, each with the mishap that explains it."""
    unrecorded: list[Difference]
    """Calls whose record died with their replica."""

    @property
    def clean(self) -> bool:
        return not self.violations

    def count(self, breach: Breach) -> int:
        return sum(violation.breach is breach for violation in self.violations)


def judge(evidence: Evidence) -> Verdict:
    """All invariants but I8."""
    name = next(iter(evidence.plans.values())).name
    topic = name.event_topic
    reference = _reference(evidence)
    dead = [record for record in evidence.letters if not is_redrive_mark(record)]
    letters = Letters.of(dead)
    notes = [invocation(record) for record in evidence.invocations]
    invocations = check_invocations(
        topic,
        evidence.actions,
        notes,
        buried=letters.buried(evidence.actions),
        calls=evidence.calls,
        mishaps=evidence.mishaps,
    )
    first = [record for record in evidence.actions if header(record.headers, REDRIVEN_HEADER) is None]
    own = [record for record in first if not is_dlq_action(record)]
    of_failures = [record for record in first if is_dlq_action(record)]
    inputs = [*evidence.events, *evidence.triggers, *evidence.actions]
    return Verdict(
        events=len(evidence.events),
        expected=len(reference.actions),
        actions=len(evidence.actions),
        invoked=len(evidence.calls),
        dead_lettered=len(dead),
        violations=[
            *check_trigger_records(reference, topic, evidence.triggers, letters),
            *check_trigger_order(topic, evidence.triggers),
            *check_sequence(reference, topic, own, letters),
            *check_uses(topic, own),
            *check_balance(reference, topic, own, evidence.held, letters),
            *check_dlq_actions(evidence.plans, topic, of_failures, dead),
            *check_commits(name, evidence.commits, notes, evidence.actions),
            *check_replay(name, evidence.commits, evidence.horizon),
            *check_at_rest(name, evidence.commits, inputs),
            *invocations.violations,
        ],
        given_up=invocations.given_up,
        unrecorded=invocations.unrecorded,
    )


def _reference(evidence: Evidence) -> Reference:
    reference = Reference(evidence.plans)
    generations = list(evidence.plans)
    spans = spans_of(evidence.commits) if len(generations) > 1 else {}
    always = [Span(generations[0], ENDLESS)]
    for partition, records in _by_partition(evidence.events).items():
        reference.match(records, spans.get((Stage.MATCH, partition), always))
    for partition, records in _by_partition(evidence.triggers).items():
        reference.join(records, spans.get((Stage.JOIN, partition), always))
    return reference


def _by_partition(records: Iterable[Record]) -> Mapping[int, list[Record]]:
    partitions: defaultdict[int, list[Record]] = defaultdict(list)
    for record in records:
        partitions[record.partition].append(record)
    return partitions
