"""`make sim SEEDS=…`: many seeds, on all cores, with a bar; writes build/sim.json and exits 1 on any finding.

python -m tests.sim --seeds 20000             the published figure
python -m tests.sim --replay 4711             one seed, with everything that happened
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn
from rich.table import Table

from sensors.audit.violations import Breach
from tests.sim.simulation import Report, Simulation, run_seed

REPORT = Path("build/sim.json")
_SHOWN_FAILURES = 5


class Totals:
    """The sum of all seeds."""

    def __init__(self) -> None:
        self.seeds = self.events = self.actions = self.given_up = self.longest_replay = 0
        self.faults: Counter[str] = Counter()
        self.breaches: Counter[Breach] = Counter()
        self.failed: list[Report] = []

    def add(self, report: Report) -> None:
        self.seeds += 1
        self.events += report.events
        self.actions += report.actions
        self.faults.update(report.faults)
        self.longest_replay = max(self.longest_replay, report.longest_replay)
        self.given_up += report.given_up
        self.breaches.update(violation.breach for violation in report.violations)
        if not report.clean:
            self.failed.append(report)

    def document(self, seconds: float) -> dict[str, object]:
        return {
            "seeds": self.seeds,
            "events": self.events,
            "faults": {"total": self.faults.total(), **self.faults},
            "actions": self.actions,
            **{str(breach): self.breaches[breach] for breach in Breach},
            "given_up": self.given_up,
            "longest_replay": self.longest_replay,
            "seconds": round(seconds, 1),
            "failed_seeds": [report.seed for report in self.failed],
        }


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--seeds", type=int, default=500)
    arguments.add_argument("--first", type=int, default=0, help="the first seed")
    arguments.add_argument("--replay", type=int, metavar="SEED", help="one seed only, and tell everything")
    options = arguments.parse_args()
    if options.replay is not None:
        simulation = Simulation(options.replay)
        report = simulation.trace()
        sys.stdout.writelines(f"{line}\n" for line in [*(simulation.journal.lines or ()), *report.violations])
        sys.exit(not report.clean)
    began = time.monotonic()
    totals = Totals()
    console = Console()
    columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("seeds", total=options.seeds)
        for report in _reports(range(options.first, options.first + options.seeds)):
            totals.add(report)
            progress.advance(task)
    document = totals.document(time.monotonic() - began)
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.write_text(json.dumps(document, indent=2) + "\n")
    _show(console, document, totals)
    sys.exit(bool(totals.failed))


def _reports(seeds: range) -> Iterator[Report]:
    with get_context("spawn").Pool(os.cpu_count()) as pool:
        yield from pool.imap_unordered(run_seed, seeds, chunksize=20)


def _show(console: Console, document: dict[str, object], totals: Totals) -> None:
    table = Table("", "", show_header=False)
    for key, value in document.items():
        if key not in ("faults", "failed_seeds"):
            table.add_row(key, f"{value:,}")
    table.add_section()
    for fault, number in totals.faults.most_common():
        table.add_row(fault, f"{number:,}")
    console.print(table)
    for report in totals.failed[:_SHOWN_FAILURES]:
        console.print(f"[red]seed {report.seed}[/red]: {'; '.join(map(str, report.violations))[:400]}", highlight=False)
        console.print(f"  replay it: .venv/bin/python -m tests.sim --replay {report.seed}")


if __name__ == "__main__":
    main()
