"""A stateful trigger on a desk: events in, actions and events that were let go out; restarts whenever one likes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eventbus.cloudevents import from_json_batch
from eventbus.events import Event
from eventbus.formats import FLUSH_HEADER, VERSION, Flush, action_fact, dead_letter, encode_fact
from eventbus.metadata import JoinCommit, decode_join, encode_join
from eventbus.names import Kind
from eventbus.ports import Output, Record
from eventbus.stateformats import IdentityKey, OriginKey, decode_state_key
from eventbus.topics import Topology
from sensors.audit.actions import Letters, check_balance, check_sequence
from sensors.audit.reference import ENDLESS, Reference, Span
from sensors.conditions import parse
from sensors.join import JoinPartition
from sensors.match import Matcher
from sensors.plan import DependencyPlan, SensorPlan, TriggerPlan
from sensors.spec.joins import JoinSpec
from tests.core.builders import NAME, OWNER, as_read, event_record

TOPOLOGY = Topology(
    event_partitions=1, trigger_partitions=1, action_partitions=1, invocation_partitions=1, dlq_partitions=1
)
NAMES = "abc"


def stateful_plan(conditions: Mapping[str, str], rules: Mapping[str, Any] | None = None) -> SensorPlan:
    """All triggers have these rules, as a manifest would say them."""
    spec = JoinSpec.model_validate({"name": "any", **(rules or {})})
    triggers = []
    for name, text in conditions.items():
        condition = parse(text, NAMES)
        triggers.append(TriggerPlan(name, condition, spec.rules(condition.names)))
    return SensorPlan.of(NAME, OWNER, [DependencyPlan(name, "shop", name) for name in NAMES], triggers)


class Desk:
    """One partition of the join, with everything that survives a crash."""

    def __init__(self, plan: SensorPlan) -> None:
        self.plan = plan
        self.events: list[Record] = []
        self.log: list[Record] = []
        self.state: dict[bytes, Record] = {}
        self.actions: list[Record] = []
        self.letters: list[Record] = []
        self.let_go: list[str] = []
        self._committed = (0, encode_join(JoinCommit(OWNER, 0, 0, {})))
        self.join = self._fresh()

    # --- what happens -----------------------------------------------------------------------------------------------

    def publish(self, name: str, seconds: float, *, id: str | None = None, **data: Any) -> None:
        """An event, so many seconds after the beginning; it is matched at once."""
        event = Event.new("shop", name, data, id=id or f"{name}{len(self.events)}")
        record = event_record(event, offset=len(self.events), timestamp=round(seconds * 1000))
        self.events.append(record)
        for output in Matcher(self.plan, TOPOLOGY, "m").outputs(record):
            if output.topic == NAME.topic(Kind.TRIGGER):
                self.log.append(as_read(output, len(self.log)))
            else:
                self._write([output])

    def flush(self, key: str = "", *, fire: bool, trigger: str = "t") -> None:
        """What an operator writes; it is obeyed at once."""
        fact = Flush(version=VERSION, trigger=trigger, fire=fire, key=key)
        headers = [(FLUSH_HEADER, encode_fact(fact))]
        self.log.append(Record(NAME.topic(Kind.TRIGGER), 0, len(self.log), 0, None, None, headers))
        self.work()

    def work(self, records: int | None = None, *, lost: bool = False) -> None:
        """One batch of what is there. `lost`: it is never committed, and the replica starts again."""
        position = self.join.position
        step = self.join.step(self.log[position : None if records is None else position + records])
        if step is not None and not lost:
            self._write(step.outputs)
            self._committed = (step.commit.offset, encode_join(step.commit))
            self.let_go += [f"{each.gone.event.identity[1]} {each.gone.reason}" for each in step.unused]
        if lost:
            self.restart()

    def arrive(self, name: str, seconds: float, **more: Any) -> list[str]:
        """Publish and work. Returns the actions that it caused."""
        before = len(self.actions)
        self.publish(name, seconds, **more)
        self.work()
        return self.fired()[before:]

    def restart(self, plan: SensorPlan | None = None) -> None:
        self.plan = plan or self.plan
        self.join = self._fresh()
        commit = decode_join(*self._committed)
        step = self.join.step(self.log[commit.offset : commit.position])
        if step is not None:
            self._write(step.outputs)
            self._committed = (step.commit.offset, encode_join(step.commit))

    def _fresh(self) -> JoinPartition:
        join = JoinPartition(self.plan, TOPOLOGY, 0, decode_join(*self._committed), "j")
        for record in self.state.values():
            key = decode_state_key(record)
            assert not isinstance(key, IdentityKey | OriginKey)
            join.load(key, record)
        join.loaded()
        return join

    def _write(self, outputs: list[Output]) -> None:
        for output in outputs:
            if output.topic == NAME.topic(Kind.ACTION):
                self.actions.append(as_read(output, len(self.actions)))
            elif output.topic == NAME.topic(Kind.DLQ):
                self.letters.append(as_read(output, len(self.letters)))
            elif output.value is None:
                del self.state[output.key or b""]  # a tombstone for what is not there would be a waste
            else:
                self.state[output.key or b""] = as_read(output, 0)

    # --- what came of it --------------------------------------------------------------------------------------------

    def fired(self) -> list[str]:
        """`trigger key: events`, where there is a key."""
        fired = []
        for record in self.actions:
            fact = action_fact(record)
            ids = " ".join(event.id for event in from_json_batch(record.value or b""))
            fired.append(f"{fact.key}: {ids}" if fact.key else ids)
        return fired

    def held(self, trigger: str = "t") -> list[str]:
        return [event.identity[1] for _, _, event in self.join.held(trigger)]

    def reasons(self) -> list[str]:
        return [dead_letter(record).reason for record in self.letters]

    def check(self) -> None:
        """The audit finds nothing wrong."""
        reference = Reference({OWNER.generation: self.plan})
        always = [Span(OWNER.generation, ENDLESS)]
        reference.match(self.events, always)
        reference.join(self.log, always)
        letters = Letters.of(self.letters)
        held = {
            (trigger, key, name, event.source)
            for trigger in self.plan.triggers
            for key, name, event in self.join.held(trigger)
        }
        topic = NAME.event_topic
        violations = [
            *check_sequence(reference, topic, self.actions, letters),
            *check_balance(reference, topic, self.actions, held, letters),
        ]
        assert not violations, "\n".join(map(str, violations))
