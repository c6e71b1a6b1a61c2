"""`eventbus explain`: what would this sensor do with these events, and why? Or: why has the one that runs not fired?"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eventbus.cli.options import (
    BootstrapServers,
    BusFile,
    BusOption,
    Manifest,
    Namespace,
    Output,
    OutputOption,
    Verbose,
)
from eventbus.cli.printing import print_table, say, say_json

if TYPE_CHECKING:
    from sensors.explain import Explanation, Fired, Ids, LetGo, Waiting
    from sensors.plan import SensorPlan

_LET_GO = {
    "superseded": ("replaced", "the latest event of a dependency wins"),
    "expired": ("expired", "too old to be joined with what came later"),
    "reset": ("reset", "the conditions were reset meanwhile"),
    "duplicate": ("repeated", "it was here before"),
    "suppressed": ("silenced", "there was a firing not long ago"),
}
"""What to call it, and why it is so, by the reason that the core gives."""


def explain(
    sensor: Manifest,
    *,
    events: Annotated[
        Path | None,
        typer.Option(metavar="EVENTS.jsonl", help="What would these do? One JSON event per line; - is stdin."),
    ] = None,
    trigger: Annotated[str | None, typer.Option(help="Tell about this trigger only.")] = None,
    key: Annotated[str | None, typer.Option(help="Without --events: about this correlation key only.")] = None,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="AGO|TIME",
            help="Without --events: look at events from then on.",
            show_default="the last 1,000 events",
        ),
    ] = None,
    bootstrap_servers: BootstrapServers = None,
    bus_file: BusFile = None,
    namespace: Namespace = "default",
    bus: BusOption = "default",
    output: OutputOption = Output.TEXT,
    verbose: Verbose = False,
) -> None:
    """Why has this not fired? Tells it from the topics of the sensor that runs, which it does not disturb.

    With --events it works offline: what each of these matches, what is held then, what fires, and why not.
    """
    from eventbus.cli.live import explain_live
    from eventbus.cli.manifests import load_sensor
    from eventbus.errors import ConfigError
    from eventbus.names import BusName

    loaded = load_sensor(sensor, BusName(namespace, bus))
    plan = loaded.sensor.blueprint(loaded.name.bus).plan
    triggers = _chosen(list(plan.triggers), trigger)
    if events is None:
        explain_live(
            plan,
            triggers,
            key=key,
            since=since,
            bootstrap_servers=bootstrap_servers,
            bus_file=bus_file,
            output=output,
            verbose=verbose,
        )
    elif key is not None or since is not None:
        raise ConfigError("--key and --since are about a sensor that runs: leave out --events")
    else:
        _explain_offline(plan, triggers, events, output)


def _explain_offline(plan: SensorPlan, triggers: Sequence[str], events: Path, output: Output) -> None:
    from eventbus.jsonl import read_events
    from sensors.explain import Explainer

    dependencies = {name for each in triggers for name in plan.triggers[each].condition.names}
    explainer = Explainer(plan)
    for number, event in enumerate(read_events(events), start=1):
        explanation = _only(explainer.feed(event), triggers, dependencies)
        if output is Output.JSON:
            say_json(explanation)
        else:
            _print(number, explanation)
    waiting = [each for name in triggers for each in explainer.waiting(name)]
    if output is Output.JSON:
        say_json({"waiting": waiting})
    else:
        say("\nat the end:")
        keyed = any(each.key for each in waiting)
        columns = ["trigger", *(["key"] if keyed else []), "condition", "holds", "waits for"]
        print_table(columns, [_row(each, keyed=keyed) for each in waiting])


def alternatives(missing: Sequence[Sequence[str]]) -> str:
    """What would be enough."""
    return " or ".join(" and ".join(names) for names in missing) or "nothing"


def _chosen(triggers: list[str], wanted: str | None) -> list[str]:
    from eventbus.errors import ConfigError
    from sensors.spec.suggestions import suggest

    if wanted is None:
        return triggers
    if wanted not in triggers:
        raise ConfigError(f"the sensor has no trigger `{wanted}`; {suggest(wanted, triggers)}")
    return [wanted]


def _only(explanation: Explanation, triggers: Sequence[str], dependencies: Collection[str]) -> Explanation:
    """Leave out what concerns other triggers."""
    from msgspec.structs import replace

    matched = {name: names for name, names in explanation.matched.items() if name in triggers}
    others = [name for name in explanation.matched if name not in triggers]
    return replace(
        explanation,
        matched=matched,
        filtered={name: reason for name, reason in explanation.filtered.items() if name in dependencies},
        fired=[firing for firing in explanation.fired if firing.trigger in triggers],
        waiting=[each for each in explanation.waiting if each.trigger in triggers],
        let_go=[each for each in explanation.let_go if each.trigger in triggers],
        dead_letters=[each for each in explanation.dead_letters if each.trigger in (None, *triggers)],
        unmatched=f"it is for the trigger {', '.join(others)}" if others and not matched else explanation.unmatched,
    )


def _print(number: int, explanation: Explanation) -> None:
    say(f"{number:>4}  ", (f"{explanation.source}/{explanation.name}", "bold"), f"  {explanation.event}")
    for label, style, text in _remarks(explanation):
        say("        ", (f"{label:<9}", style), text)


def _remarks(explanation: Explanation) -> Iterator[tuple[str, str, str]]:
    if explanation.unmatched is not None:
        yield "ignored", "dim", explanation.unmatched
    for trigger, dependencies in explanation.matched.items():
        yield "matched", "", f"{trigger}: {', '.join(dependencies)}"
    for dependency, reason in explanation.filtered.items():
        yield "filtered", "yellow", f"{dependency}: {reason}"
    for buried in explanation.dead_letters:
        yield "dead", "red", f"{buried.reason}: {buried.detail}"
    for gone in explanation.let_go:
        label, why = _LET_GO[gone.reason]
        yield label, "yellow", f"{_slot(gone)}: {gone.event} for {gone.dependency} ({why})"
    for firing in explanation.fired:
        yield "fired", "green", f"{_slot(firing)}: {_pairs(firing.events)}, action {firing.action}"
    for waiting in explanation.waiting:
        missing = alternatives(waiting.missing)
        yield (
            "holds",
            "cyan",
            f"{_slot(waiting)}: {_pairs(waiting.held) or 'nothing'}; not fired, it waits for {missing}",
        )


def _slot(of: LetGo | Fired | Waiting) -> str:
    return f"{of.trigger} [{of.key}]" if of.key else of.trigger


def _pairs(events: Ids) -> str:
    return " ".join(
        f"{dependency}={event if isinstance(event, str) else ','.join(event)}" for dependency, event in events.items()
    )


def _row(waiting: Waiting, *, keyed: bool) -> list[str]:
    key = [waiting.key or "-"] if keyed else []
    return [waiting.trigger, *key, waiting.condition, _pairs(waiting.held) or "-", alternatives(waiting.missing)]
