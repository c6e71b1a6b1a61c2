"""`eventbus replay`: feed past events to one sensor again."""

from __future__ import annotations

import sys
from collections.abc import Iterator
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
    Verbose,
)
from eventbus.cli.printing import complain, console, print_table, say, say_json, warn

if TYPE_CHECKING:
    from eventbus.names import SensorName
    from eventbus.ports import Cluster
    from sensors.replay import Past, Rehearsal, Replay

_NOT_ALL = 1
_CTRL_C = 130


def replay(
    sensor: Manifest,
    *,
    since: Annotated[
        str, typer.Option(metavar="AGO|TIME", help="Events from then on: 90m ago, or 2026-03-01T14:30:00Z.")
    ],
    until: Annotated[
        str | None, typer.Option(metavar="AGO|TIME", help="Only those before then.", show_default="now")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only tell which events, and what these alone would fire.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    bootstrap_servers: BootstrapServers = None,
    bus_file: BusFile = None,
    namespace: Namespace = "default",
    bus: BusOption = "default",
    output: OutputOption = Output.TEXT,
    verbose: Verbose = False,
) -> None:
    """Feed past events to one sensor again: copies that all other sensors pass over are added to the event topic.

    To repeat a replay, as after an interruption, is safe only for triggers with `dedupe`: all others act again.
    """
    from eventbus.cli.connection import connect
    from eventbus.cli.manifests import load_sensor
    from eventbus.cli.times import moment
    from eventbus.clock import SystemClock
    from eventbus.errors import ConfigError
    from eventbus.names import BusName
    from sensors.reading import ranges_between
    from sensors.replay import Replay, past_events, rehearse

    clock = SystemClock()
    now = clock.now_ms()
    start = moment("--since", since, now)
    end = None if until is None else moment("--until", until, now)
    if end is not None and end <= start:
        raise ConfigError("--until must be later than --since")
    loaded = load_sensor(sensor, BusName(namespace, bus))
    plan = loaded.sensor.blueprint(loaded.name.bus).plan
    with connect(bootstrap_servers, bus_file, loaded.name.bus.namespace, loaded.name.bus.bus, verbose=verbose) as home:
        reader = home.cluster.reader()
        try:
            ranges = ranges_between(reader, home.cluster, plan.name.event_topic, start, end)
            events = partial(past_events, reader, plan, ranges, clock)
            if dry_run:
                _print_rehearsal(rehearse(plan, events(), now), output)
                return
            _refuse_if_never_run(home.cluster, plan.name)
            count = sum(1 for _ in events())
            if count and not yes:
                _ask(count, plan.name)
            _publish(Replay(home, plan.name, start), events(), count, output)
        finally:
            reader.close()


def _refuse_if_never_run(cluster: Cluster, name: SensorName) -> None:
    from eventbus.clock import SystemClock
    from eventbus.errors import ConfigError
    from eventbus.names import Stage
    from sensors.inspection import stable_commits

    commits = stable_commits(cluster, name.group(Stage.MATCH), name.event_topic, SystemClock())
    if all(committed is None for committed in commits.values()):
        raise ConfigError(
            f"the sensor {name} has never run here, and might begin behind what is replayed: start it first, or let it "
            "begin with the oldest event (`startFrom: earliest`) instead of a replay"
        )


def _ask(count: int, name: SensorName) -> None:
    from eventbus.errors import ConfigError

    if not sys.stdin.isatty():
        raise ConfigError(f"{_events(count)} would be replayed for {name}, and nobody can be asked here: say --yes")
    typer.confirm(f"Replay {_events(count)} for {name}?", abort=True, err=True)


def _publish(replay: Replay, events: Iterator[Past], count: int, output: Output) -> None:
    from rich.progress import Progress

    from eventbus.errors import LogError
    from sensors.replay import BATCH

    refused = 0
    out = console(stderr=True)
    try:
        with Progress(console=out, transient=True, disable=not out.is_terminal) as progress:
            task = progress.add_task("replaying", total=count)
            for failures in replay.run(events):
                for past, reason in failures:
                    warn(f"{past.record.partition}:{past.record.offset} (event {past.event.id}) was refused: {reason}")
                refused += len(failures)
                progress.advance(task, BATCH)
    except KeyboardInterrupt:
        _print_interrupted(replay, count)
        raise typer.Exit(_CTRL_C) from None
    except LogError as error:
        complain(str(error))
        _print_interrupted(replay, count)
        raise typer.Exit(_NOT_ALL) from None
    if output is Output.JSON:
        say_json({"replayed": replay.written, "refused": refused})
    else:
        say(f"{_events(replay.written)} replayed" + (f", {refused:,} refused" if refused else ""))
    if refused:
        raise typer.Exit(_NOT_ALL)


def _print_interrupted(replay: Replay, count: int) -> None:
    from eventbus.moments import exactly

    warn(
        f"interrupted: {replay.written:,} of {_events(count)} are replayed, perhaps some more. To go on, use "
        f"--since {exactly(replay.resume_at)}; what is repeated thereby counts once only where a trigger has `dedupe`"
    )


def _print_rehearsal(rehearsal: Rehearsal, output: Output) -> None:
    if output is Output.JSON:
        say_json(rehearsal)
        return
    if not rehearsal.events:
        say("no event of this time is one that the sensor asks for")
        return
    rows = [
        [name, f"{count:,}", f"{rehearsal.filtered.get(name, 0):,}"]
        for name, count in sorted(rehearsal.dependencies.items())
    ]
    print_table(["dependency", "events", "filtered"], rows)
    say()
    print_table(["trigger", "would fire"], [[name, f"{count:,}"] for name, count in rehearsal.fired.items()])
    say(f"\n{_events(rehearsal.events)} would be replayed; what the sensor holds already is not taken into account")


def _events(count: int) -> str:
    return f"{count:,} event{'' if count == 1 else 's'}"
