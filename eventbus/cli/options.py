"""Options that several commands share, so that they are spelt and explained the same everywhere."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape


class Output(StrEnum):
    """How results are printed."""

    TEXT = "text"
    JSON = "json"


class View(StrEnum):
    """Which records to look at."""

    EVENTS = "events"
    TRIGGERS = "triggers"
    ACTIONS = "actions"
    INVOCATIONS = "invocations"
    DLQ = "dlq"


BootstrapServers = Annotated[
    str | None,
    typer.Option(
        envvar="KAFKA_BOOTSTRAP_SERVERS",
        metavar="HOST:PORT,…",
        help="The Kafka brokers.",
        show_default="the embedded broker that runs",
    ),
]


def _take_names(context: typer.Context, bus_file: Path | None) -> Path | None:
    """The names of the bus are the defaults of --namespace and --bus."""
    if bus_file is not None:
        from sensors.spec.busloader import load_event_bus

        name = load_event_bus(bus_file).bus_name
        context.default_map = {**(context.default_map or {}), "namespace": name.namespace, "bus": name.bus}
    return bus_file


BusFile = Annotated[
    Path | None,
    typer.Option(
        envvar="EVENTBUS_BUS_FILE",
        metavar="FILE",
        help="An EventBus manifest: how to reach Kafka.",
        show_default="the environment (EVENTBUS_KAFKA_…)",
        is_eager=True,
        callback=_take_names,
    ),
]
Namespace = Annotated[
    str, typer.Option(envvar="EVENTBUS_NAMESPACE", help="The namespace, where a manifest does not name one.")
]
BusOption = Annotated[
    str, typer.Option("--bus", envvar="EVENTBUS_BUS", help="The event bus, where a manifest does not name one.")
]
HealthPort = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=65535,
        help="Serve /healthz, /readyz and /metrics on this port of all interfaces; 0 takes a free one.",
        show_default="no server",
    ),
]
OutputOption = Annotated[Output, typer.Option("--output", "-o", help="`json` is for programs.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Log what happens inside.")]
Manifests = Annotated[
    list[Path],
    typer.Argument(metavar="FILE…", help="Manifests, or directories to search for *.yaml and *.yml files."),
]
Texts = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILE…", help="Manifests, directories to search for *.yaml and *.yml files, or `-`: standard input."
    ),
]
SensorReference = Annotated[str, typer.Argument(metavar="SENSOR", help="A sensor's manifest or name.")]
Manifest = Annotated[Path, typer.Argument(metavar="SENSOR.yaml", help="A file with one Sensor.")]


Since = Annotated[
    str | None,
    typer.Option(
        metavar="AGO|TIME",
        help="From then on: 90m ago, or 2026-03-01T14:30:00Z.",
        show_default="the oldest record",
    ),
]
Until = Annotated[str | None, typer.Option(metavar="AGO|TIME", help="Only what was before then.", show_default="now")]
ArchiveOption = Annotated[
    str | None,
    typer.Option("--archive", metavar="DIR", help="Read from this archive what Kafka has no more."),
]
Master = Annotated[
    str | None,
    typer.Option(help="Where Spark runs, as `spark-submit` has it.", show_default="all cores of this machine"),
]


def examples(*lines: str) -> str:
    """The end of a command's help: one example per line."""
    return "\n\n".join(["Examples:", *(escape(f"$ {line}") for line in lines)])
