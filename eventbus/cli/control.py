"""`eventbus pause`, `resume` and `flush`: what an operator may want of a running sensor."""

from __future__ import annotations

import time
from functools import partial
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
    SensorReference,
    Verbose,
)
from eventbus.cli.printing import say, say_json, warn

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from eventbus.names import BusName, SensorName
    from sensors.evidence import TriggerState

_PATIENCE_SECONDS = 15.0
_POLL_SECONDS = 0.3

TriggerName = Annotated[str | None, typer.Argument(metavar="[TRIGGER]", help="All triggers where none is named.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]


def pause(
    sensor: SensorReference,
    trigger: TriggerName = None,
    *,
    bootstrap_servers: BootstrapServers = None,
    bus_file: BusFile = None,
    namespace: Namespace = "default",
    bus: BusOption = "default",
    verbose: Verbose = False,
) -> None:
    """Stop invoking actions, of one trigger or all, within a second or two. Nothing is lost: `resume` invokes them.

    Events are matched, held and joined as before. Actions wait in the dead-letter topic, as `paused`. What was begun or
    taken is finished.
    """
    from eventbus.cli.connection import connect, existing_topology
    from eventbus.clock import SystemClock
    from eventbus.names import BusName
    from sensors import control
    from sensors.pauses import ALL

    name = _named(sensor, BusName(namespace, bus), trigger)
    with connect(bootstrap_servers, bus_file, namespace, bus, verbose=verbose) as home:
        existing_topology(home.cluster, name)
        control.pause(home.cluster, name, trigger or ALL, SystemClock())
    say(f"paused {trigger or 'all triggers'} of {name}")


def resume(
    sensor: SensorReference,
    trigger: TriggerName = None,
    *,
    bootstrap_servers: BootstrapServers = None,
    bus_file: BusFile = None,
    namespace: Namespace = "default",
    bus: BusOption = "default",
    verbose: Verbose = False,
) -> None:
    """Invoke actions again, those first that waited meanwhile.

    A pause of all triggers is ended without naming one; a trigger that was paused by name is resumed by name.
    """
    from eventbus.cli.connection import connect, existing_topology
    from eventbus.clock import SystemClock
    from eventbus.names import BusName
    from sensors import control
    from sensors.pauses import ALL

    name = _named(sensor, BusName(namespace, bus), trigger)
    driven = 0
    with connect(bootstrap_servers, bus_file, namespace, bus, verbose=verbose) as home:
        existing_topology(home.cluster, name)
        for outcome in control.resume(home.cluster, name, trigger or ALL, SystemClock()):
            driven += outcome.refused is None
            if outcome.refused is not None:
                warn("dead letter {}:{} stays: {}".format(*outcome.letter.place, outcome.refused))
        still = control.paused_triggers(home.cluster, name, SystemClock())
    say(f"resumed {trigger or 'all triggers'} of {name}; {driven} actions had waited")
    if still:
        others = ", ".join(each or "all triggers (resume without a name)" for each in sorted(still))
        say(f"still paused: {others}")


def flush(
    sensor: Manifest,
    trigger: Annotated[str, typer.Argument(metavar="TRIGGER", help="Whose held events.")],
    key: Annotated[str | None, typer.Argument(metavar="[KEY]", help="Of this correlation key only.")] = None,
    *,
    fire: Annotated[
        bool | None, typer.Option("--fire/--drop", help="Fire with what is held, or put it into the dead letters.")
    ] = None,
    yes: Yes = False,
    bootstrap_servers: BootstrapServers = None,
    bus_file: BusFile = None,
    namespace: Namespace = "default",
    bus: BusOption = "default",
    output: OutputOption = Output.TEXT,
    verbose: Verbose = False,
) -> None:
    """Let a trigger fire with the events that it holds, complete or not; or drop them, to the dead letters.

    Concerns what is held now. Events that were dropped can be driven back with `dlq redrive --reason flushed`.
    """
    from eventbus.cli.connection import connect, existing_topology, insist
    from eventbus.cli.manifests import load_sensor
    from eventbus.clock import Deadline, SystemClock
    from eventbus.errors import ConfigError
    from eventbus.names import BusName
    from sensors import control
    from sensors.inspection import held_state

    if fire is None:
        raise ConfigError("say what to do with the events: --fire or --drop")
    loaded = load_sensor(sensor, BusName(namespace, bus))
    _check(trigger, [each.name for each in loaded.manifest.spec.triggers])
    plan = loaded.sensor.blueprint(loaded.name.bus).plan
    clock = SystemClock()
    with connect(bootstrap_servers, bus_file, namespace, bus, verbose=verbose) as home:
        topology = existing_topology(home.cluster, loaded.name)
        look = partial(held_state, home.cluster, plan, topology, clock)
        held = _chosen(insist(look, Deadline(clock, _PATIENCE_SECONDS)), trigger, key)
        if held and not yes:
            events = sum(len(state.held) for state in held)
            what = "fire with" if fire else "drop"
            typer.confirm(f"{what} {events} events in {len(held)} slots of {trigger}?", abort=True)
        control.flush(home.cluster, loaded.name, topology, trigger, [state.key for state in held], fire=fire)
        done = not held or _is_gone(look, held, trigger)
    if output is Output.JSON:
        say_json({"sensor": str(loaded.name), "trigger": trigger, "fire": fire, "slots": held, "done": done})
    elif not held:
        say(f"{trigger} holds nothing{f' for {key}' if key else ''}")
    elif done:
        say(f"{'fired with' if fire else 'dropped'} what {trigger} held in {len(held)} slots")
    else:
        say("written, but no replica has come to it yet: it is done when the sensor runs and has caught up")


def _named(sensor: str, default: BusName, trigger: str | None) -> SensorName:
    """A sensor that is given by its manifest or by its name; only a manifest tells which triggers it has."""
    from pathlib import Path

    from eventbus.cli.manifests import load_sensor, resolve_name

    name = resolve_name(sensor, default)
    if trigger is not None and Path(sensor).is_file():
        _check(trigger, [each.name for each in load_sensor(Path(sensor), default).manifest.spec.triggers])
    return name


def _check(trigger: str, names: Sequence[str]) -> None:
    from eventbus.errors import ConfigError
    from sensors.spec.suggestions import suggest

    if trigger not in names:
        raise ConfigError(f"the sensor has no trigger `{trigger}`; {suggest(trigger, names)}")


def _chosen(states: Sequence[TriggerState], trigger: str, key: str | None) -> list[TriggerState]:
    return [each for each in states if each.trigger == trigger and each.held and key in (None, each.key)]


def _is_gone(look: Callable[[], Sequence[TriggerState]], held: Sequence[TriggerState], trigger: str) -> bool:
    """Waits a while until none of these events is held any more."""
    from eventbus.cli.connection import insist
    from eventbus.clock import Deadline, SystemClock

    deadline = Deadline(SystemClock(), _PATIENCE_SECONDS)
    before = {(event.partition, event.offset) for state in held for event in state.held}
    while not deadline.over():
        now = _chosen(insist(look, deadline), trigger, None)
        if before.isdisjoint((event.partition, event.offset) for state in now for event in state.held):
            return True
        time.sleep(_POLL_SECONDS)
    return False
