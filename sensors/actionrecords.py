"""Action records: one thing to be done, with the events of all dependencies that led to it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from eventbus.cloudevents import from_json_batch
from eventbus.errors import FormatError
from eventbus.events import Event
from eventbus.formats import ACTION_HEADER, VERSION, ActionFact, Source, Trace, UsedEvent, encode_fact, join_documents
from eventbus.hashing import action_id, partition_of, slot_key
from eventbus.names import Kind
from eventbus.ports import Output, Record
from eventbus.topics import Topology
from sensors.held import Held
from sensors.plan import SensorPlan, TriggerPlan


class ActionWriter:
    """Writes action records."""

    def __init__(self, plan: SensorPlan, topology: Topology, replica: str) -> None:
        self._event_topic = plan.name.event_topic
        self._partitions = topology.action_partitions
        self.sensor = str(plan.name)
        self.generation = plan.owner.generation
        self.replica = replica
        self.topic = plan.name.topic(Kind.ACTION)

    def joined(
        self, trigger: TriggerPlan, key: str, used: Iterable[tuple[str, Held]], completing: Held, partition: int
    ) -> Output:
        """The action of several events, each with its dependency; `completing` came from this partition."""
        by_document: dict[tuple[Source, bytes], tuple[list[str], Held]] = {}
        for name, event in used:
            by_document.setdefault((event.source, event.document), ([], event))[0].append(name)
        events = [event for _, event in by_document.values()]
        references = dict.fromkeys(  # an event of which there are two documents is one event
            (self._event_topic, event.source.partition, event.source.offset, *event.identity) for event in events
        )
        fact = ActionFact(
            version=VERSION,
            id=action_id(self.sensor, trigger.name, list(references)),
            trigger=trigger.name,
            events=tuple(UsedEvent(tuple(names), event.source) for names, event in by_document.values()),
            generation=self.generation,
            key=key,
            joined=(partition, completing.offset or 0),
            counted=() if trigger.rules is None else trigger.rules.counted,
            replica=self.replica,
            trace=completing.trace,
        )
        slot = slot_key(trigger.name, key.encode())
        value = join_documents([event.document for event in events])
        headers = [(ACTION_HEADER, encode_fact(fact))]
        return Output(self.topic, partition_of(slot, self._partitions), slot, value, headers)


class DirectWriter:
    """Writes the actions of a trigger for which one event is enough. The hot path: all facts but four are prepared."""

    def __init__(
        self, writer: ActionWriter, trigger: TriggerPlan, dependencies: tuple[str, ...], partitions: int
    ) -> None:
        self._sensor = writer.sensor
        self._generation = writer.generation
        self._replica = writer.replica
        self._topic = writer.topic
        self._trigger = trigger.name
        self._key = slot_key(trigger.name, b"")
        self._dependencies = dependencies
        self._partitions = partitions
        fact = self._encoded("0", 0)
        id_at = _first_difference(fact, self._encoded("1", 0))
        source_at = _first_difference(fact, self._encoded("0", 1))
        self._before_id = fact[:id_at]
        self._after_id = fact[id_at + len("0") : source_at]
        self._after_source = fact[source_at + len("0,0,0") :]

    def output(self, record: Record, event: Event, document: bytes, trace: Trace | None) -> Output:
        """The action of one event. Events that share a key stay in order; those without one spread evenly."""
        partition, offset, timestamp = record.partition, record.offset, record.timestamp
        own_key = event.key if record.key is None else record.key
        key = self._key if own_key is None else self._key + own_key
        spread = b"%d:%d" % (partition, offset) if own_key is None else key
        attributes: Mapping[str, Any] = event.attributes
        reference = (record.topic, partition, offset, attributes["source"], attributes["id"])
        action = action_id(self._sensor, self._trigger, (reference,))
        if trace is None:
            before, between, after = self._before_id, self._after_id, self._after_source
            fact = b"%b%b%b%d,%d,%d%b" % (before, action.encode(), between, partition, offset, timestamp, after)
        else:
            fact = encode_fact(self._fact(action, Source(partition, offset, timestamp), trace))
        to = partition_of(spread, self._partitions)
        return Output(self._topic, to, key, b"[%b]" % document, [(ACTION_HEADER, fact)])

    def _encoded(self, action: str, partition: int) -> bytes:
        return encode_fact(self._fact(action, Source(partition, 0, 0), None))

    def _fact(self, action: str, source: Source, trace: Trace | None) -> ActionFact:
        return ActionFact(
            version=VERSION,
            id=action,
            trigger=self._trigger,
            events=(UsedEvent(self._dependencies, source),),
            generation=self._generation,
            replica=self._replica,
            trace=trace,
        )


def _first_difference(one: bytes, other: bytes) -> int:
    """Names may look like anything that one could search for."""
    return next(index for index, (left, right) in enumerate(zip(one, other, strict=True)) if left != right)


def events_by_dependency(fact: ActionFact, value: bytes | None) -> Mapping[str, Sequence[Event]]:
    """The events in an action record, by the dependency they satisfied; the newest of each is the last."""
    events = from_json_batch(value or b"")
    if len(events) != len(fact.events):
        raise FormatError(f"action `{fact.id}` lists {len(fact.events)} events and carries {len(events)}")
    by_dependency: defaultdict[str, list[Event]] = defaultdict(list)
    for used, event in zip(fact.events, events, strict=True):
        for name in used.dependencies:
            by_dependency[name].append(event)
    return by_dependency
