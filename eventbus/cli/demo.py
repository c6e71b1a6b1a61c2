"""`eventbus demo`: events become actions on a real Kafka, a replica is killed half-way, and the log proves the rest."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from sensors.audit.verdict import Verdict
    from sensors.lab import Lab

_LINE_SECONDS = 1.0
_PAUSE = 0.02
_PATIENCE = 90.0
_SHOWN = 5

SENSOR = """\
apiVersion: argoproj.io/v1alpha1
kind: Sensor
metadata:
  name: orders
spec:
  startFrom: earliest
  dependencies:
    - {name: paid, eventSourceName: shop, eventName: paid}
    - {name: packed, eventSourceName: shop, eventName: packed}
  triggers:
    - template:
        name: ship                      # one action for every order that is paid and packed
        conditions: paid && packed
        http: {url: "URL/ship"}
      atLeastOnce: true
      retryStrategy: {steps: 5, duration: 200ms}
    - template:
        name: notify                    # one action for every event
        conditions: paid || packed
        http: {url: "URL/notify"}
"""


def demo(
    events: Annotated[int, typer.Option(help="How many events to send.", min=20)] = 600,
    seconds: Annotated[float, typer.Option(help="Over how many seconds to send them.", min=0.0)] = 8.0,
    bootstrap_servers: Annotated[
        str | None,
        typer.Option(envvar="KAFKA_BOOTSTRAP_SERVERS", help="Use this Kafka instead of starting one."),
    ] = None,
) -> None:
    """Watch events become actions on a real Kafka while a replica is killed, and see that nothing is lost."""
    from rich.console import Console

    console = Console()
    with _opened(console, bootstrap_servers) as lab:
        console.print("[bold]2.[/] Two replicas of the sensor [bold]orders[/], each a process of its own")
        for slot in (0, 1):
            lab.start_replica(slot)
        while not lab.started():
            time.sleep(_PAUSE)
        console.print(f"[bold]3.[/] {events} events in {seconds:g} seconds; half-way one replica is killed (SIGKILL)")
        with _shown(console, lab) as show:
            _send(lab, events, seconds, show)
            deadline = time.monotonic() + _PATIENCE
            expected = events + events // 2
            while (len(lab.actions()) < expected or not lab.finished()) and time.monotonic() < deadline:
                lab.check_alive()
                show()
        console.print("[bold]4.[/] Reading all topics again and comparing them with a machine that never crashes")
        verdict = lab.verdict()
    _report(console, verdict)
    if not verdict.clean:
        raise typer.Exit(1)


@contextmanager
def _opened(console: Console, bootstrap_servers: str | None) -> Iterator[Lab]:
    from eventbus.broker import EmbeddedBroker
    from eventbus.bus import Bus
    from sensors.lab import Lab, Sink

    with ExitStack() as stack:
        directory = Path(stack.enter_context(TemporaryDirectory(prefix="eventbus-demo-")))
        if bootstrap_servers is None:
            console.print("[bold]1.[/] Apache Kafka is started (the first time, its jars are fetched)")
            bootstrap_servers = stack.enter_context(EmbeddedBroker(ephemeral=True)).bootstrap_servers
        console.print(f"   Kafka answers at {bootstrap_servers}")
        sink = Sink()
        stack.callback(sink.close)
        manifest = directory / "sensor.yaml"
        manifest.write_text(SENSOR.replace("URL", sink.url))
        bus = stack.enter_context(Bus.connect(bootstrap_servers, namespace=f"demo-{time.time_ns():x}"))
        lab = Lab(bus, manifest, sink)
        stack.callback(lab.stop)
        yield lab


def _send(lab: Lab, events: int, seconds: float, show: Callable[[], None]) -> None:
    """Pairs of events in a fixed order, so that every order that is paid and packed makes one shipment."""
    from eventbus.events import Event

    begun = time.monotonic()
    for number in range(events // 2):
        while time.monotonic() < begun + seconds * 2 * number / events:
            show()
        order = f"order-{number}"
        lab.publish(
            [
                Event.new("shop", name, {"order": order}, id=f"{order}-{name}", partitionkey="shop")
                for name in ("paid", "packed")
            ]
        )
        if number == events // 4:
            lab.kill_replica(1)
            lab.start_replica(1)


@contextmanager
def _shown(console: Console, lab: Lab) -> Iterator[Callable[[], None]]:
    """A live table on a terminal; a line now and then elsewhere."""
    from rich.live import Live

    if console.is_terminal:
        with Live(_table(lab), console=console, refresh_per_second=8) as live:
            yield lambda: live.update(_table(lab))
        return
    last = time.monotonic()

    def show() -> None:
        nonlocal last
        if time.monotonic() - last < _LINE_SECONDS:
            time.sleep(_PAUSE)
            return
        last = time.monotonic()
        done = f"{len(lab.actions())} actions fired, {len(lab.sink.calls)} invocations"
        console.print(f"   {lab.published} events published, {done}")

    yield show


def _table(lab: Lab) -> Table:
    from rich.table import Table

    table = Table(title=f"{lab.published} events published", title_style="bold")
    for column in ("trigger", "condition", "holds", "waits for", "fired", "invoked"):
        table.add_column(column, justify="right" if column in ("fired", "invoked") else "left")
    held, fired = {state.trigger: state for state in lab.held()}, lab.fired()
    for name, trigger in lab.plan.triggers.items():
        state = held.get(name)
        holds = ", ".join(f"{event.dependency}: {event.id}" for event in state.held) if state else "–"
        waits = " or ".join(" and ".join(names) for names in state.missing) if state else "–"
        invoked = str(lab.sink.invoked[name])
        table.add_row(name, str(trigger.condition), holds or "nothing", waits, str(fired[name]), invoked)
    return table


def _report(console: Console, verdict: Verdict) -> None:
    from rich.table import Table

    from sensors.audit.violations import Breach

    table = Table("what", "expected", "found", title="Proof", title_style="bold")
    table.add_row("events", "", str(verdict.events))
    table.add_row("actions", str(verdict.expected), str(verdict.actions))
    for what, breach in (
        ("lost", Breach.LOST),
        ("repeated", Breach.DUPLICATED),
        ("out of order", Breach.OUT_OF_ORDER),
        ("without an explanation", Breach.UNEXPLAINED),
    ):
        found = verdict.count(breach)
        table.add_row(what, "0", f"[{'red' if found else 'green'}]{found}[/]")
    table.add_row("invocations", "", str(verdict.invoked))
    table.add_row("at most once, given up at the kill", "a few", str(len(verdict.given_up)))
    console.print(table)
    for violation in verdict.violations[:_SHOWN]:
        console.print(f"[red]{violation}[/]", highlight=False)
    console.print(
        "[green]No action was lost or repeated, and every invocation kept to its mode.[/]"
        if verdict.clean
        else "[red]A promise was broken.[/]"
    )
