"""Was every promise kept? Pure functions over the records of a sensor's topics.

The records are judged against a machine that never crashes: the same `Matcher` and `JoinPartition` as in production,
fed once, from the beginning, with what was committed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from eventbus.formats import ActionFact, Invocation, action_fact
from eventbus.metadata import JoinCommit
from eventbus.names import Kind
from eventbus.ports import Output, Record
from eventbus.topics import Topology
from sensors.join import JoinPartition
from sensors.match import Matcher
from sensors.plan import SensorPlan


class Verdict(msgspec.Struct, frozen=True):
    """What the log says about a sensor. Every list is empty where all is well."""

    events: int
    expected: int
    """How many actions there should be."""
    actions: int
    """How many there are."""
    lost: list[str]
    """Actions that should be there and are not."""
    repeated: list[str]
    """Actions that are there more than once."""
    unexpected: list[str]
    """Actions that nothing has caused."""
    out_of_order: list[str]
    """Actions that come before one that was due earlier, for the same trigger and key."""

    @property
    def clean(self) -> bool:
        return not (self.lost or self.repeated or self.unexpected or self.out_of_order)


def check_actions(
    plan: SensorPlan,
    topology: Topology,
    *,
    events: Sequence[Record],
    triggers: Sequence[Record],
    actions: Sequence[Record],
) -> Verdict:
    """Judge the action records by the event and trigger records. All in log order within each partition.

    `events` are those since the sensor began. The spec must have been the same all the time.
    """
    matched = _matched(plan, topology, events)
    expected = [_Due.of(output) for output in matched if output.topic == plan.name.topic(Kind.ACTION)]
    expected += _joined(plan, topology, triggers)
    found = [_Due(action_fact(record), record.partition, record.key) for record in actions]
    wanted = Counter(output.key for output in matched if output.topic == plan.name.topic(Kind.TRIGGER))
    there = Counter(record.key for record in triggers)
    expected_ids, found_ids = Counter(due.id for due in expected), Counter(due.id for due in found)
    missing_triggers = [f"{count} trigger records of {key!r}" for key, count in (wanted - there).items()]
    surplus_triggers = [f"{count} trigger records of {key!r}" for key, count in (there - wanted).items()]
    return Verdict(
        events=len(events),
        expected=len(expected),
        actions=len(actions),
        lost=[*(expected_ids - found_ids), *missing_triggers],
        repeated=[*(action for action, count in found_ids.items() if count > 1), *surplus_triggers],
        unexpected=[action for action in found_ids if action not in expected_ids],
        out_of_order=_out_of_order(expected, found),
    )


class InvocationVerdict(msgspec.Struct, frozen=True):
    """What the invocations say. Every list is empty where all is well."""

    invoked: int
    dead_lettered: int
    too_often: list[str]
    """At most once, and invoked more than once."""
    not_at_all: list[str]
    """At least once, and neither invoked nor dead-lettered."""
    at_risk: list[str]
    """At most once, taken and never seen again: given up rather than repeated."""

    @property
    def clean(self) -> bool:
        return not (self.too_often or self.not_at_all)


def check_invocations(
    actions: Iterable[Record], invocations: Iterable[Invocation], calls: Mapping[str, int], at_least_once: set[str]
) -> InvocationVerdict:
    """Judge the invocations by the action records. `calls` counts what the targets saw, by action id."""
    outcomes: dict[str, Counter[str]] = defaultdict(Counter)
    for note in invocations:
        outcomes[note.action][note.outcome] += 1
    too_often, not_at_all, at_risk = [], [], []
    for action in map(action_fact, actions):
        outcome = outcomes[action.id]
        seen = calls.get(action.id, 0)
        if action.trigger in at_least_once:
            if not seen and not outcome["dead-lettered"]:
                not_at_all.append(action.id)
        elif seen > 1:
            too_often.append(action.id)
        elif not seen and not outcome["dead-lettered"]:
            at_risk.append(action.id)
    return InvocationVerdict(
        invoked=sum(calls.values()),
        dead_lettered=sum(outcome["dead-lettered"] for outcome in outcomes.values()),
        too_often=too_often,
        not_at_all=not_at_all,
        at_risk=at_risk,
    )


class _Due(msgspec.Struct, frozen=True):
    """An action, and the lane in which it keeps its order."""

    fact: ActionFact
    partition: int
    key: bytes | None

    @classmethod
    def of(cls, output: Output) -> _Due:
        record = Record(output.topic, output.partition, 0, 0, output.key, output.value, output.headers)
        return cls(action_fact(record), output.partition, output.key)

    @property
    def id(self) -> str:
        return self.fact.id

    @property
    def lane(self) -> tuple[int, bytes | None, tuple[int, int]]:
        """Order is promised to one trigger and key, for what comes from one partition."""
        joined = self.fact.joined
        source = (0, joined[0]) if joined else (1, self.fact.events[0].source.partition)
        return self.partition, self.key, source


def _matched(plan: SensorPlan, topology: Topology, events: Iterable[Record]) -> list[Output]:
    matcher = Matcher(plan, topology, "checks")
    return [output for event in events for output in matcher.outputs(event)]


def _joined(plan: SensorPlan, topology: Topology, triggers: Iterable[Record]) -> list[_Due]:
    partitions: dict[int, list[Record]] = defaultdict(list)
    for record in triggers:
        partitions[record.partition].append(record)
    due = []
    for number, records in partitions.items():
        join = JoinPartition(plan, topology, number, JoinCommit(plan.owner, 0, 0, {}), "checks")
        step = join.step(records)
        due += [_Due.of(output) for output in (step.outputs if step else ()) if _is_action(plan, output)]
    return due


def _is_action(plan: SensorPlan, output: Output) -> bool:
    return output.topic == plan.name.topic(Kind.ACTION)


def _out_of_order(expected: Iterable[_Due], found: Iterable[_Due]) -> list[str]:
    rank = {due.id: number for number, due in enumerate(expected)}
    latest: dict[object, int] = {}
    late = []
    for due in found:
        number = rank.get(due.id, -1)
        if number < latest.get(due.lane, -1) and number >= 0:
            late.append(due.id)
        latest[due.lane] = max(number, latest.get(due.lane, -1))
    return late
