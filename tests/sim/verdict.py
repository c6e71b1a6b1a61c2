"""The verdict on one simulation: everything that was promised, checked against the reference."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from eventbus.formats import Source, action_fact, dead_letter, invocation, trigger_fact
from eventbus.names import Kind, Stage
from eventbus.ports import Record
from sensors.deadletters import SPEC_CHANGED
from sensors.inspection import held_state
from tests.sim.processes import out_topic
from tests.sim.reference import Reference

if TYPE_CHECKING:
    from tests.sim.simulation import Simulation


class Findings(msgspec.Struct):
    """Every list is empty where all is well."""

    lost: list[str] = msgspec.field(default_factory=list)
    duplicated: list[str] = msgspec.field(default_factory=list)
    out_of_order: list[str] = msgspec.field(default_factory=list)
    went_back: list[str] = msgspec.field(default_factory=list)
    """Commits that undo an earlier one: somebody else's, or one's own."""
    unexplained: list[str] = msgspec.field(default_factory=list)

    @property
    def clean(self) -> bool:
        return not (self.lost or self.duplicated or self.out_of_order or self.went_back or self.unexplained)


def judge(simulation: Simulation) -> None:
    plans = {generation: sensor.plan for generation, sensor in simulation.sensors.items()}
    reference = Reference(plans)
    name = plans[1].name
    for partition, events in _by_partition(simulation.records(name.event_topic)).items():
        reference.match(events, simulation.spans[Stage.MATCH, partition])
    triggers = _by_partition(simulation.records(name.topic(Kind.TRIGGER)))
    for partition in range(simulation.topology.trigger_partitions):
        reference.join(triggers.get(partition, []), simulation.spans[Stage.JOIN, partition])
    actions = simulation.records(name.topic(Kind.ACTION))
    _judge_triggers(simulation, reference, [record for records in triggers.values() for record in records])
    _judge_actions(simulation, reference, actions)
    _judge_held(simulation, reference)
    _judge_invocations(simulation, actions)
    if simulation.longest_replay > simulation.horizon_records:
        simulation.findings.unexplained.append(f"a restart would replay {simulation.longest_replay} records")


def _judge_triggers(simulation: Simulation, reference: Reference, records: list[Record]) -> None:
    facts = [trigger_fact(record) for record in records]
    found = Counter((fact.trigger, fact.source.partition, fact.source.offset) for fact in facts)
    wanted = Counter(reference.triggers.keys())
    simulation.findings.lost += [f"trigger record {each}" for each in wanted - found]
    simulation.findings.duplicated += [f"trigger record {each}" for each in found - wanted]


def _judge_actions(simulation: Simulation, reference: Reference, records: list[Record]) -> None:
    findings = simulation.findings
    expected = {action.id: (rank, action) for rank, action in enumerate(reference.actions)}
    found = Counter(action_fact(record).id for record in records)
    findings.lost += [f"action of {action.trigger} by {action.place}" for id_, (_, action) in expected.items()
                      if id_ not in found]  # fmt: skip
    findings.duplicated += [f"action {action}, {number} times" for action, number in found.items() if number > 1]
    findings.unexplained += [f"action {action} has no cause" for action in found if action not in expected]
    latest: dict[object, int] = {}
    for record in records:
        rank, action = expected.get(action_fact(record).id, (-1, None))
        if action is not None:
            lane = (record.partition, action.lane)
            if rank < latest.get(lane, -1):
                findings.out_of_order.append(f"action of {action.trigger} by {action.place}")
            latest[lane] = max(rank, latest.get(lane, -1))


def _judge_held(simulation: Simulation, reference: Reference) -> None:
    """What a replica would restore now is what should be held; what does not fit any more is in the dead letters."""
    plan = simulation.sensors[max(span.generation for (stage, _), spans in simulation.spans.items()
                                  if stage is Stage.JOIN for span in spans)].plan  # fmt: skip
    states = held_state(simulation.cluster, plan, simulation.topology, simulation.clock)
    restored = {
        (state.trigger, held.dependency): (held.partition, held.offset) for state in states for held in state.held
    }
    wanted = {
        (trigger, dependency): (source.partition, source.offset)
        for trigger, slot in reference.held.items()
        for dependency, (source, _) in slot.items()
    }
    findings = simulation.findings
    findings.lost += [f"held event {each}" for each in wanted.items() - restored.items()]
    findings.unexplained += [f"holds {each} without reason" for each in restored.items() - wanted.items()]
    letters: Counter[tuple[str, Source]] = Counter()
    for record in simulation.records(plan.name.topic(Kind.DLQ)):
        letter = dead_letter(record)
        if letter.reason == SPEC_CHANGED and letter.stage == Stage.JOIN:
            fact = trigger_fact(record)
            letters[fact.trigger, fact.source] += 1
    parked = Counter(reference.parked)
    findings.lost += [f"parked event {each}" for each in parked - letters]
    findings.duplicated += [f"parked event {each}" for each in letters - parked]


def _judge_invocations(simulation: Simulation, records: list[Record]) -> None:
    name = simulation.sensors[1].plan.name
    findings, sink = simulation.findings, simulation.sink
    notes = [invocation(record) for record in simulation.records(name.topic(Kind.INVOCATION))]
    modes = {note.action: note.mode for note in notes}
    taken = {note.action for note in notes if note.outcome == "taken"}
    buried = {dead_letter(record).action for record in simulation.records(name.topic(Kind.DLQ))}
    written = Counter((record.key or b"").decode() for record in simulation.records(out_topic(name)))
    may_die = bool(simulation.dice.counts)
    for record in records:
        action = action_fact(record).id
        mode = modes.get(action)
        if action in buried:
            continue
        if mode is None:
            findings.lost.append(f"action {action} was never dealt with")
        elif mode == "exactlyOnce":
            if written[action] != 1:
                findings.unexplained.append(f"action {action} was written {written[action]} times")
        elif mode == "atLeastOnce":
            if not sink.succeeded[action]:
                findings.lost.append(f"action {action} did not succeed")
        elif sink.seen[action] > 1:
            findings.duplicated.append(f"action {action} was invoked {sink.seen[action]} times")
        elif not sink.seen[action] and not (action in taken and may_die):
            findings.lost.append(f"action {action} was not invoked and never taken")


def _by_partition(records: list[Record]) -> dict[int, list[Record]]:
    partitions: dict[int, list[Record]] = {}
    for record in records:
        partitions.setdefault(record.partition, []).append(record)
    return partitions
