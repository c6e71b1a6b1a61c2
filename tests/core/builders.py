"""Small makers of plans, events and records for the tests of the core."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence

from eventbus.cloudevents import from_json_batch, to_json, to_kafka
from eventbus.events import Event
from eventbus.formats import TRIGGER_HEADER, VERSION, Source, TriggerFact, action_fact, encode_fact
from eventbus.metadata import Owner
from eventbus.names import BusName, Kind, SensorName
from eventbus.ports import Output, Record
from eventbus.topics import Topology
from sensors.conditions import parse
from sensors.plan import DependencyPlan, SensorPlan, TriggerPlan

EXAMPLES = int(os.environ.get("EVENTBUS_EXAMPLES", "300"))
"""How many random schedules a crash test tries."""
NAME = SensorName(BusName("ns", "bus"), "sensor")
OWNER = Owner(1, "AAAAAAAA")
TOPOLOGY = Topology(
    event_partitions=4, trigger_partitions=1, action_partitions=3, invocation_partitions=1, dlq_partitions=1
)


def make_plan(
    conditions: Mapping[str, str],
    dependencies: str = "abcd",
    owner: Owner = OWNER,
    with_dlq_trigger: Collection[str] = (),
) -> SensorPlan:
    """A sensor whose dependency `a` is the event `a` of the source `shop`, and so on."""
    return SensorPlan.of(
        NAME,
        owner,
        [DependencyPlan(name, "shop", name) for name in dependencies],
        [
            TriggerPlan(name, parse(text, dependencies), has_dlq_trigger=name in with_dlq_trigger)
            for name, text in conditions.items()
        ],
    )


def event_record(event: Event, *, offset: int = 0, partition: int = 0, timestamp: int = 1000) -> Record:
    headers, value = to_kafka(event)
    return Record(NAME.event_topic, partition, offset, timestamp, event.key, value, headers)


def as_read(output: Output, offset: int, timestamp: int = 0) -> Record:
    """What a consumer of that topic would get."""
    return Record(output.topic, output.partition, offset, timestamp, output.key, output.value, output.headers)


def trigger_record(
    plan: SensorPlan, trigger: str, dependencies: Sequence[str], offset: int, *, timestamp: int = 0
) -> Record:
    """An event on its way to a trigger, as the match stage writes it."""
    event = Event.new("shop", dependencies[0], {"n": offset}, id=f"e{offset}")
    fact = TriggerFact(
        version=VERSION,
        trigger=trigger,
        dependencies=tuple(dependencies),
        source=Source(0, 1000 + offset, timestamp),
        shape=plan.triggers[trigger].shape,
    )
    headers = [(TRIGGER_HEADER, encode_fact(fact))]
    return Record(NAME.topic(Kind.TRIGGER), 0, offset, timestamp, None, to_json(event), headers)


def action_summary(output: Output) -> tuple[str, tuple[str, ...]]:
    """An action's trigger, and which event it has for which dependency."""
    fact = action_fact(as_read(output, 0))
    events = from_json_batch(output.value or b"")
    return fact.trigger, tuple(
        f"{name}={event.id}" for used, event in zip(fact.events, events, strict=True) for name in used.dependencies
    )
