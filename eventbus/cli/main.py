"""The command line: which commands there are, and how errors are told."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Annotated

import typer

from eventbus.cli import broker, dlq
from eventbus.cli.acls import acls
from eventbus.cli.archive import archive
from eventbus.cli.audit import audit
from eventbus.cli.backtest import backtest
from eventbus.cli.cluster import controller, crds, rbac
from eventbus.cli.control import flush, pause, resume
from eventbus.cli.convert import convert
from eventbus.cli.demo import demo
from eventbus.cli.explain import explain
from eventbus.cli.graph import graph
from eventbus.cli.options import examples
from eventbus.cli.printing import complain, say
from eventbus.cli.replay import replay
from eventbus.cli.run import run
from eventbus.cli.scenarios import run_scenarios
from eventbus.cli.schema import schema
from eventbus.cli.send import send
from eventbus.cli.state import state
from eventbus.cli.tail import tail
from eventbus.cli.validate import validate
from eventbus.errors import EventBusError

_DEBUG = "EVENTBUS_DEBUG"

app = typer.Typer(
    name="eventbus",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Events become actions, on Kafka: none lost, none repeated.",
    epilog=examples("eventbus demo", "eventbus validate orders.yaml", "eventbus run orders.yaml"),
)

app.command(
    epilog=examples("eventbus validate orders.yaml", "eventbus validate manifests/ --strict --output json"),
)(validate)
app.command(epilog=examples("eventbus convert sensor.yaml > ours.yaml", "eventbus convert manifests/ --write"))(convert)
app.command(
    epilog=examples("eventbus schema > sensor.schema.json", "eventbus schema EventSource > source.schema.json")
)(schema)
app.command(epilog=examples("eventbus crds | kubectl apply -f -"))(crds)
app.command(epilog=examples("eventbus rbac orders.yaml | kubectl apply -f -"))(rbac)
app.command(epilog=examples("eventbus controller --image eventbus:0.1.0 --webhook-port 8443"))(controller)
app.command(
    epilog=examples(
        "eventbus run orders.yaml",
        "eventbus run manifests/ --health-port 8080 --log-format json --drain-seconds 60",
    ),
)(run)
app.command(
    epilog=examples(
        """eventbus send --source shop --name order --data '{"id": 17}'""",
        "eventbus send --source shop --name order --data @order.json --key customer-3",
        "eventbus send --file events.jsonl --rate 100",
    ),
)(send)
app.command(
    epilog=examples(
        "eventbus tail events",
        "eventbus tail actions --sensor orders --from-beginning",
        "eventbus tail dlq --sensor orders.yaml --no-follow --output json",
    ),
)(tail)
app.command(
    epilog=examples(
        "eventbus explain orders.yaml --trigger ship",
        "eventbus explain orders.yaml --key order-17 --since 24h",
        "eventbus explain orders.yaml --events events.jsonl --trigger ship",
    ),
)(explain)
app.command("test", epilog=examples("eventbus test scenarios/", "eventbus test scenarios/refunds --output json"))(
    run_scenarios
)
app.command(epilog=examples("eventbus graph orders.yaml", "eventbus graph orders.yaml --format svg > orders.svg"))(
    graph
)
app.command(epilog=examples("eventbus state orders.yaml", "eventbus state orders.yaml --output json"))(state)
app.command(epilog=examples("eventbus pause orders.yaml", "eventbus pause orders ship"))(pause)
app.command(epilog=examples("eventbus resume orders.yaml", "eventbus resume orders ship"))(resume)
app.command(
    epilog=examples(
        "eventbus flush orders.yaml ship --drop",
        "eventbus flush orders.yaml ship order-17 --fire --yes",
    ),
)(flush)
app.add_typer(dlq.app)
app.command(
    epilog=examples(
        "eventbus replay orders.yaml --since 24h --dry-run",
        "eventbus replay orders.yaml --since 2026-03-01T14:30:00Z --until 2026-03-01T15:00:00Z",
    ),
)(replay)
app.command(
    epilog=examples(
        "eventbus archive /var/archive orders.yaml",
        "eventbus archive /var/archive orders refunds --follow --every 10m",
    ),
)(archive)
app.command(
    epilog=examples(
        "eventbus audit orders.yaml",
        "eventbus audit orders.yaml --since 24h --report audit.html",
        "eventbus audit orders.yaml --trigger ship --archive /var/lib/eventbus/archive --output json",
    ),
)(audit)
app.command(
    epilog=examples(
        "eventbus backtest orders.yaml --since 168h",
        "eventbus backtest orders.yaml --since 168h --against deployed.yaml --fail-on-change",
        "eventbus backtest orders.yaml --from triggers --since 2026-03-01T14:30:00Z --export expected.jsonl",
    ),
)(backtest)
app.command(
    epilog=examples(
        "eventbus acls orders.yaml",
        "eventbus acls manifests/ --part send --principal User:shop --output commands",
    ),
)(acls)
app.command(epilog=examples("eventbus demo", "eventbus demo --events 2000 --seconds 20"))(demo)
app.add_typer(broker.app)


def main(arguments: Sequence[str] | None = None) -> None:
    """The entry point: whatever goes wrong is told in one message; where in the program, only --debug tells."""
    try:
        app(arguments, prog_name="eventbus")
    except EventBusError as error:
        if os.environ.get(_DEBUG):
            raise
        complain(str(error))
        raise SystemExit(error.exit_code) from None
    except Exception as error:
        if os.environ.get(_DEBUG):
            raise
        complain(f"a bug in this program: {type(error).__name__}: {error}. Run it with --debug and report what it says")
        raise SystemExit(1) from None


def _show_version(wanted: bool) -> None:
    from importlib.metadata import version

    if wanted:
        say(f"eventbus {version('kafka-eventbus')}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[  # noqa: ARG001 - its callback does it all
        bool, typer.Option("--version", help="Print the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", envvar=_DEBUG, help="Show where errors come from.")] = False,
) -> None:
    if debug:
        os.environ[_DEBUG] = "1"  # for processes that a command starts, too
