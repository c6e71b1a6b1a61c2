"""How a run is shown while it goes on, and what is kept of it: build/chaos.json has the keys of build/sim.json."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Self

import msgspec
from rich.console import Console
from rich.live import Live
from rich.table import Table

from e2e.chaos.failover import Failovers
from e2e.chaos.storm import Aftermath, Options, Progress
from e2e.chaos.verdict import Explained, Findings

REPORT = Path("build/chaos.json")
_PLAIN_SECONDS = 10.0
_SHOWN = 20


class Teller:
    """On a terminal a table that changes, elsewhere a line now and then."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None
        self._told = 0.0

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live = Live(console=self._console, transient=True)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def tell(self, progress: Progress) -> None:
        if self._live is not None:
            self._live.update(_table(msgspec.structs.asdict(progress) | {"faults": None}, progress.faults))
        elif progress.seconds - self._told >= _PLAIN_SECONDS:
            self._told = progress.seconds
            faults = ", ".join(f"{count} {kind}" for kind, count in progress.faults.items())
            self._console.print(
                f"{progress.seconds:5.0f} s: {progress.events} events, {progress.actions} actions, "
                f"{progress.calls} calls, {progress.replicas} replicas; {faults}",
                highlight=False,
                soft_wrap=True,
            )


def document(
    options: Options, failovers: Failovers, aftermath: Aftermath, findings: Findings, seconds: float
) -> dict[str, object]:
    evidence = aftermath.evidence
    faults = Counter(aftermath.faults)
    return {
        "seed": options.seed,
        "events": len(evidence.events),
        "faults": {"total": faults.total(), **dict(faults.most_common())},
        "actions": len(evidence.actions),
        "lost": len(findings.lost),
        "duplicated": len(findings.duplicated),
        "out_of_order": len(findings.out_of_order),
        "unexplained": len(findings.unexplained),
        "longest_replay": aftermath.longest_replay,
        "seconds": round(seconds, 1),
        "failover_same_slot_seconds": round(max(failovers.same_slot), 2),
        "failover_survivor_seconds": round(max(failovers.survivor), 2),
        "minutes": options.minutes,
        "dependencies": options.dependencies,
        "triggers": len(evidence.plan.triggers),
        "partitions": options.partitions,
        "mode": options.mode,
        "calls": len(evidence.calls),
        "dead_letters": len(evidence.dead_letters),
        "not_acknowledged": aftermath.doubtful,
        "calm_seconds": round(aftermath.calm_seconds, 1),
        "at_most_once_given_up": _by_mishap(findings.given_up),
        "calls_without_record": _by_mishap(findings.repeated),
        "kills_by_point": _by_point(aftermath),
        "findings": {
            "lost": findings.lost[:_SHOWN],
            "duplicated": findings.duplicated[:_SHOWN],
            "out_of_order": findings.out_of_order[:_SHOWN],
            "unexplained": findings.unexplained[:_SHOWN],
        },
        "given_up": [msgspec.structs.asdict(each) for each in findings.given_up],
    }


def _by_mishap(entries: Iterable[Explained]) -> dict[str, int]:
    return dict(Counter(entry.mishap for entry in entries).most_common())


def _by_point(aftermath: Aftermath) -> dict[str, int]:
    kills = (mishap.name for mishap in aftermath.evidence.mishaps if mishap.name.startswith("SIGKILL at "))
    return dict(sorted(Counter(name.removeprefix("SIGKILL at ") for name in kills).items()))


def write(report: dict[str, object]) -> None:
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.write_text(json.dumps(report, indent=2) + "\n")


def show(console: Console, report: dict[str, object], findings: Findings) -> None:
    faults = report["faults"]
    console.print(_table(report, faults if isinstance(faults, dict) else {}))
    for name, entries in (
        ("lost", findings.lost),
        ("duplicated", findings.duplicated),
        ("out of order", findings.out_of_order),
        ("unexplained", findings.unexplained),
    ):
        for entry in entries[:_SHOWN]:
            console.print(f"[red]{name}[/red]: {entry}", highlight=False, soft_wrap=True)


def _table(values: dict[str, object], faults: dict[str, int]) -> Table:
    table = Table("", "", show_header=False)
    for key, value in values.items():
        if isinstance(value, int | float | str):
            table.add_row(key, f"{value:,.6g}" if isinstance(value, float) else str(value))
    table.add_section()
    for fault, count in faults.items():
        table.add_row(fault, f"{count:,}")
    return table
