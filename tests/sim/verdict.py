"""What a simulation leaves behind, as evidence for the judge of all runs (`sensors.audit`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eventbus.formats import Source
from eventbus.names import Kind
from sensors.audit.invocations import Call
from sensors.audit.verdict import Evidence, Verdict, judge
from sensors.inspection import held_state
from tests.sim.processes import out_topic

if TYPE_CHECKING:
    from tests.sim.simulation import Simulation


def verdict_on(simulation: Simulation) -> Verdict:
    plan = simulation.sensors[len(simulation.sensors)].plan
    name = plan.name
    held = {
        (state.trigger, state.key, event.dependency, Source(event.partition, event.offset, event.since))
        for state in held_state(simulation.cluster, plan, simulation.topology, simulation.clock)
        for event in state.held
    }
    written = [
        Call((record.key or b"").decode(), (record.value or b"").decode(), 0, 0, succeeded=True)
        for record in simulation.records(out_topic(name))
    ]
    return judge(
        Evidence(
            plans={generation: sensor.plan for generation, sensor in simulation.sensors.items()},
            events=simulation.records(name.event_topic),
            triggers=simulation.records(name.topic(Kind.TRIGGER)),
            actions=simulation.records(name.topic(Kind.ACTION)),
            invocations=simulation.records(name.topic(Kind.INVOCATION)),
            letters=simulation.records(name.topic(Kind.DLQ)),
            commits=simulation.journal.commits,
            held=held,
            calls=[*simulation.sink.calls, *written],
            mishaps=simulation.mishaps,
            horizon=simulation.horizon_records,
        )
    )
