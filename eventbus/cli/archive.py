"""`eventbus archive`: keep what is on the topics as Parquet, for longer than Kafka does."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eventbus.cli.options import BootstrapServers, BusFile, BusOption, Master, Namespace, Output, OutputOption, Verbose
from eventbus.cli.printing import print_table, say, say_json, warn

if TYPE_CHECKING:
    import threading

    from pyspark.sql import SparkSession

    from eventbus.names import BusName, SensorName
    from sensors.spark.archiving import ArchivedTopic, Archiver

_CTRL_C = 130


def archive(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Where the archive is, or is to be.")],
    sensors: Annotated[
        list[str] | None,
        typer.Argument(metavar="[SENSOR…]", help="Sensors whose topics are archived, too: manifests or names."),
    ] = None,
    *,
    follow: Annotated[bool, typer.Option("--follow", help="Go on until SIGTERM or Ctrl-C.")] = False,
    every: Annotated[
        str, typer.Option(metavar="DURATION", help="With --follow: how often. Seldom makes fewer and larger files.")
    ] = "1m",
    batch_records: Annotated[
        int, typer.Option(min=1, help="How many records of a topic are written at a time, at most.")
    ] = 200_000,
    accept_loss: Annotated[
        bool, typer.Option("--accept-loss", help="Go on where Kafka has removed records before they were archived.")
    ] = False,
    master: Master = None,
    bootstrap_servers: BootstrapServers = None,
    bus_file: BusFile = None,
    namespace: Namespace = "default",
    bus: BusOption = "default",
    output: OutputOption = Output.TEXT,
    verbose: Verbose = False,
) -> None:
    """Copy the event topic, and the topics of sensors, to Parquet that is partitioned by date, source and type.

    Each record is there exactly once, whatever is killed when. Without --follow it takes what there is and ends.
    """
    from eventbus.cli.connection import connect
    from eventbus.cli.manifests import resolve_name
    from eventbus.names import BusName
    from sensors.sensor import stop_signals
    from sensors.spark.archive import Archive
    from sensors.spark.session import SparkOptions, require_pyspark, spark_session

    pause = seconds_of(every)
    default = BusName(namespace, bus)
    names = [resolve_name(sensor, default) for sensor in sensors or ()]
    home = _one_bus(names, default)
    require_pyspark()
    from sensors.spark.archiving import Archiver

    kept = Archive(directory)
    with connect(bootstrap_servers, bus_file, home.namespace, home.bus, verbose=verbose) as live, kept.locked():
        archiver = Archiver(live, kept, names, batch_records=batch_records, accept_loss=accept_loss)
        archiver.check()
        options = SparkOptions(master=master, verbose=verbose)
        with spark_session("eventbus archive", options) as spark, stop_signals() as stopped:
            if follow:
                _follow(archiver, spark, pause, stopped, output)
            else:
                _once(archiver, spark, stopped)
        _print(archiver.report(), output)
    if stopped.is_set() and not follow:
        warn("interrupted: the next run goes on from here")
        raise typer.Exit(_CTRL_C)


def seconds_of(every: str) -> float:
    from eventbus.errors import ConfigError
    from sensors.spec.fields import parse_duration

    try:
        return parse_duration(every).total_seconds()
    except ValueError:
        raise ConfigError(f"--every {every}: write how long, such as 30s, 5m or 1h") from None


def _one_bus(names: Sequence[SensorName], default: BusName) -> BusName:
    """What manifests say goes before the options; an archive is of one bus."""
    from eventbus.errors import ConfigError

    buses = list(dict.fromkeys(name.bus for name in names)) or [default]
    if len(buses) > 1:
        shown = " and ".join(f"{each.namespace}/{each.bus}" for each in buses)
        raise ConfigError(f"these sensors are on the buses {shown}, and an archive is of one bus: one run for each")
    return buses[0]


def _once(archiver: Archiver, spark: SparkSession, stopped: threading.Event) -> None:
    from sensors.spark.session import Progress

    with Progress(spark, "archiving"):
        archiver.run(spark, stopped, lambda *_: None)


def _follow(archiver: Archiver, spark: SparkSession, pause: float, stopped: threading.Event, output: Output) -> None:
    from eventbus.errors import RetriableError

    def tell(topic: str, records: int) -> None:
        if output is Output.JSON:
            say_json({"topic": topic, "added": records})
        else:
            say(f"{topic}: {records:,} added")

    while not stopped.is_set():
        try:
            archiver.run(spark, stopped, tell)
        except RetriableError as error:  # brokers that are lost come back
            warn(f"{error} Trying again.")
        stopped.wait(pause)


def _print(topics: Sequence[ArchivedTopic], output: Output) -> None:
    if output is Output.JSON:
        for each in topics:
            say_json(each)
        return
    rows = [[each.topic, f"{each.records:,}", _offsets(each), f"{each.files:,}"] for each in topics]
    print_table(["topic", "records added", "archived offsets", "files"], rows)


def _offsets(topic: ArchivedTopic) -> str:
    return ", ".join(f"{partition}: {start:,}…{end:,}" for partition, (start, end) in topic.offsets.items())
