"""`eventbus audit`: was every promise kept? Spark works it all out again and compares."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eventbus.cli.options import BootstrapServers, BusOption, Manifest, Namespace, Output, OutputOption, Verbose

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eventbus.bus import Bus
    from eventbus.cli.manifests import Loaded
    from sensors.spark.report import AuditReport


def audit(
    sensor: Manifest,
    *,
    trigger: Annotated[str | None, typer.Option(help="Only this trigger.", show_default="all")] = None,
    since: Annotated[
        str | None, typer.Option(help="Events from then on: `24h` (ago) or a time.", show_default="all there are")
    ] = None,
    until: Annotated[
        str | None, typer.Option(help="Events up to then: `1h` (ago) or a time.", show_default="now")
    ] = None,
    archive: Annotated[
        str | None, typer.Option(metavar="DIR", help="Where `eventbus archive` has put what Kafka no longer has.")
    ] = None,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE.html", help="Write a page with pictures, to be looked at.")
    ] = None,
    parquet: Annotated[
        str | None, typer.Option(metavar="DIR", help="Write violations and figures there, for other programs.")
    ] = None,
    master: Annotated[
        str | None, typer.Option(help="Which Spark, as `spark-submit` has it.", show_default="this machine")
    ] = None,
    memory: Annotated[str, typer.Option(help="Memory of Spark's driver.")] = "2g",
    bootstrap_servers: BootstrapServers = None,
    namespace: Namespace = "default",
    bus: BusOption = "default",
    output: OutputOption = Output.TEXT,
    verbose: Verbose = False,
) -> None:
    """Prove what a sensor has done, from its topics: every action as due, every invocation as its mode allows.

    Exits with 1 where a promise was broken, and where nothing was broken but a part of the history is gone.
    """
    from eventbus.cli.auditprint import print_report, report_json
    from eventbus.cli.connection import connect
    from eventbus.cli.manifests import load_sensor
    from eventbus.cli.printing import say_json
    from eventbus.cli.times import moment
    from eventbus.clock import SystemClock
    from eventbus.names import BusName

    now = SystemClock().now_ms()
    loaded = load_sensor(sensor, BusName(namespace, bus))
    _check_trigger(loaded, trigger)
    times = [
        None if text is None else moment(option, text, now) for option, text in (("--since", since), ("--until", until))
    ]
    options = {"master": master, "memory": memory, "verbose": verbose}
    with connect(bootstrap_servers, namespace, bus, verbose=verbose) as home:
        found = _audit(home, loaded, times, options, trigger=trigger, archive=archive, parquet=parquet)
    if report is not None:
        _write_page(report, found)
    if output is Output.JSON:
        say_json(report_json(found))
    else:
        print_report(found)
    if not found.clean or found.missing:
        raise typer.Exit(1)


def _audit(
    home: Bus,
    loaded: Loaded,
    times: Sequence[int | None],
    options: Mapping[str, Any],
    *,
    trigger: str | None,
    archive: str | None,
    parquet: str | None,
) -> AuditReport:
    from sensors.spark.session import Progress, SparkOptions, spark_session

    with spark_session(f"eventbus audit {loaded.name}", SparkOptions(**options)) as spark:
        from eventbus.cli.connection import existing_topology
        from sensors.spark.audit import audit
        from sensors.spark.history import look_at
        from sensors.spark.records import Range
        from sensors.spark.tables import write_tables
        from sensors.spark.workers import Deputy

        deputy = Deputy(loaded.manifest, loaded.name.bus, existing_topology(home.cluster, loaded.name))
        asked = Range(*times)
        with Progress(spark, f"Auditing {loaded.name}"):
            found = audit(spark, look_at(spark, home, loaded.name, asked, archive), deputy, asked, trigger=trigger)
            if parquet is not None:
                write_tables(spark, found, parquet)
    return found


def _check_trigger(loaded: Loaded, trigger: str | None) -> None:
    from eventbus.errors import ConfigError

    names = [each.name for each in loaded.manifest.spec.triggers]
    if trigger is not None and trigger not in names:
        raise ConfigError(f"the sensor {loaded.name} has no trigger `{trigger}`; it has {', '.join(names)}")


def _write_page(file: Path, report: AuditReport) -> None:
    from eventbus.errors import ConfigError
    from sensors.spark.htmlreport import html_report

    try:
        file.write_text(html_report(report), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{file}: cannot be written: {error.strerror}") from None
