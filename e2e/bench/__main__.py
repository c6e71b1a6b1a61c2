"""`make bench`: speed as ratios, measured in one run on one broker. Prints a table and writes build/bench.json."""

from __future__ import annotations

import argparse
import json
import os
import statistics
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import msgspec
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from e2e.bench.contest import Contest, Round
from eventbus.broker import EmbeddedBroker
from sensors.runner.tuning import relax_garbage_collection

REPORT = Path("build/bench.json")


class Measurement(msgspec.Struct, frozen=True):
    name: str
    what: str
    goal: str
    run: Callable[[Contest], Round]
    ratio: Callable[[Round], float]


def _speed(sample: Round) -> float:
    return sample.null / sample.ours


def _delay(sample: Round) -> float:
    return sample.ours / sample.null


MEASUREMENTS = [
    Measurement("or", "a || b, events/s against the null loop", "≥ 0.7", lambda c: c.throughput("a || b", 1), _speed),
    Measurement(
        "and", "a && b, events/s against the two-hop null loop", "≥ 0.7", lambda c: c.throughput("a && b", 2), _speed
    ),
    Measurement("latency_5", "event to action at 5/s against raw", "≤ 3", lambda c: c.latency(5, 4), _delay),
    Measurement("latency_500", "event to action at 500/s against raw", "≤ 3", lambda c: c.latency(500, 4), _delay),
]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--events", type=int, default=200_000)
    arguments.add_argument("--only", choices=[measurement.name for measurement in MEASUREMENTS], action="append")
    options = arguments.parse_args()
    chosen = [each for each in MEASUREMENTS if not options.only or each.name in options.only]
    rounds: dict[str, list[Round]] = {each.name: [] for each in chosen}
    with ExitStack() as stack:
        servers = os.environ.get("KAFKA_BOOTSTRAP_SERVERS")
        servers = servers or stack.enter_context(EmbeddedBroker(ephemeral=True)).bootstrap_servers
        contest = Contest(servers, options.events)
        relax_garbage_collection()  # as `eventbus run` does; it helps both sides
        progress = stack.enter_context(Progress(transient=True))
        task = progress.add_task("measuring", total=(options.rounds + 1) * len(chosen))
        for number in range(options.rounds + 1):
            for measurement in chosen:
                sample = measurement.run(contest)
                if number > 0:  # the first round warms the broker up
                    rounds[measurement.name].append(sample)
                progress.advance(task)
    _report(chosen, rounds)


def _report(measurements: list[Measurement], rounds: dict[str, list[Round]]) -> None:
    table = Table("measurement", "ratio", "range", "goal", "ours", "null", "CPU ours", "CPU null")
    results = []
    for measurement in measurements:
        samples = rounds[measurement.name]
        ratios = [measurement.ratio(sample) for sample in samples]
        result = {
            "ratio": statistics.median(ratios),
            "min": min(ratios),
            "max": max(ratios),
            "ours_seconds": statistics.median(sample.ours for sample in samples),
            "null_seconds": statistics.median(sample.null for sample in samples),
            "ours_cpu_seconds": statistics.median(sample.ours_cpu for sample in samples),
            "null_cpu_seconds": statistics.median(sample.null_cpu for sample in samples),
        }
        results.append({"name": measurement.name, **result})
        seconds = [
            f"{1e6 * result[key]:.1f} µs"
            for key in ("ours_seconds", "null_seconds", "ours_cpu_seconds", "null_cpu_seconds")
        ]
        spread = f"{result['min']:.2f}–{result['max']:.2f}"
        table.add_row(measurement.what, f"{result['ratio']:.2f}", spread, measurement.goal, *seconds)
    Console().print(table)
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.write_text(json.dumps({"results": results}, indent=2) + "\n")


if __name__ == "__main__":
    main()
