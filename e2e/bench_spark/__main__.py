"""`make bench-spark`: rates as ratios to Spark's plain read and count, in one run. Writes build/bench-spark.json.

*Plain* is what anybody gets who reads a topic with Spark and counts: its connector with its own settings. *Read* is the
same with ours. *Least* is what nobody can do without who wants to know what the sensor's own core says of the records:
read them, hand over to Python what concerns the sensor, and read what all others say. With the time of the core itself,
on all cores, that is what is *possible*.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from rich.console import Console
from rich.table import Table

from e2e.bench_spark.generated import SENSORS, Generated
from e2e.bench_spark.memory import PeakMemory
from eventbus import Bus
from eventbus.broker import EmbeddedBroker
from sensors.spark import facts
from sensors.spark.audit import audit
from sensors.spark.backtest import Backtest
from sensors.spark.concern import concerns_nobody
from sensors.spark.history import EVENT, History, look_at
from sensors.spark.records import Range, connection_options
from sensors.spark.session import FIRST_VERSIONS, SparkOptions, spark_session

REPORT = Path("build/bench-spark.json")
GOAL = 0.4
_ALL = (EVENT, "trigger", "action", "invocation", "dlq")
"""What an audit reads."""


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--records", type=int, action="append", help="in all topics together")
    arguments.add_argument("--sensor", choices=SENSORS, action="append")
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--memory", default="2g", help="of Spark's driver, which does the work here")
    options = arguments.parse_args()
    console = Console()
    results = []
    with (
        EmbeddedBroker(ephemeral=True) as broker,
        spark_session("bench-spark", SparkOptions(memory=options.memory)) as spark,
    ):
        for sensor in options.sensor or SENSORS:
            with Bus.connect(broker.bootstrap_servers, namespace=f"bench-{sensor}") as bus:
                generated = Generated(bus, sensor)
                for number, records in enumerate(options.records or [1_000_000, 10_000_000]):
                    began = time.monotonic()
                    generated.write(records)
                    console.print(f"{generated.records:,} records written in {time.monotonic() - began:.0f} s")
                    jobs = _jobs(bus, look_at(spark, bus, generated.name, Range()), generated)
                    if number == 0:
                        _sample(jobs, console)  # to warm up
                    with PeakMemory() as memory:
                        samples = [_sample(jobs, console) for _ in range(options.rounds)]
                    size = {"sensor": sensor, "records": generated.records, "peak_mebibytes": memory.peak_mebibytes}
                    results.append(size | _evaluated(samples, generated.core_seconds))
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.write_text(json.dumps({"cores": os.cpu_count(), "sizes": results}, indent=2) + "\n")
    _print(console, results)


def _jobs(bus: Bus, history: History, generated: Generated) -> dict[str, Callable[[], object]]:
    """What is timed in every round, in this order."""
    events = history.tables[EVENT].where(f"NOT {concerns_nobody(generated.deputy.plan)}")
    handed_over = [events, history.tables["trigger"]]
    return {
        "plain": lambda: _count_plainly(bus, history, _ALL),
        "read": lambda: _count(history, _ALL),
        "least": lambda: _hand_over(handed_over) + _read_what_they_say(history),
        "audit": lambda: _audit(history, generated),
        "events_plain": lambda: _count_plainly(bus, history, (EVENT,)),
        "events_read": lambda: _count(history, (EVENT,)),
        "events_least": lambda: _hand_over(handed_over[:1]),
        "backtest": lambda: _backtest(history, generated),
    }


def _sample(jobs: Mapping[str, Callable[[], object]], console: Console) -> dict[str, float]:
    """How many seconds each of them takes."""
    sample = {}
    for name, job in jobs.items():
        began = time.monotonic()
        job()
        sample[name] = time.monotonic() - began
    console.print({name: round(seconds, 1) for name, seconds in sample.items()})
    return sample


def _evaluated(samples: Sequence[Mapping[str, float]], core_seconds: float) -> dict[str, Any]:
    seconds = {name: round(statistics.median(sample[name] for sample in samples), 2) for name in samples[0]}
    core = core_seconds / (os.cpu_count() or 1)
    return {
        "seconds": seconds,
        "audit": _ratios(samples, "audit", "", core),
        "backtest": _ratios(samples, "backtest", "events_", core),
    }


def _ratios(samples: Sequence[Mapping[str, float]], job: str, inputs: str, core: float) -> dict[str, float]:
    """Of the whole rate: to plain reading (what is possible there: `bound`), to ours, and to what is possible."""
    each = [sample[f"{inputs}plain"] / sample[job] for sample in samples]
    plain, read, least, taken = (
        statistics.median(sample[name] for sample in samples)
        for name in (f"{inputs}plain", f"{inputs}read", f"{inputs}least", job)
    )
    figures = {
        "median": statistics.median(each),
        "least": min(each),
        "most": max(each),
        "bound": plain / (least + core),
        "to_read": read / taken,
        "to_possible": (least + core) / taken,
    }
    return {name: round(figure, 2) for name, figure in figures.items()}


def _count_plainly(bus: Bus, history: History, kinds: tuple[str, ...]) -> int:
    spark = history.tables[EVENT].sparkSession
    options = {**connection_options(bus), "startingOffsets": "earliest"}
    topics = [history.slices[kind].topic for kind in kinds]
    ours = spark.conf.get(FIRST_VERSIONS)
    spark.conf.unset(FIRST_VERSIONS)
    try:
        return sum(spark.read.format("kafka").options(**options, subscribe=topic).load().count() for topic in topics)
    finally:
        spark.conf.set(FIRST_VERSIONS, ours or "")


def _count(history: History, kinds: tuple[str, ...]) -> int:
    return sum(history.tables[kind].count() for kind in kinds)


def _hand_over(tables: Iterable[DataFrame]) -> int:
    """Give it to workers that do nothing."""
    return sum(table.mapInArrow(_swallow, "nothing int").count() for table in tables)


def _read_what_they_say(history: History) -> int:
    said = (
        facts.action_facts(history.tables["action"]),
        facts.invocation_facts(history.tables["invocation"]),
        facts.letter_facts(history.tables["dlq"]),
    )
    return sum(table.where(F.xxhash64(*table.columns) != 0).count() for table in said)


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


def _print(console: Console, results: list[dict[str, Any]]) -> None:
    table = Table(
        "sensor", "records", "what", "to plain", "least – most", "bound", "to possible", "seconds", "peak memory"
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
                str(ratio["to_possible"]),
                str(seconds[what]),
                f"{result['peak_mebibytes']} MiB",
            )
    console.print(table)


if __name__ == "__main__":
    main()
