"""`eventbus backtest`: what would this sensor have done?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import ExitStack, closing
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from eventbus.cli.options import (
    ArchiveOption,
    BootstrapServers,
    BusFile,
    BusOption,
    Manifest,
    Master,
    Namespace,
    Output,
    OutputOption,
    Since,
    Until,
    Verbose,
)
from eventbus.cli.printing import counted, print_table, say, say_json, warn

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from eventbus.bus import Bus
    from eventbus.names import SensorName
    from eventbus.ports import Cluster
    from eventbus.topics import Topology
    from sensors.explain import Ids
    from sensors.scenarios import Firing
    from sensors.spark.backtest import PastFiring, TriggerTotals
    from sensors.spark.comparison import Comparison
    from sensors.spark.records import Missing
    from sensors.spark.report import Firings
    from sensors.spark.workers import Deputy

_CHANGED = 1
_HOURS_SHOWN = 48


class Source(StrEnum):
    """What a backtest reads."""

    EVENTS = "events"
    TRIGGERS = "triggers"


_ORDER = {
    Source.EVENTS: "partitions interleave freely: events of different partitions are taken in the order of their "
    "append time",
    Source.TRIGGERS: "as the sensor has put them into its trigger topic",
}


class _Question(msgspec.Struct, frozen=True):
    """What is asked for."""

    source: Source
    topic: str
    since: int | None
    until: int | None
    archive: str | None
    export: Path | None


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What a backtest came to."""

    sensor: str
    source: str
    order: str
    since: int | None
    until: int | None
    offsets: int
    """How much of the topic there is of that time."""
    triggers: list[TriggerTotals]
    hours: list[Firings]
    dead_letters: dict[str, int]
    """Of events that no trigger could have used, by reason."""
    fired: int
    firings: list[PastFiring]
    """The first of them."""
    passed_over: list[str]
    """Triggers that the topic knows nothing of."""
    missing: list[Missing]
    comparison: Comparison | None


def backtest(
    sensor: Manifest,
    *,
    since: Since = None,
    until: Until = None,
    source: Annotated[
        Source,
        typer.Option("--from", help="`triggers`: what the sensor that ran has matched, in the order that it had."),
    ] = Source.EVENTS,
    against: Annotated[
        Path | None, typer.Option(metavar="OLD.yaml", help="Tell what this version would have done differently.")
    ] = None,
    fail_on_change: Annotated[
        bool, typer.Option("--fail-on-change", help="With --against: exit code 1 if anything differs.")
    ] = False,
    export: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write all firings there, as `expected.jsonl` of `test`.")
    ] = None,
    archive: ArchiveOption = None,
    master: Master = None,
    bootstrap_servers: BootstrapServers = None,
    bus_file: BusFile = None,
    namespace: Namespace = "default",
    bus: BusOption = "default",
    output: OutputOption = Output.TEXT,
    verbose: Verbose = False,
) -> None:
    """What would this sensor have done with the events of the past? Nothing is invoked, and it need not have run.

    A backtest begins with empty hands: it does not know what the sensor held before --since.
    """
    from eventbus.cli.connection import connect
    from eventbus.cli.manifests import load_sensor
    from eventbus.cli.times import span
    from eventbus.errors import ConfigError
    from eventbus.names import BusName, Kind
    from sensors.spark.session import Progress, SparkOptions, spark_session

    if fail_on_change and against is None:
        raise ConfigError("--fail-on-change compares with an older version: name it with --against")
    if export is not None and (export.is_dir() or not export.parent.is_dir()):
        raise ConfigError(f"--export {export}: a file in a directory that exists is needed")
    times = span(since, until)
    loaded = load_sensor(sensor, BusName(namespace, bus))
    manifests = [loaded.manifest]
    if against is not None:
        manifests.append(load_sensor(against, loaded.name.bus).manifest)
    name = loaded.name
    topic = name.event_topic if source is Source.EVENTS else name.topic(Kind.TRIGGER)
    question = _Question(source, topic, *times, archive, export)
    with connect(bootstrap_servers, bus_file, name.bus.namespace, name.bus.bus, verbose=verbose) as home:
        topology = _topology(home.cluster, name, topic)
        with spark_session("eventbus-backtest", SparkOptions(master=master, verbose=verbose)) as spark:
            from sensors.spark.workers import Deputy

            new, *old = (Deputy(manifest, name.bus, topology) for manifest in manifests)
            with Progress(spark, "backtest"):
                report = _answer(spark, home, question, new, old)
    if output is Output.JSON:
        say_json(report)
    else:
        _print(report)
    if fail_on_change and report.comparison is not None and report.comparison.differs:
        raise typer.Exit(_CHANGED)


def _topology(cluster: Cluster, name: SensorName, topic: str) -> Topology:
    """As it is, or as it would be if the sensor were started. Nothing is created."""
    from eventbus.errors import ConfigError
    from eventbus.names import Kind
    from eventbus.topics import Topology

    found = cluster.describe([name.event_topic, *(name.topic(kind) for kind in Kind)])
    counts = {each: info.partitions for each, info in found.items() if info is not None}
    if topic not in counts:
        hint = "nothing was sent there" if topic == name.event_topic else f"the sensor {name} has never run here"
        raise ConfigError(f"the topic `{topic}` does not exist: {hint}")
    events = counts.get(name.event_topic, counts[topic])
    of = {kind: counts.get(name.topic(kind), events) for kind in Kind}
    return Topology(
        event_partitions=events,
        trigger_partitions=of[Kind.TRIGGER],
        action_partitions=of[Kind.ACTION],
        invocation_partitions=of[Kind.INVOCATION],
        dlq_partitions=of[Kind.DLQ],
    )


