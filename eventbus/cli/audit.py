"""`eventbus audit`: was every promise kept? Spark works it all out again and compares."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

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

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from eventbus.bus import Bus
    from eventbus.cli.manifests import Loaded
    from sensors.spark.report import AuditReport

_BATCH_RECORDS = 200_000
_FEW = 100_000


def audit(
    sensor: Manifest,
    *,
    trigger: Annotated[str | None, typer.Option(help="Only this trigger.", show_default="all")] = None,
    since: Since = None,
    until: Until = None,
    archive: ArchiveOption = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on until Ctrl-C: archive what comes, to --archive, and audit it.")
    ] = False,
    every: Annotated[str, typer.Option(help="With --follow: how long to wait in between.")] = "1m",
    report: Annotated[
        Path | None, typer.Option(metavar="FILE.html", help="Write a page with pictures, to be looked at.")
    ] = None,
    parquet: Annotated[
        str | None, typer.Option(metavar="DIR", help="Write violations and figures there, for other programs.")
    ] = None,
    master: Master = None,
    memory: Annotated[str, typer.Option(help="Memory of Spark's driver.")] = "2g",
    bootstrap_servers: BootstrapServers = None,
    bus_file: BusFile = None,
    namespace: Namespace = "default",
    bus: BusOption = "default",
    output: OutputOption = Output.TEXT,
    verbose: Verbose = False,
) -> None:
    """Prove what a sensor has done, from its topics: every action as due, every invocation as its mode allows.

    Exits with 1 where a promise was broken, and where a part of the history is gone, so that nothing can be proved.
    """
    from eventbus.cli.connection import connect
    from eventbus.cli.manifests import load_sensor
    from eventbus.cli.times import span
    from eventbus.names import BusName
    from sensors.spark.session import SparkOptions, require_pyspark, spark_session

    loaded = load_sensor(sensor, BusName(namespace, bus))
    _check(loaded, trigger, archive, follow=follow)
    span(since, until)  # it is asked again in every round: `1h` ago is another time then
    require_pyspark()
    home = loaded.name.bus
    with (
        connect(bootstrap_servers, bus_file, home.namespace, home.bus, verbose=verbose) as live,
        spark_session(f"eventbus audit {loaded.name}", SparkOptions(master, memory, verbose)) as spark,
    ):
        subject = _Subject(spark, live, loaded)

        def once() -> bool:
            found = _audit(subject, span(since, until), trigger, archive)
            _write(spark, found, report, parquet)
            return _tell(found, output)

        clean = _follow(subject, archive or "", every, once) if follow else once()
    if not clean:
        raise typer.Exit(1)


def _check(loaded: Loaded, trigger: str | None, archive: str | None, *, follow: bool) -> None:
    from eventbus.errors import ConfigError

    names = [each.name for each in loaded.manifest.spec.triggers]
    if trigger is not None and trigger not in names:
        raise ConfigError(f"the sensor {loaded.name} has no trigger `{trigger}`; it has {', '.join(names)}")
    if follow and archive is None:
        raise ConfigError("--follow needs --archive DIR: what was audited once must still be there the next time")


class _Subject(NamedTuple):
    """Whose history it is, where that is, and who looks at it."""

    spark: SparkSession
    live: Bus
    loaded: Loaded


def _audit(
    subject: _Subject, times: tuple[int | None, int | None], trigger: str | None, archive: str | None
) -> AuditReport:
    from eventbus.cli.connection import existing_topology
    from sensors.spark.audit import audit as judge
    from sensors.spark.history import look_at
    from sensors.spark.records import Range
    from sensors.spark.session import Progress, interpret
    from sensors.spark.workers import Deputy

    spark, live, loaded = subject
    deputy = Deputy(loaded.manifest, loaded.name.bus, existing_topology(live.cluster, loaded.name))
    asked = Range(*times)
    with Progress(spark, f"auditing {loaded.name}"):
        history = look_at(spark, live, loaded.name, asked, archive)
        if history.offsets() < _FEW:
            interpret(spark)
        return judge(history, deputy, asked, trigger=trigger)


def _follow(subject: _Subject, archive: str, every: str, once: Callable[[], bool]) -> bool:
    """Round after round. What was archived in one round is audited in the same one, however soon Kafka forgets it."""
    from eventbus.cli.archive import seconds_of
    from eventbus.cli.printing import warn
    from eventbus.errors import RetriableError
    from sensors.sensor import stop_signals
    from sensors.spark.archive import Archive
    from sensors.spark.archiving import Archiver

    pause = seconds_of(every)
    kept = Archive(archive)
    clean = True
    with kept.locked(), stop_signals() as stopped:
        archiver = Archiver(subject.live, kept, [subject.loaded.name], batch_records=_BATCH_RECORDS, accept_loss=False)
        archiver.check()
        while not stopped.is_set():
            try:
                archiver.run(subject.spark, stopped, lambda *_: None)
                clean = once() and clean
            except RetriableError as error:  # brokers that are lost come back
                warn(f"{error} Trying again.")
            stopped.wait(pause)
    return clean


def _tell(found: AuditReport, output: Output) -> bool:
    """Returns whether there is nothing to complain about."""
    from eventbus.cli.auditprint import print_report, report_json
    from eventbus.cli.printing import say_json

    if output is Output.JSON:
        say_json(report_json(found))
    else:
        print_report(found)
    return found.proved


def _write(spark: SparkSession, found: AuditReport, page: Path | None, parquet: str | None) -> None:
    from eventbus.errors import ConfigError
    from sensors.spark.htmlreport import html_report
    from sensors.spark.tables import write_tables

    if parquet is not None:
        write_tables(spark, found, parquet)
    if page is None:
        return
    try:
        page.write_text(html_report(found), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{page}: cannot be written: {error.strerror}") from None
