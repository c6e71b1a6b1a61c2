"""Why did this fire, and why did that not? A sensor's answer for every event, without a broker.

It is not a second implementation: the events go through the same `Matcher` and `JoinPartition` as in production.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TypeAlias

import msgspec

from eventbus.cloudevents import to_kafka
from eventbus.events import REPLAY_FOR, Event
from eventbus.formats import ActionFact, action_fact, dead_letter, trigger_fact
from eventbus.metadata import JoinCommit
from eventbus.names import Kind
from eventbus.ports import Output, Record
from eventbus.topics import Topology
from sensors.filters.candidate import Rejection
from sensors.held import Held, ids_in_action
from sensors.join import JoinPartition, Unused
from sensors.match import Matcher
from sensors.plan import SensorPlan, TriggerPlan
from sensors.rules import SUPERSEDED

_TOPOLOGY = Topology(
    event_partitions=1, trigger_partitions=1, action_partitions=1, invocation_partitions=1, dlq_partitions=1
)


Ids: TypeAlias = dict[str, str | list[str]]
"""The id of the event of each dependency; a list where the trigger counts several."""


class Fired(msgspec.Struct, frozen=True, omit_defaults=True):
    """A condition became true."""

    trigger: str
    action: str
    events: Ids
    key: str = ""


class Waiting(msgspec.Struct, frozen=True, omit_defaults=True):
    """A condition that is not true yet."""

    trigger: str
    condition: str
    held: Ids
    missing: list[list[str]]
    """What would be enough, alternative by alternative, the nearest first."""
    key: str = ""
    """Events with another correlation key wait somewhere else."""


class LetGo(msgspec.Struct, frozen=True, omit_defaults=True):
    """An event that a trigger has let go without using it."""

    trigger: str
    dependency: str
    event: str
    reason: str
    key: str = ""


class Buried(msgspec.Struct, frozen=True):
    """An event goes to the dead letters; where only one trigger cannot use it, that is named."""

    reason: str
    detail: str
    trigger: str | None


class Explanation(msgspec.Struct, frozen=True):
    """What one event did."""

    event: str
    source: str
    name: str
    matched: dict[str, list[str]]
    """Trigger → dependencies that the event satisfied."""
    filtered: dict[str, str]
    """Dependency → why the event did not satisfy it, although it has the right source and name."""
    fired: list[Fired]
    waiting: list[Waiting]
    """The triggers that got the event and still wait."""
    let_go: list[LetGo]
    """Events that were replaced, expired, or did not count."""
    unmatched: str | None
    """Why no trigger got the event."""
    dead_letters: list[Buried] = msgspec.field(default_factory=list)
    """What the event cannot be used for."""


class Explainer:
    """A sensor that explains itself. Feed it events in order."""

    def __init__(self, plan: SensorPlan) -> None:
        self._plan = plan
        self._filtered: dict[str, str] = {}
        self._matcher = Matcher(plan, _TOPOLOGY, "explain", self._note_rejection)
        self._join = JoinPartition(plan, _TOPOLOGY, 0, JoinCommit(plan.owner, 0, 0, {}), "explain")
        self._offset = 0
        self._joined = 0

    def feed(self, event: Event, timestamp: int | None = None) -> Explanation:
        """`timestamp` is when the event was appended to the log; without one, its own `time` has to do."""
        headers, value = to_kafka(event)
        appended = _sent_at(event) if timestamp is None else timestamp
        record = Record(self._plan.name.event_topic, 0, self._offset, appended, event.key, value, headers)
        self._offset += 1
        self._filtered = {}
        outputs = self._matcher.outputs(record)
        matched = self._matched(outputs)
        fired: list[Fired] = []
        waiting: list[Waiting] = []
        let_go: list[LetGo] = []
        buried: list[Buried] = []
        for output in outputs:
            if output.topic == self._plan.name.topic(Kind.ACTION):
                fired.append(firing_of(self._plan, _as_record(output)))
            elif output.topic == self._plan.name.topic(Kind.TRIGGER):
                found = self._join_one(output, let_go)
                fired += [found] if isinstance(found, Fired) else []
                waiting += [found] if isinstance(found, Waiting) else []
            else:
                letter = dead_letter(_as_record(output))
                buried.append(Buried(letter.reason, letter.detail, letter.trigger))
        return Explanation(
            event=event.id,
            source=event.source,
            name=event.subject or event.type,
            matched=matched,
            filtered=self._filtered,
            fired=fired,
            waiting=waiting,
            let_go=let_go,
            unmatched=None if matched or self._filtered or buried else self._why_unmatched(event),
            dead_letters=buried,
        )

    def asked_for_by(self, event: Event) -> list[str]:
        """The dependencies that ask for events of this source and name."""
        return self._matcher.asked_for_by(event)

    def waiting(self, trigger: str) -> list[Waiting]:
        """What a trigger holds now, and what it waits for, for each of its correlation keys."""
        plan = self._plan.triggers[trigger]
        keys = sorted({key for key, _, _ in self._join.held(trigger)}) or [""]
        return [describe(plan, key, self._join.slot(trigger, key)) for key in keys]

    def _join_one(self, output: Output, let_go: list[LetGo]) -> Fired | Waiting:
        record = Record(output.topic, 0, self._joined, 0, output.key, output.value, output.headers)
        self._joined += 1
        fact = trigger_fact(record)
        trigger = self._plan.triggers[fact.trigger]
        before = {} if trigger.rules is not None else self._join.slot(fact.trigger, fact.key)
        older = {name: before[name][0].identity[1] for name in fact.dependencies if name in before}
        let_go += [LetGo(fact.trigger, name, event, SUPERSEDED) for name, event in older.items()]
        step = self._join.step([record])
        let_go += [_let_go(unused) for unused in step.unused] if step else []
        actions = [each for each in (step.outputs if step else ()) if each.topic == self._plan.name.topic(Kind.ACTION)]
        if actions:
            return firing_of(self._plan, _as_record(actions[0]))
        return describe(trigger, fact.key, self._join.slot(fact.trigger, fact.key))

    def _note_rejection(self, dependency: str, rejection: Rejection) -> None:
        self._filtered[dependency] = f"{rejection.reason}: {rejection.text}"

    def _matched(self, outputs: Sequence[Output]) -> dict[str, list[str]]:
        """What the matcher has written, by trigger."""
        matched: defaultdict[str, list[str]] = defaultdict(list)
        for output in outputs:
            record = _as_record(output)
            if output.topic == self._plan.name.topic(Kind.TRIGGER):
                fact = trigger_fact(record)
                matched[fact.trigger] += fact.dependencies
            elif output.topic == self._plan.name.topic(Kind.ACTION):
                action = action_fact(record)
                matched[action.trigger] += [name for event in action.events for name in event.dependencies]
        return dict(matched)

    def _why_unmatched(self, event: Event) -> str:
        only_for = event.attributes.get(REPLAY_FOR, str(self._plan.name))
        if only_for != str(self._plan.name):
            return f"it was replayed for the sensor `{only_for}` only"
        sources = sorted({dependency.source for dependency in self._plan.dependencies})
        if event.source not in sources:
            return f"no dependency asks for the source `{event.source}`; they ask for {_listed(sources)}"
        names = sorted({d.event_name for d in self._plan.dependencies if d.source == event.source})
        found = f"subject `{event.subject}`" if event.subject else f"type `{event.type}`"
        if any(
            d.event_name in (event.subject, event.type) for d in self._plan.dependencies if d.source == event.source
        ):
            return "its dependency is used in no trigger's condition"
        return f"no dependency asks for the {found} of the source `{event.source}`; they ask for {_listed(names)}"


def firing_of(plan: SensorPlan, action: Record) -> Fired:
    """An action record, as one tells of it: which events have caused it."""
    fact = action_fact(action)
    return Fired(fact.trigger, fact.id, ids_in(plan, fact, action.value or b""), fact.key)


def ids_in(plan: SensorPlan, fact: ActionFact, value: bytes) -> Ids:
    """Of the events in an action record with this fact and this value."""
    events: defaultdict[str, list[str]] = defaultdict(list)
    for used, identifier in zip(fact.events, ids_in_action(value), strict=True):
        for name in used.dependencies:
            events[name].append(identifier)
    return ids_of(plan.triggers[fact.trigger], events)


def _as_record(output: Output) -> Record:
    return Record(output.topic, 0, 0, 0, output.key, output.value, output.headers)


def _sent_at(event: Event) -> int:
    try:
        moment = datetime.fromisoformat(str(event.attributes["time"]))
        return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
    except (KeyError, ValueError, OverflowError):
        return 0


def describe(trigger: TriggerPlan, key: str, held: Mapping[str, Sequence[Held]]) -> Waiting:
    events = {name: [event.identity[1] for event in held[name]] for name in sorted(held)}
    complete = held.keys() if trigger.rules is None else trigger.rules.complete(held)
    missing = [sorted(_wanted(trigger, name, held) for name in names) for names in trigger.condition.missing(complete)]
    return Waiting(trigger.name, str(trigger.condition), ids_of(trigger, events), missing, key)


def ids_of(trigger: TriggerPlan, events: Mapping[str, list[str]]) -> Ids:
    counted = {} if trigger.rules is None else trigger.rules.count
    return {name: ids if counted.get(name, 1) > 1 else ids[-1] for name, ids in events.items()}


def _wanted(trigger: TriggerPlan, name: str, held: Mapping[str, Sequence[Held]]) -> str:
    wanted = 1 if trigger.rules is None else trigger.rules.wanted(name)
    return name if wanted == 1 else f"{name} ({len(held.get(name, ()))} of {wanted})"


def _let_go(unused: Unused) -> LetGo:
    gone = unused.gone
    return LetGo(unused.trigger, gone.dependency, gone.event.identity[1], gone.reason, unused.key)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
