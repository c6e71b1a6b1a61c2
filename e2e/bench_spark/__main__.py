"""`make bench-spark`: rates as ratios to Spark's plain read and count, in one run. Writes build/bench-spark.json."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from e2e.bench_spark.generated import SENSORS, Generated
from e2e.bench_spark.memory import PeakMemory
from eventbus import Bus
from eventbus.broker import EmbeddedBroker
from sensors.spark.audit import audit
from sensors.spark.backtest import Backtest
from sensors.spark.history import EVENT, History, look_at
from sensors.spark.records import Range
from sensors.spark.session import SparkOptions, spark_session

REPORT = Path("build/bench-spark.json")
GOAL = 0.4
_READ = (EVENT, "trigger", "action", "invocation", "dlq")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--records", type=int, action="append", help="in all topics together")
    arguments.add_argument("--sensor", choices=list(SENSORS), action="append")
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--memory", default="2g", help="of Spark's driver, which does the work here")
    options = arguments.parse_args()
    console = Console()
    results = []
    with (
        EmbeddedBroker(ephemeral=True) as broker,
        spark_session("bench-spark", SparkOptions(memory=options.memory)) as spark,
    ):
        for sensor in options.sensor or list(SENSORS):
            with Bus.connect(broker.bootstrap_servers, namespace=f"bench-{sensor}") as bus:
                generated = Generated(bus, sensor)
                for records in options.records or [1_000_000, 10_000_000]:
                    began = time.monotonic()
                    generated.write(records)
                    console.print(f"{generated.records:,} records written in {time.monotonic() - began:.0f} s")
                    measured = _measure(spark, bus, generated, options.rounds, console)
                    results.append({"sensor": sensor, **measured})
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.write_text(json.dumps({"cores": os.cpu_count(), "sizes": results}, indent=2) + "\n")
    _print(console, results)


def _measure(spark: SparkSession, bus: Bus, generated: Generated, rounds: int, console: Console) -> dict[str, Any]:
    history = look_at(spark, bus, generated.name, Range())
    times: dict[str, list[float]] = {name: [] for name in ("count", "null", "audit", "count_events", "backtest")}
    with PeakMemory() as memory:
        for number in range(rounds + 1):  # the first one warms up
            sample = {
                "count": _timed(lambda: _count(history, _READ)),
                "null": _timed(lambda: _pass_through(history, (EVENT, "trigger"))),
                "audit": _timed(lambda: _audit(history, generated)),
                "count_events": _timed(lambda: _count(history, (EVENT,))),
                "backtest": _timed(lambda: _backtest(history, generated)),
            }
            console.print({name: round(seconds, 1) for name, seconds in sample.items()})
            if number:
                for name, seconds in sample.items():
                    times[name].append(seconds)
    return {
        "records": generated.records,
        "seconds": {name: round(statistics.median(each), 2) for name, each in times.items()},
        "audit": _ratios(times["count"], times["audit"], generated.core_seconds),
        "backtest": _ratios(times["count_events"], times["backtest"], generated.core_seconds),
        "peak_mebibytes": memory.peak_mebibytes,
    }


def _timed(work: Callable[[], object]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


def _count(history: History, kinds: tuple[str, ...]) -> int:
    return sum(history.tables[kind].count() for kind in kinds)


def _pass_through(history: History, kinds: tuple[str, ...]) -> None:
    """What has to be given to the sensor's own core, to one that does nothing: no audit can be faster."""
    for kind in kinds:
        history.tables[kind].mapInArrow(_swallow, "nothing int").count()


def _swallow(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        yield from ()


def _audit(history: History, generated: Generated) -> None:
    report = audit(history, generated.deputy, Range())
    assert report.clean, report.violations[:3]
    assert sum(report.records.values()) == generated.records, "not everything was looked at"


def _backtest(history: History, generated: Generated) -> None:
    past = Backtest.of_events(generated.deputy, history.tables[EVENT], in_order=EVENT in history.in_order)
    try:
        fired = {each.trigger: each.fired for each in past.totals().triggers}
        for trigger in fired.keys() - {"ship"}:  # what meets in there depends on how partitions interleave
            assert fired[trigger] == generated.fired[trigger]
    finally:
        past.close()


def _ratios(plain: list[float], ours: list[float], core_seconds: float) -> dict[str, float]:
    """`bound` is what reading and the sensor's core, on all cores and with nothing around them, would come to."""
    each = [one / other for one, other in zip(plain, ours, strict=True)]
    read = statistics.median(plain)
    return {
        "median": round(statistics.median(each), 2),
        "least": round(min(each), 2),
        "most": round(max(each), 2),
        "bound": round(read / (read + core_seconds / (os.cpu_count() or 1)), 2),
    }


def _print(console: Console, results: list[dict[str, Any]]) -> None:
    table = Table(
        "sensor", "records", "what", "ratio to read + count", "least – most", "bound", "seconds", "peak memory"
    )
    for result in results:
        for what in ("audit", "backtest"):
            ratio, seconds = result[what], result["seconds"]
            table.add_row(
                result["sensor"],
                f"{result['records']:,}",
                what,
                f"{ratio['median']} (goal ≥ {GOAL})",
                f"{ratio['least']} – {ratio['most']}",
                str(ratio["bound"]),
                str(seconds[what]),
                f"{result['peak_mebibytes']} MiB",
            )
    console.print(table)


if __name__ == "__main__":
    main()
