"""Action records: one thing to be done, with the events of all dependencies that led to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from eventbus.cloudevents import from_json_batch
from eventbus.errors import FormatError
from eventbus.events import Event
from eventbus.formats import (
    ACTION_HEADER,
    ACTION_TYPE,
    VERSION,
    ActionFact,
    Trace,
    UsedEvent,
    encode_fact,
    join_documents,
)
from eventbus.hashing import Reference, action_id
from eventbus.names import Kind
from eventbus.ports import Output
from sensors.plan import SensorPlan, TriggerPlan


class ActionWriter:
    """Writes action records. The record is a CloudEvent itself, with the action's id as its id."""

    def __init__(self, plan: SensorPlan) -> None:
        self._sensor = str(plan.name)
        self._generation = plan.owner.generation
        self._topic = plan.name.topic(Kind.ACTION)
        fixed = [
            ("ce_specversion", b"1.0"),
            ("ce_type", ACTION_TYPE.encode()),
            ("ce_source", f"/{plan.name}".encode()),
            ("content-type", b"application/json"),
        ]
        self._fixed = {name: [("ce_subject", name.encode()), *fixed] for name in plan.triggers}

    def output(
        self,
        *,
        trigger: TriggerPlan,
        key: bytes,
        partition: int,
        events: tuple[UsedEvent, ...],
        references: Sequence[Reference],
        documents: Sequence[bytes],
        correlation: str = "",
        joined: tuple[int, int] | None = None,
        trace: Trace | None = None,
    ) -> Output:
        """One action. `events`, `references` and `documents` are in the same order."""
        action = action_id(self._sensor, trigger.name, references)
        fact = ActionFact(
            version=VERSION,
            id=action,
            trigger=trigger.name,
            events=events,
            generation=self._generation,
            key=correlation,
            joined=joined,
            trace=trace,
        )
        headers = [(ACTION_HEADER, encode_fact(fact)), ("ce_id", action.encode()), *self._fixed[trigger.name]]
        return Output(self._topic, partition, key, join_documents(documents), headers)


def events_by_dependency(fact: ActionFact, value: bytes | None) -> Mapping[str, Event]:
    """The events in an action record, by the dependency they satisfied."""
    events = from_json_batch(value or b"")
    if len(events) != len(fact.events):
        raise FormatError(f"action `{fact.id}` lists {len(fact.events)} events and carries {len(events)}")
    return {name: event for used, event in zip(fact.events, events, strict=True) for name in used.dependencies}
