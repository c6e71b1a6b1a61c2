"""`eventbus validate`: find what is wrong with manifests before anything runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from eventbus.cli.options import Manifests, Output, OutputOption
from eventbus.cli.printing import console, say, say_json

if TYPE_CHECKING:
    from sensors.spec.problems import Problem

_INVALID = 2


class Report(msgspec.Struct, frozen=True):
    """What there is to say about one file."""

    file: str
    sensors: list[str]
    errors: list[Problem]
    warnings: list[Problem]


def validate(
    files: Manifests,
    *,
    strict: Annotated[bool, typer.Option("--strict", help="Treat warnings as errors.")] = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """Check manifests, with file, line and column of every problem. Exit code 2 if there is an error."""
    from eventbus.cli.manifests import find_manifests

    reports = [_report(file) for file in find_manifests(files)]
    valid = not any(report.errors or (strict and report.warnings) for report in reports)
    if output is Output.JSON:
        say_json({"valid": valid, "files": reports})
    else:
        for report in reports:
            _print(report)
        _print_summary(reports)
    if not valid:
        raise typer.Exit(_INVALID)


def _report(file: Path) -> Report:
    from sensors.spec.loader import load_manifests
    from sensors.spec.problems import ManifestError

    try:
        manifests = load_manifests(file)
    except ManifestError as error:
        return Report(str(file), [], error.problems, [])
    warnings = [warning for manifest in manifests for warning in manifest.warnings]
    return Report(str(file), [manifest.name for manifest in manifests], [], warnings)


def _print(report: Report) -> None:
    from sensors.spec.problems import MAX_SHOWN

    for problem in report.errors[:MAX_SHOWN]:
        say(("error: ", "bold red"), str(problem))
    if len(report.errors) > MAX_SHOWN:
        say(f"… and {len(report.errors) - MAX_SHOWN} more errors in {report.file}")
    for problem in report.warnings:
        say(("warning: ", "yellow"), str(problem))
    if not report.errors:
        say(("ok: ", "green"), f"{report.file}: {', '.join(report.sensors)}")


def _print_summary(reports: list[Report]) -> None:
    totals = [
        _counted(len(reports), "file"),
        _counted(sum(len(report.errors) for report in reports), "error"),
        _counted(sum(len(report.warnings) for report in reports), "warning"),
    ]
    say(", ".join(totals), to=console(stderr=True))


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
