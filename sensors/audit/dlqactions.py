"""I1 to I3 for the actions of `dlqTrigger`s: one for every time that an action was given up, and no others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from eventbus.formats import ACTION_HEADER, action_fact, dead_letter, header
from eventbus.hashing import dlq_action_id
from eventbus.ports import Record
from sensors.audit.violations import Breach, Violation, event_places, place_of
from sensors.deadletters import ACTION_FAILED, UNPRODUCIBLE
from sensors.dlqactions import dlq_name
from sensors.plan import SensorPlan


def is_dlq_action(record: Record) -> bool:
    """Whether a trigger's failure has caused this action, and not its condition."""
    return action_fact(record).failure is not None


def check_dlq_actions(
    plans: Mapping[int, SensorPlan], event_topic: str, actions: Iterable[Record], letters: Sequence[Record]
) -> Iterator[Violation]:
    """`actions` are those of `dlqTrigger`s."""
    given_up = _given_up(letters)
    times = Counter(action for action, _ in given_up)
    triggers = dict(given_up)
    refused = Counter(action_fact(record).id for record in letters if _is_refused_action(record))
    seen: Counter[str] = Counter()
    for record in actions:
        fact = action_fact(record)
        failed = fact.failure.action if fact.failure else ""
        caused = dlq_action_id(failed) == fact.id and dlq_name(triggers.get(failed, "")) == fact.trigger
        again = caused and seen[fact.id] >= times[failed]
        if again or not caused:
            what = "an action of a dlqTrigger that is there already" if again else "nothing was given up for"
            yield Violation(
                invariant="I2" if again else "I1",
                breach=Breach.DUPLICATED if again else Breach.UNEXPLAINED,
                what=f"{what} (the action {fact.id})",
                trigger=fact.trigger,
                events=event_places(event_topic, (event.source for event in fact.events)),
                place=place_of(record),
                replica=fact.replica,
            )
        seen[fact.id] += 1
    there = seen + refused
    for action, trigger in triggers.items():
        if _always_has_one(plans, trigger) and there[dlq_action_id(action)] < times[action]:
            what = f"the action {action} was given up, and its dlqTrigger has no action"
            yield Violation(invariant="I3", breach=Breach.LOST, what=what, trigger=trigger)


def _given_up(letters: Iterable[Record]) -> list[tuple[str, str]]:
    """Every action that was invoked in vain, as often as it was, and its trigger."""
    facts = (dead_letter(record) for record in letters)
    return [
        (fact.action, fact.trigger)
        for fact in facts
        if fact.reason == ACTION_FAILED and fact.action is not None and fact.trigger is not None
    ]


def _is_refused_action(record: Record) -> bool:
    return dead_letter(record).reason == UNPRODUCIBLE and header(record.headers, ACTION_HEADER) is not None


def _always_has_one(plans: Mapping[int, SensorPlan], trigger: str) -> bool:
    """A letter does not tell which generation has written it."""
    having = [plan.triggers[trigger].has_dlq_trigger for plan in plans.values() if trigger in plan.triggers]
    return bool(having) and all(having)
