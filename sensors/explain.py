"""Why did this fire, and why did that not? A sensor's answer for every event, without a broker.

It is not a second implementation: the events go through the same `Matcher` and `JoinPartition` as in production.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from eventbus.cloudevents import to_kafka
from eventbus.events import Event
from eventbus.formats import action_fact, trigger_fact
from eventbus.metadata import JoinCommit
from eventbus.names import Kind
from eventbus.ports import Output, Record
from eventbus.topics import Topology
from sensors.actionrecords import events_by_dependency
from sensors.filters.candidate import Rejection
from sensors.join import JoinPartition, Slot
from sensors.match import Matcher
from sensors.plan import SensorPlan, TriggerPlan

_TOPOLOGY = Topology(
    event_partitions=1, trigger_partitions=1, action_partitions=1, invocation_partitions=1, dlq_partitions=1
)


class Fired(msgspec.Struct, frozen=True):
    """A condition became true."""

    trigger: str
    action: str
    events: dict[str, str]
    """The id of the event of each dependency."""


class Waiting(msgspec.Struct, frozen=True):
    """A condition that is not true yet."""

    trigger: str
    condition: str
    held: dict[str, str]
    """The id of the event of each dependency that is there."""
    missing: list[list[str]]
    """What would be enough, alternative by alternative, the nearest first."""


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
    replaced: dict[str, dict[str, str]]
    """Trigger → dependency → id of an older event that this one pushed out: the latest wins."""
    unmatched: str | None
    """Why no trigger got the event."""


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
        before = {name: self._held(name) for name in matched}
        fired = []
        for output in outputs:
            if output.topic == self._plan.name.topic(Kind.ACTION):
                fired += self._fired([output])
            elif output.topic == self._plan.name.topic(Kind.TRIGGER):
                fired += self._fired(self._step(output))
        done = {firing.trigger for firing in fired}
        return Explanation(
            event=event.id,
            source=event.source,
            name=event.subject or event.type,
            matched=matched,
            filtered=self._filtered,
            fired=fired,
            waiting=[self.waiting(name) for name in matched if name not in done],
            replaced={
                name: {dependency: before[name][dependency] for dependency in names if dependency in before[name]}
                for name, names in matched.items()
                if set(names) & set(before[name])
            },
            unmatched=None if matched or self._filtered else self._why_unmatched(event),
        )

    def waiting(self, trigger: str) -> Waiting:
        """What a trigger holds now, and what it waits for."""
        return describe(self._plan.triggers[trigger], self._join.slots.get(trigger))

    def _note_rejection(self, dependency: str, rejection: Rejection) -> None:
        self._filtered[dependency] = f"{rejection.reason}: {rejection.text}"

    def _matched(self, outputs: Sequence[Output]) -> dict[str, list[str]]:
        """What the matcher has written, by trigger."""
        matched: defaultdict[str, list[str]] = defaultdict(list)
        for output in outputs:
            record = Record(output.topic, 0, 0, 0, output.key, output.value, output.headers)
            if output.topic == self._plan.name.topic(Kind.TRIGGER):
                fact = trigger_fact(record)
                matched[fact.trigger] += fact.dependencies
            elif output.topic == self._plan.name.topic(Kind.ACTION):
                action = action_fact(record)
                matched[action.trigger] += [name for event in action.events for name in event.dependencies]
        return dict(matched)

    def _step(self, output: Output) -> Sequence[Output]:
        record = Record(output.topic, 0, self._joined, 0, output.key, output.value, output.headers)
        self._joined += 1
        step = self._join.step([record])
        return [] if step is None else step.outputs

    def _fired(self, outputs: Sequence[Output]) -> list[Fired]:
        fired = []
        for output in outputs:
            if output.topic == self._plan.name.topic(Kind.ACTION):
                fact = action_fact(Record(output.topic, 0, 0, 0, output.key, output.value, output.headers))
                events = {name: event.id for name, event in events_by_dependency(fact, output.value).items()}
                fired.append(Fired(fact.trigger, fact.id, events))
        return fired

    def _held(self, trigger: str) -> dict[str, str]:
        slot = self._join.slots.get(trigger)
        return {} if slot is None else {name: held.identity[1] for name, held in slot.held.items()}

    def _why_unmatched(self, event: Event) -> str:
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


def _sent_at(event: Event) -> int:
    try:
        moment = datetime.fromisoformat(str(event.attributes["time"]))
        return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
    except (KeyError, ValueError, OverflowError):
        return 0


def describe(trigger: TriggerPlan, slot: Slot | None) -> Waiting:
    held = {} if slot is None else {name: event.identity[1] for name, event in sorted(slot.held.items())}
    return Waiting(
        trigger=trigger.name,
        condition=str(trigger.condition),
        held=held,
        missing=[sorted(names) for names in trigger.condition.missing(held)],
    )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