def _answer(spark: SparkSession, home: Bus, question: _Question, new: Deputy, old: list[Deputy]) -> Report:
    from sensors.spark.backtest import Backtest
    from sensors.spark.comparison import compare
    from sensors.spark.past import Past
    from sensors.spark.records import Range

    wanted = Range(question.since, question.until)
    past = Past.of(spark, home, question.topic, wanted, question.archive)
    run = Backtest.of_triggers
    if question.source is Source.EVENTS:
        run = partial(Backtest.of_events, in_order=past.in_order, beside=[new, *old])
    with ExitStack() as stack:
        tests = [stack.enter_context(closing(run(deputy, past.records))) for deputy in (new, *old)]
        totals = tests[0].totals()
        if question.export is not None:
            _write(question.export, tests[0].expected())
        triggers = tests[0].plan.triggers.values()
        return Report(
            sensor=str(tests[0].plan.name),
            source=question.source,
            order=_ORDER[question.source],
            since=question.since,
            until=question.until,
            offsets=past.offsets,
            triggers=totals.triggers,
            hours=totals.hours,
            dead_letters=totals.dead_letters,
            fired=sum(each.fired for each in totals.triggers),
            firings=tests[0].first_firings(),
            passed_over=[each.name for each in triggers if each.direct and question.source is Source.TRIGGERS],
            missing=past.missing,
            comparison=compare(tests[1], tests[0]) if old else None,
        )


def _write(file: Path, firings: Iterable[Firing]) -> None:
    """All of it or nothing: half a file would be a test that passes for the wrong reason."""
    from eventbus.errors import ConfigError

    unfinished = file.with_name(f"{file.name}.part")
    try:
        with unfinished.open("w", encoding="utf-8") as out:
            out.writelines(f"{firing}\n" for firing in firings)
        unfinished.replace(file)
    except OSError as error:
        raise ConfigError(f"--export {file}: cannot be written: {error.strerror}") from None
    finally:
        unfinished.unlink(missing_ok=True)


# --- for people -------------------------------------------------------------------------------------------------------


def _print(report: Report) -> None:
    from eventbus.moments import when

    for missing in report.missing:
        warn(f"{missing}: what they would have done is not known")
    for name in report.passed_over:
        warn(f"the trigger `{name}` has no record in the trigger topic, because one event is enough: see --from events")
    say(f"{counted(report.offsets, 'record')} of the {report.source[:-1]} topic. Order: {report.order}\n")
    print_table(
        ["trigger", "fired", "held", "let go", "dead letters"],
        [
            [each.trigger, f"{each.fired:,}", _sum(each.held), _listed(each.let_go), _listed(each.dead_letters)]
            for each in report.triggers
        ],
    )
    if report.dead_letters:
        say(f"\ndead letters of no trigger: {_listed(report.dead_letters)}")
    if report.hours:
        say()
        hours = report.hours[:_HOURS_SHOWN]
        print_table(["hour", "trigger", "fired"], [[when(h.start)[:16], h.trigger, f"{h.fired:,}"] for h in hours])
        _say_if_cut(len(hours), len(report.hours))
    if report.firings:
        say()
        print_table(["time", "trigger", "key", "events"], [_row(firing) for firing in report.firings])
        _say_if_cut(len(report.firings), report.fired)
    if report.comparison is not None:
        say()
        _print_comparison(report.comparison)


def _print_comparison(comparison: Comparison) -> None:
    from eventbus.moments import when

    print_table(
        ["trigger", "same", "added", "removed", "changed"],
        [
            [each.trigger, *(f"{number:,}" for number in (each.same, each.added, each.removed, each.changed))]
            for each in comparison.triggers
        ],
    )
    if not comparison.differs:
        say("\nboth versions would have done the same")
        return
    say()
    for sign, style, firings in (("+", "green", comparison.added), ("-", "red", comparison.removed)):
        for firing in firings:
            say((f"{sign} {'  '.join(filter(None, _row(firing)))}", style))
    for change in comparison.changed:
        same = change.before == change.after
        events = f"{_ids(change.before)}: other contents" if same else f"{_ids(change.before)} -> {_ids(change.after)}"
        say((f"~ {'  '.join(filter(None, (when(change.at), change.trigger, change.key, events)))}", "yellow"))
    shown = len(comparison.added) + len(comparison.removed) + len(comparison.changed)
    _say_if_cut(shown, sum(each.added + each.removed + each.changed for each in comparison.triggers))


def _row(firing: PastFiring) -> list[str]:
    from eventbus.moments import when

    return [when(firing.at), firing.trigger, firing.key, _ids(firing.events)]


def _ids(events: Ids) -> str:
    return " ".join(f"{name}={found if isinstance(found, str) else ','.join(found)}" for name, found in events.items())


def _sum(counts: Mapping[str, int]) -> str:
    return f"{sum(counts.values()):,}"


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {reason}" for reason, count in counts.items()) or "-"


def _say_if_cut(shown: int, total: int) -> None:
    if shown < total:
        say(f"… and {total - shown:,} more")
