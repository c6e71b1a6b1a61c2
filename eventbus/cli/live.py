"""`eventbus explain` on live data: why has this trigger not fired?"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

from eventbus.cli.options import Output
from eventbus.cli.printing import one_line, say, say_json

if TYPE_CHECKING:
    from eventbus.ports import Clock, Cluster
    from sensors.diagnosis import Diagnosis
    from sensors.evidence import Evidence
    from sensors.investigation import Question
    from sensors.plan import SensorPlan

_PATIENCE_SECONDS = 15.0


def explain_live(
    plan: SensorPlan,
    triggers: Sequence[str],
    *,
    key: str | None,
    since: str | None,
    bootstrap_servers: str | None,
    bus_file: Path | None,
    output: Output,
    verbose: bool,
) -> None:
    from eventbus.cli.connection import connect, insist
    from eventbus.cli.times import moment
    from eventbus.clock import Deadline, SystemClock
    from sensors.diagnosis import diagnose
    from sensors.investigation import Question

    clock = SystemClock()
    begin = None if since is None else moment("--since", since, clock.now_ms())
    question = Question(triggers if key is None else _keyed(plan, triggers), key, begin)
    bus = plan.name.bus
    with connect(bootstrap_servers, bus_file, bus.namespace, bus.bus, verbose=verbose) as home:
        look = partial(_look, home.cluster, plan, clock, question)
        evidence = insist(look, Deadline(clock, _PATIENCE_SECONDS))
    diagnoses = diagnose(evidence)
    if output is Output.JSON:
        say_json({"evidence": evidence, "diagnoses": diagnoses})
        return
    for number, diagnosis in enumerate(diagnoses):
        _print(diagnosis, first=number == 0)


def _look(cluster: Cluster, plan: SensorPlan, clock: Clock, question: Question) -> Evidence:
    from eventbus.cli.connection import existing_topology
    from sensors.investigation import Investigation

    return Investigation(cluster, plan, existing_topology(cluster, plan.name), clock, question).evidence()


def _keyed(plan: SensorPlan, triggers: Sequence[str]) -> list[str]:
    from eventbus.errors import ConfigError

    keyed = [name for name in triggers if plan.triggers[name].correlation is not None]
    if not keyed:
        raise ConfigError("--key: none of these triggers joins by key (`correlate`)")
    return keyed


def _print(diagnosis: Diagnosis, *, first: bool) -> None:
    if not first:
        say()
    say((diagnosis.trigger, "bold"), f"  {diagnosis.condition}")
    for about, findings in groupby(diagnosis.findings, attrgetter("about")):
        for number, finding in enumerate(findings):
            say("  ", (f"{'' if number else about:<8}", "cyan"), one_line(finding.text))
    say("  ", (f"{'answer':<8}", "green"), (one_line(diagnosis.answer.text), "bold"))
