"""`eventbus tail`: watch any topic of a bus or a sensor, decoded."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from eventbus.cli.options import BootstrapServers, BusFile, BusOption, Namespace, Output, OutputOption, Verbose, View
from eventbus.cli.printing import Styled, console, one_line, say, say_json, warn

if TYPE_CHECKING:
    from eventbus.ports import Cluster, Reader, Record

_READ_RECORDS = 500
_READ_SECONDS = 0.2
_RETRY_SECONDS = 1.0


def tail(
    view: Annotated[View, typer.Argument(help="Which records.")],
    *,
    sensor: Annotated[
        str | None,
        typer.Option(
            help="A sensor's name or manifest; for all views but `events`. `dlq` without one: of event sources.",
            show_default=False,
        ),
    ] = None,
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="Begin with the oldest record instead of the next one.")
    ] = False,
    follow: Annotated[
        bool, typer.Option(help="Wait for more records; without, show all that there are and end.")
    ] = True,
    max_: Annotated[int | None, typer.Option("--max", min=1, help="End after so many records.")] = None,
    bootstrap_servers: BootstrapServers = None,
    bus_file: BusFile = None,
    namespace: Namespace = "default",
    bus: BusOption = "default",
    output: OutputOption = Output.TEXT,
    verbose: Verbose = False,
) -> None:
    """Show records as they come, one line each: events, triggers, actions, invocations or dead letters."""
    from eventbus.cli.connection import connect
    from eventbus.cli.records import show

    topic = _topic(view, namespace, bus, sensor)
    with connect(bootstrap_servers, bus_file, namespace, bus, verbose=verbose) as home:
        reader = home.cluster.reader()
        try:
            ends = _open(home.cluster, reader, topic, from_beginning=from_beginning or not follow)
            out = console()
            for record in islice(_follow(reader) if follow else _until(reader, topic, ends), max_):
                shown = show(view, record)
                if output is Output.JSON:
                    say_json(shown.facts)
                else:
                    say(*_spaced(shown.line), to=out)
        finally:
            reader.close()


def _spaced(parts: Iterable[Styled]) -> Iterator[str | Styled]:
    for number, (text, style) in enumerate(part for part in parts if part[0]):
        if number:
            yield "  "
        yield one_line(text), style


def _topic(view: View, namespace: str, bus: str, sensor: str | None) -> str:
    from eventbus.cli.manifests import resolve_name
    from eventbus.cli.records import topic_of
    from eventbus.errors import ConfigError
    from eventbus.names import BusName

    home = BusName(namespace, bus)
    topic = topic_of(view, home, None if sensor is None else resolve_name(sensor, home))
    if topic is None:
        raise ConfigError(f"whose {view}? Name a sensor with --sensor")
    return topic


def _open(cluster: Cluster, reader: Reader, topic: str, *, from_beginning: bool) -> dict[int, int]:
    """Start to read all partitions; returns where each of them ends now."""
    from eventbus.errors import ConfigError

    info = cluster.describe([topic])[topic]
    if info is None:
        raise ConfigError(f"the topic `{topic}` does not exist: nothing has been sent or run here under that name")
    ends = {}
    for partition in range(info.partitions):
        first, ends[partition] = reader.offsets(topic, partition)
        reader.open(topic, partition, first if from_beginning else ends[partition])
    return ends


def _follow(reader: Reader) -> Iterator[Record]:
    """For ever: brokers that are lost come back."""
    from eventbus.errors import RetriableError

    while True:
        try:
            yield from reader.read(_READ_RECORDS, _READ_SECONDS)
        except RetriableError as error:
            warn(f"{error} Trying again.")
            time.sleep(_RETRY_SECONDS)


def _until(reader: Reader, topic: str, ends: dict[int, int]) -> Iterator[Record]:
    """What was there at the start."""
    while any(reader.position(topic, partition) < end for partition, end in ends.items()):
        for record in reader.read(_READ_RECORDS, _READ_SECONDS):
            if record.offset < ends[record.partition]:
                yield record
