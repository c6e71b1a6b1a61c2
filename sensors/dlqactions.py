"""The actions of `dlqTrigger`s: what is due when another action was given up."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from eventbus.events import Event
from eventbus.formats import ACTION_HEADER, ActionFact, Failure, encode_fact
from eventbus.hashing import dlq_action_id, slot_key
from eventbus.ports import Output, Record
from sensors.parameters import FAILURE

FAILURE_TYPE = "dev.eventbus.action.failed"
_SUFFIX = "/dlq"


def dlq_name(trigger: str) -> str:
    """What a trigger's `dlqTrigger` is called in records. No trigger can be called so."""
    return f"{trigger}{_SUFFIX}"


def parent_of(trigger: str) -> str:
    """The trigger whose failures this one is about; any other is its own."""
    return trigger.removesuffix(_SUFFIX)


def dlq_action(record: Record, fact: ActionFact, failure: Failure, replica: str) -> Output:
    """The action of a `dlqTrigger`: the same events, in the same partition, and why the action was given up."""
    trigger = dlq_name(fact.trigger)
    due = msgspec.structs.replace(fact, id=dlq_action_id(fact.id), trigger=trigger, failure=failure, replica=replica)
    key = slot_key(trigger, (record.key or b"").removeprefix(slot_key(fact.trigger, b"")))
    return Output(record.topic, record.partition, key, record.value, [(ACTION_HEADER, encode_fact(due))])


def with_failure(fact: ActionFact, events: Mapping[str, Event]) -> Mapping[str, Event]:
    """What an action gets: the events by dependency and, for a `dlqTrigger`, `$failure`."""
    if fact.failure is None:
        return events
    failure = fact.failure
    data = {
        "action": failure.action,
        "trigger": parent_of(fact.trigger),
        "error": failure.error,
        "status": failure.status,
        "attempts": failure.attempts,
        "events": {name: {"source": event.source, "id": event.id} for name, event in events.items()},
    }
    return {**events, FAILURE: Event.new("eventbus", "failure", data, type=FAILURE_TYPE, id=failure.action)}
