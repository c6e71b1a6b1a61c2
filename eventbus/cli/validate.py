"""`eventbus validate`: find what is wrong with manifests before anything runs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from eventbus.cli.options import Output, OutputOption, Texts
from eventbus.cli.printing import console, counted, say, say_json

if TYPE_CHECKING:
    from sensors.spec.problems import Problem

_INVALID = 1


class Report(msgspec.Struct, frozen=True):
    """What there is to say about one file."""

    file: str
    sensors: list[str]
    event_sources: list[str]
    event_buses: list[str]
    others: int
    """Documents of other kinds, which are passed over."""
    errors: list[Problem]
    warnings: list[Problem]

    @property
    def names(self) -> list[str]:
        return [*self.sensors, *self.event_sources, *self.event_buses]


class Summary(msgspec.Struct, frozen=True):
    """All files together."""

    files: int
    sensors: int
    event_sources: int
    event_buses: int
    others: int
    errors: int
    warnings: int

    @classmethod
    def of(cls, reports: list[Report]) -> Summary:
        return cls(
            len(reports),
            sum(len(report.sensors) for report in reports),
            sum(len(report.event_sources) for report in reports),
            sum(len(report.event_buses) for report in reports),
            sum(report.others for report in reports),
            sum(len(report.errors) for report in reports),
            sum(len(report.warnings) for report in reports),
        )

    def __str__(self) -> str:
        parts = [
            counted(self.files, "file"),
            counted(self.sensors, "sensor"),
            *([counted(self.event_sources, "event source")] if self.event_sources else []),
            *([counted(self.event_buses, "event bus", "event buses")] if self.event_buses else []),
            counted(self.errors, "error"),
            counted(self.warnings, "warning"),
        ]
        if self.others:
            parts.append(f"{counted(self.others, 'document')} of other kinds passed over")
        return ", ".join(parts)


def validate(
    files: Texts,
    *,
    strict: Annotated[bool, typer.Option("--strict", help="Treat warnings as errors.")] = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """Check manifests, with file, line and column of every problem. Exit code 1 if there is an error."""
    reports = [report for path in files for report in _reports(path)]
    summary = Summary.of(reports)
    valid = not (summary.errors or (strict and summary.warnings))
    if output is Output.JSON:
        say_json({"valid": valid, "summary": summary, "files": reports})
    else:
        for report in reports:
            _print(report)
        say(str(summary), to=console(stderr=True))
    if not valid:
        raise typer.Exit(_INVALID)


def _reports(path: Path) -> Iterable[Report]:
    """About a file, or about all in a directory. Whoever names something without a manifest probably meant another."""
    from eventbus.cli.manifests import find_manifests, shown_name
    from sensors.spec.problems import Problem

    reports = [_report(file) for file in find_manifests([path])]
    if not any(report.names or report.errors for report in reports):
        reports[0].warnings.append(Problem("there is no Sensor, EventSource or EventBus here", shown_name(path)))
    return reports


def _report(path: Path) -> Report:
    from eventbus.cli.manifests import read_source, shown_name
    from eventsources.kinds import ANY_KIND, KINDS
    from sensors.spec.problems import ManifestError

    file = shown_name(path)
    try:
        found = ANY_KIND.inspect_text(read_source(path), file)
    except ManifestError as error:
        return Report(file, [], [], [], 0, error.problems, [])
    warnings = [warning for manifest in found.manifests for warning in manifest.warnings]
    names = {kind: [each.name for each in found.manifests if each.called == kind] for kind in KINDS}
    errors = list(found.problems)
    return Report(file, names["Sensor"], names["EventSource"], names["EventBus"], found.others, errors, warnings)


def _print(report: Report) -> None:
    from sensors.spec.problems import MAX_SHOWN

    for problem in report.errors[:MAX_SHOWN]:
        say(("error: ", "bold red"), str(problem))
    if len(report.errors) > MAX_SHOWN:
        say(f"… and {len(report.errors) - MAX_SHOWN} more errors in {report.file}")
    for problem in report.warnings:
        say(("warning: ", "yellow"), str(problem))
    if report.names and not report.errors:
        say(("ok: ", "green"), f"{report.file}: {', '.join(report.names)}")
