"""`eventbus state`: what a sensor holds right now, read from its topics without disturbing it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

from eventbus.cli.explain import alternatives
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
from eventbus.moments import duration, when

if TYPE_CHECKING:
    from sensors.evidence import TriggerState

_PATIENCE_SECONDS = 15.0
_COLUMNS = ["trigger", "condition", "holds", "event", "since", "age", "waits for"]
_MAX_KEYS = 50
"""So many correlation keys of a trigger are shown; JSON has all of them."""


def state(
    sensor: Manifest,
    *,
    bootstrap_servers: BootstrapServers = None,
    bus_file: BusFile = None,
    namespace: Namespace = "default",
    bus: BusOption = "default",
    output: OutputOption = Output.TEXT,
    verbose: Verbose = False,
) -> None:
    """Show which events each trigger holds, since when, and what it waits for, as of the last commit."""
    from functools import partial

    from eventbus.cli.connection import connect, existing_topology, insist
    from eventbus.cli.manifests import load_sensor
    from eventbus.clock import Deadline, SystemClock
    from eventbus.names import BusName
    from sensors.inspection import held_state

    loaded = load_sensor(sensor, BusName(namespace, bus))
    plan = loaded.sensor.blueprint(loaded.name.bus).plan
    clock = SystemClock()
    with connect(bootstrap_servers, bus_file, namespace, bus, verbose=verbose) as home:
        topology = existing_topology(home.cluster, loaded.name)
        look = partial(held_state, home.cluster, plan, topology, clock)
        triggers = insist(look, Deadline(clock, _PATIENCE_SECONDS))
    now = clock.now_ms()
    if output is Output.JSON:
        say_json({"sensor": str(loaded.name), "now": now, "triggers": triggers})
    elif triggers:
        _print(triggers, now)
    else:
        say("every trigger of this sensor fires on a single event: nothing is ever held")


def _print(triggers: Sequence[TriggerState], now: int) -> None:
    keyed = any(state.key for state in triggers)
    rows = []
    for trigger, states in groupby(triggers, attrgetter("trigger")):
        slots = list(states)
        for state in slots[:_MAX_KEYS]:
            rows += [row if keyed else [row[0], *row[2:]] for row in _rows(state, now)]
        if len(slots) > _MAX_KEYS:
            rows.append([trigger, f"… and {len(slots) - _MAX_KEYS:,} more keys", *[""] * 6])
    print_table([_COLUMNS[0], *(["key"] if keyed else []), *_COLUMNS[1:]], rows)


def _rows(state: TriggerState, now: int) -> Iterator[list[str]]:
    waits_for = alternatives(state.missing)
    if not state.held:
        yield [state.trigger, "-", state.condition, "-", "-", "-", "-", waits_for]
    for number, held in enumerate(state.held):
        about = [state.trigger, state.key or "-", state.condition] if number == 0 else ["", "", ""]
        event = f"{held.source} {held.id}"
        times = [when(held.since), duration(now - held.since)]
        yield [*about, held.dependency, event, *times, waits_for if number == 0 else ""]
