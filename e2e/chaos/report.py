"""How a run is shown while it goes on, and what is kept of it: build/chaos.json has the keys of build/sim.json."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Self

import msgspec
from rich.console import Console
from rich.live import Live
from rich.table import Table

from e2e.chaos.failover import Failovers
from e2e.chaos.storm import Aftermath, Options, Progress
from sensors.audit.invocations import Difference
from sensors.audit.verdict import Verdict
from sensors.audit.violations import Breach

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
    options: Options, failovers: Failovers | None, aftermath: Aftermath, verdict: Verdict, seconds: float
) -> dict[str, object]:
    return {
        "seed": options.seed,
        **summary(aftermath, verdict),
        "longest_replay": aftermath.longest_replay,
        "seconds": round(seconds, 1),
        **(failovers.worst() if failovers else {}),
        "minutes": options.minutes,
        "dependencies": options.dependencies,
        "partitions": options.partitions,
        "mode": options.mode,
        "kills_by_point": _by_point(aftermath),
    }


def summary(aftermath: Aftermath, verdict: Verdict) -> dict[str, object]:
    """What every storm is asked."""
    evidence = aftermath.evidence
    faults = Counter(aftermath.faults)
    return {
        "events": len(evidence.events),
        "faults": {"total": faults.total(), **dict(faults.most_common())},
        "actions": len(evidence.actions),
        **{str(breach): verdict.count(breach) for breach in Breach},
        "triggers": sum(len(plan.triggers) for plan in evidence.plans.values()),
        "calls": len(evidence.calls),
        "dead_letters": len(evidence.letters),
        "not_acknowledged": aftermath.doubtful,
        "calm_seconds": round(aftermath.calm_seconds, 1),
        "at_most_once_given_up": _by_mishap(verdict.given_up),
        "calls_without_record": _by_mishap(verdict.unrecorded),
        "violations": [str(violation) for violation in verdict.violations[:_SHOWN]],
        "given_up": [msgspec.structs.asdict(each) for each in verdict.given_up],
    }


def _by_mishap(entries: Iterable[Difference]) -> dict[str, int]:
    return dict(Counter(entry.mishap for entry in entries).most_common())


def _by_point(aftermath: Aftermath) -> dict[str, int]:
    kills = (mishap.name for mishap in aftermath.evidence.mishaps if mishap.name.startswith("SIGKILL at "))
    return dict(sorted(Counter(name.removeprefix("SIGKILL at ") for name in kills).items()))


def write(report: Mapping[str, object], path: Path = REPORT) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(report, indent=2) + "\n")


def show(console: Console, report: dict[str, object], verdict: Verdict) -> None:
    faults = report["faults"]
    console.print(_table(report, faults if isinstance(faults, dict) else {}))
    for violation in verdict.violations[:_SHOWN]:
        console.print(f"[red]{violation}[/red]", highlight=False, soft_wrap=True)


def _table(values: dict[str, object], faults: dict[str, int]) -> Table:
    table = Table("", "", show_header=False)
    for key, value in values.items():
        if isinstance(value, int | float | str):
            table.add_row(key, f"{value:,.6g}" if isinstance(value, float) else str(value))
    table.add_section()
    for fault, count in faults.items():
        table.add_row(fault, f"{count:,}")
    return table
