"""`eventbus test`: do these sensors do what is expected of them? Needs no broker and invokes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from eventbus.cli.options import Output, OutputOption
from eventbus.cli.printing import console, say, say_json

if TYPE_CHECKING:
    from sensors.scenarios import Firing

_FAILED = 1


class Report(msgspec.Struct, frozen=True):
    """What one scenario came to."""

    folder: str
    passed: bool
    expected: int
    missing: list[Firing]
    unexpected: list[Firing]


def run_scenarios(
    folders: Annotated[
        list[Path],
        typer.Argument(
            metavar="DIR…", help="Folders with sensor.yaml, events.jsonl and expected.jsonl, or above them."
        ),
    ],
    *,
    output: OutputOption = Output.TEXT,
) -> None:
    """Feed events to sensors and compare what fires with what is expected. Exit code 1 if it differs."""
    from sensors.scenarios import find_scenarios

    reports = [_report(folder, output) for folder in find_scenarios(folders)]
    failed = sum(not report.passed for report in reports)
    if output is Output.TEXT:
        say(f"{len(reports) - failed} passed, {failed} failed", to=console(stderr=True))
    if failed:
        raise typer.Exit(_FAILED)


def _report(folder: Path, output: Output) -> Report:
    from sensors.scenarios import Scenario

    scenario = Scenario.load(folder)
    differences = scenario.differences()
    report = Report(
        folder=str(folder),
        passed=not differences,
        expected=len(scenario.expected),
        missing=[each.firing for each in differences if each.sign == "-"],
        unexpected=[each.firing for each in differences if each.sign == "+"],
    )
    if output is Output.JSON:
        say_json(report)
    elif report.passed:
        say(("ok: ", "green"), f"{folder}: {report.expected} as expected")
    else:
        say(("failed: ", "bold red"), f"{differences[0].place}: expected (-) and fired (+) differ")
        for each in differences:
            say("    ", (str(each), "red" if each.sign == "-" else "green"))
    return report
