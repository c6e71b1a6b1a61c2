"""`eventbus broker`: a real Apache Kafka on this machine, for development and tests."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from eventbus.broker.service import Options
    from eventbus.broker.state import Instance

app = typer.Typer(
    name="broker",
    no_args_is_help=True,
    help=(
        "A real Apache Kafka on this machine, for development and tests.\n\n"
        "It needs Java 17 or newer and fetches Kafka itself, once; after that it works offline. Every other command "
        "uses the broker that runs here unless it is given another one with --bootstrap-servers or "
        "KAFKA_BOOTSTRAP_SERVERS.\n\n"
        "Jars are kept in the user's cache directory (EVENTBUS_CACHE_DIR), data in the user's data directory "
        "(EVENTBUS_DATA_DIR). EVENTBUS_JAVA names a Java, EVENTBUS_MAVEN_REPOSITORY a mirror to fetch Kafka from."
    ),
)


class Output(StrEnum):
    """How to print."""

    TABLE = "table"
    JSON = "json"


Nodes = Annotated[int, typer.Option(help="How many nodes: 1, or 3 to see replication and the loss of a node.")]
Data = Annotated[Path | None, typer.Option(help="Directory for the data.", show_default="in the user's data directory")]
Port = Annotated[
    int | None,
    typer.Option(help="Port of the first node; the other nodes' follow.", show_default="9092, or a free one"),
]
Ephemeral = Annotated[
    bool, typer.Option("--ephemeral", help="Keep the data in a temporary directory, only while it runs.")
]


@app.command(
    epilog="Examples:  eventbus broker run --ephemeral   |   eventbus broker run --nodes 3 --port 19092",
)
def run(nodes: Nodes = 1, data: Data = None, port: Port = None, ephemeral: Ephemeral = False) -> None:
    """Run a broker in the foreground until Ctrl-C or SIGTERM."""
    from eventbus.broker.service import serve

    serve(_options(nodes, data, port, ephemeral), ready=_tell_ready, warn=_warn)


@app.command(epilog="Examples:  eventbus broker start   |   eventbus broker start --nodes 3 --data ./kafka")
def start(nodes: Nodes = 1, data: Data = None, port: Port = None, ephemeral: Ephemeral = False) -> None:
    """Start a broker in the background and return when it answers. One that already runs is left as it is."""
    from eventbus.broker import daemon

    _tell_ready(daemon.start(_options(nodes, data, port, ephemeral), _warn))


@app.command(epilog="Example:  eventbus broker stop")
def stop() -> None:
    """Stop the broker that runs, whoever started it. Its data stays, unless it is ephemeral."""
    from eventbus.broker import BrokerError, daemon, state

    instance = state.running_instance(_warn)
    if not instance and state.is_claimed():
        raise BrokerError(state.BUSY)
    if not instance:
        _say("no broker runs")
        return
    daemon.stop(instance)
    _say(f"stopped the broker at {instance.bootstrap_servers}")


@app.command(epilog="Examples:  eventbus broker status   |   eventbus broker status --output json")
def status(output: Annotated[Output, typer.Option(help="How to print.")] = Output.TABLE) -> None:
    """Show the broker that runs: address, nodes, processes, memory, data and logs. Exit code 1 if none runs."""
    from eventbus.broker import state

    instance = state.running_instance(_warn)
    if output is Output.JSON:
        Console().print_json(data=_as_json(instance))
    elif instance:
        _print_status(instance)
    else:
        _say("no broker runs; start one with `eventbus broker start`")
    if not instance:
        raise typer.Exit(1)


def _options(nodes: int, data: Path | None, port: int | None, ephemeral: bool) -> Options:
    from eventbus.broker.service import Options

    return Options(nodes=nodes, data=data.expanduser().absolute() if data else None, port=port, ephemeral=ephemeral)


def _tell_ready(instance: Instance) -> None:
    _say(f"Kafka is ready at {instance.bootstrap_servers}")
    _say(f"data: {instance.data}{', removed at the end' if instance.ephemeral else ''}")
    _say(f"logs: {', '.join(node.log for node in instance.nodes)}")


def _say(line: str) -> None:
    Console().print(line, highlight=False, markup=False, soft_wrap=True)


def _warn(message: str) -> None:
    Console(stderr=True).print(f"warning: {message}", highlight=False, markup=False, soft_wrap=True)


def _as_json(instance: Instance | None) -> dict[str, object]:
    from msgspec import to_builtins

    if not instance:
        return {"running": False}
    status = to_builtins(instance)
    for node in status["nodes"]:
        node["memory_bytes"] = _memory(node["pid"])
    return {"running": True, **status}


def _print_status(instance: Instance) -> None:
    _say(f"Kafka at {instance.bootstrap_servers}, process {instance.pid}, since {instance.started}")
    _say(f"data: {instance.data}{', removed at the end' if instance.ephemeral else ''}")
    table = Table("node", "port", "process", "memory", "log")
    for node in instance.nodes:
        memory = _memory(node.pid)
        table.add_row(
            str(node.number),
            str(node.port),
            str(node.pid or "has ended"),
            f"{memory // 2**20} MB" if memory else "-",
            Text(node.log, overflow="fold"),
        )
    Console().print(table)


def _memory(pid: int | None) -> int | None:
    from eventbus.broker.memory import resident_bytes

    return resident_bytes(pid) if pid else None
