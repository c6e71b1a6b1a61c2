"""`eventbus dlq`: look at what could not be used, and give it another chance."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from eventbus.cli.options import (
    BootstrapServers,
    BusFile,
    BusOption,
    Namespace,
    Output,
    OutputOption,
    Verbose,
    examples,
)
from eventbus.cli.printing import Styled, one_line, print_table, say, say_json, warn
from eventbus.moments import when

if TYPE_CHECKING:
    from eventbus.ports import Clock, Cluster
    from sensors.redrive import Box, Letter, Outcome, Selection

_NOT_ALL = 1
_COLUMNS = ["place", "time", "reason", "trigger", "from", "attempts", "redriven", "detail"]

app = typer.Typer(name="dlq", no_args_is_help=True, help="Look at dead letters, and drive them back.")

Reason = Annotated[str | None, typer.Option(help="Only those with this reason, as `dlq list` shows it.")]
Trigger = Annotated[str | None, typer.Option(help="Only those of this trigger.")]
Whose = Annotated[
    str | None,
    typer.Argument(
        metavar="[SENSOR]", help="A sensor's manifest or name; without one, those of the bus's event sources."
    ),
]


@app.command(
    "list",
    epilog=examples(
        "eventbus dlq list orders.yaml",
        "eventbus dlq list orders --reason action-failed --output json",
        "eventbus dlq list --reason too-large",
    ),
)
def list_(
    sensor: Whose = None,
    *,
    reason: Reason = None,
    trigger: Trigger = None,
    all_: Annotated[bool, typer.Option("--all", help="Also those that were driven back already.")] = False,
    bootstrap_servers: BootstrapServers = None,
    bus_file: BusFile = None,
    namespace: Namespace = "default",
    bus: BusOption = "default",
    output: OutputOption = Output.TEXT,
    verbose: Verbose = False,
) -> None:
    """List dead letters: why, from where, and what it was about."""
    from eventbus.cli.connection import connect
    from eventbus.clock import SystemClock
    from sensors.redrive import Selection, read_letters

    box = _box(sensor, namespace, bus)
    selection = Selection(reason=reason, trigger=trigger, redriven_too=all_)
    with connect(bootstrap_servers, bus_file, namespace, bus, verbose=verbose) as home:
        letters = read_letters(home.cluster, box, selection, SystemClock())
        if output is Output.JSON:
            for letter in letters:
                say_json(_facts(letter))
        else:
            _print_letters(letters)


@app.command(
    epilog=examples(
        "eventbus dlq redrive orders.yaml --offset 0:17 --offset 2:4",
        "eventbus dlq redrive orders --reason action-failed --dry-run",
        "eventbus dlq redrive orders --all",
    ),
)
def redrive(
    sensor: Whose = None,
    *,
    offset: Annotated[
        list[str] | None, typer.Option(metavar="PARTITION:OFFSET", help="This one, as `dlq list` shows its place.")
    ] = None,
    reason: Reason = None,
    trigger: Trigger = None,
    all_: Annotated[bool, typer.Option("--all", help="All that were not driven back yet.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell what would be done.")] = False,
    bootstrap_servers: BootstrapServers = None,
    bus_file: BusFile = None,
    namespace: Namespace = "default",
    bus: BusOption = "default",
    output: OutputOption = Output.TEXT,
    verbose: Verbose = False,
) -> None:
    """Write dead letters back to where they came from, once each. Exit code 1 if one of them could not be."""
    from eventbus.cli.connection import connect
    from eventbus.clock import SystemClock
    from sensors.redrive import redrive as drive_back

    selection = _selection(offset or [], reason, trigger, all_=all_)
    box = _box(sensor, namespace, bus)
    counts = {True: 0, False: 0}
    found = set()
    with connect(bootstrap_servers, bus_file, namespace, bus, verbose=verbose) as home:
        work = _rehearse if dry_run else drive_back
        for outcome in work(home.cluster, box, selection, SystemClock()):
            found.add(outcome.letter.place)
            counts[outcome.refused is None] += 1
            _print_outcome(outcome, output, dry_run=dry_run)
    missing = sorted(selection.places - found)
    for partition, number in missing:
        warn(f"there is no dead letter at {partition}:{number}")
    if output is Output.TEXT:
        say(f"{counts[True]} {'would be ' if dry_run else ''}driven back, {counts[False] + len(missing)} not")
    if counts[False] or missing:
        raise typer.Exit(_NOT_ALL)


# --- choosing -------------------------------------------------------------------------------------------------------


def _box(sensor: str | None, namespace: str, bus: str) -> Box:
    from eventbus.cli.manifests import resolve_name
    from eventbus.names import BusName
    from sensors.redrive import Box

    home = BusName(namespace, bus)
    return Box.of_sources(home) if sensor is None else Box.of_sensor(resolve_name(sensor, home))


def _selection(offsets: list[str], reason: str | None, trigger: str | None, *, all_: bool) -> Selection:
    from eventbus.errors import ConfigError
    from sensors.redrive import Selection

    filters = reason is not None or trigger is not None
    if not offsets and not filters and not all_:
        raise ConfigError("say which: --offset, --reason, --trigger or --all")
    if bool(offsets) + filters + all_ > 1:
        raise ConfigError("--offset, --all, and --reason with --trigger exclude each other")
    return Selection(places=frozenset(map(_place, offsets)), reason=reason, trigger=trigger)


def _place(text: str) -> tuple[int, int]:
    from eventbus.errors import ConfigError

    partition, _, offset = text.partition(":")
    if not (partition.isdecimal() and offset.isdecimal()):
        raise ConfigError(f"--offset {text}: write it as PARTITION:OFFSET, for instance 0:17")
    return int(partition), int(offset)


def _rehearse(cluster: Cluster, box: Box, selection: Selection, clock: Clock) -> Iterator[Outcome]:
    from sensors.redrive import Outcome, read_letters, refusal

    for letter in read_letters(cluster, box, selection, clock):
        yield Outcome(letter, refusal(box, letter))


# --- printing -------------------------------------------------------------------------------------------------------


def _print_letters(letters: Iterable[Letter]) -> None:
    rows = [_row(letter) for letter in letters]
    if rows:
        print_table(_COLUMNS, rows)
    else:
        say("no dead letters")


def _row(letter: Letter) -> list[str]:
    from eventbus.cli.records import origin_of

    record, fact = letter.record, letter.fact
    redriven = "-" if letter.redriven_at is None else when(letter.redriven_at)
    if fact is None:
        return [_shown(letter), when(record.timestamp), "unreadable", "-", "-", "-", redriven, letter.problem or ""]
    origin = origin_of(fact)
    attempts = "-" if fact.attempts is None else str(fact.attempts)
    time = when(record.timestamp)
    return [_shown(letter), time, fact.reason, fact.trigger or "-", origin, attempts, redriven, fact.detail]


def _print_outcome(outcome: Outcome, output: Output, *, dry_run: bool) -> None:
    fact, refused = outcome.letter.fact, outcome.refused
    if output is Output.JSON:
        done = refused is None and not dry_run
        say_json(_facts(outcome.letter) | {"done": done, "refused": refused})
    elif fact is not None and refused is None:
        arrow: Styled = (" → ", "green")
        say(_shown(outcome.letter), arrow, f"{fact.topic}[{fact.partition}]  {fact.reason}  {fact.action or ''}")
    else:
        warn(f"{_shown(outcome.letter)} stays: {one_line(refused or '')}")


def _shown(letter: Letter) -> str:
    return "{}:{}".format(*letter.place)


def _facts(letter: Letter) -> dict[str, object]:
    partition, offset = letter.place
    return {
        "partition": partition,
        "offset": offset,
        "timestamp": letter.record.timestamp,
        "redriven_at": letter.redriven_at,
        "problem": letter.problem,
        "dead_letter": letter.fact,
    }
