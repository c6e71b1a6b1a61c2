"""`eventbus convert`: argo-events' manifests become ours."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from eventbus.cli.options import Output, OutputOption, Texts
from eventbus.cli.printing import console, counted, say
from eventbus.errors import ConfigError

if TYPE_CHECKING:
    from sensors.spec.convert import Conversion

_NOT_LOADED = 1
_SEPARATOR = "---\n"


def convert(
    files: Texts,
    *,
    write: Annotated[bool, typer.Option("--write", "-w", help="Change the files instead of printing them.")] = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """Rewrite manifests of argo-events to our API group, and tell on stderr what they will do differently.

    Comments, order and spelling stay as they are. Exit code 1 if one of them cannot be loaded here.
    """
    from eventbus.cli.manifests import STDIN, find_manifests

    if write and STDIN in files:
        raise ConfigError("the standard input cannot be changed: leave out --write, or name files")
    done = [(path, _converted(path)) for path in find_manifests(files)]
    if write:
        _change_files(done)
    else:
        _print_texts([conversion.text for _, conversion in done])
    _report([conversion for _, conversion in done], output)
    if any(conversion.problems for _, conversion in done):
        raise typer.Exit(_NOT_LOADED)


def _converted(path: Path) -> Conversion:
    from eventbus.cli.manifests import read_source, shown_name
    from eventsources.kinds import ANY_KIND, DIFFERENT
    from sensors.spec.convert import Conversion, convert_text
    from sensors.spec.problems import ManifestError

    try:
        return convert_text(read_source(path), shown_name(path), ANY_KIND, DIFFERENT)
    except ManifestError as error:
        return Conversion("", 0, [], error.problems)


def _change_files(done: list[tuple[Path, Conversion]]) -> None:
    for path, conversion in done:
        if conversion.converted:
            try:
                path.write_text(conversion.text, encoding="utf-8", newline="")
            except OSError as error:
                raise ConfigError(f"{path}: cannot be written: {error.strerror}") from None


def _print_texts(texts: list[str]) -> None:
    """As one stream of documents."""
    for number, text in enumerate(texts):
        if number and not text.startswith("---"):
            typer.echo(_SEPARATOR, nl=False)
        typer.echo(text, nl=not text.endswith("\n"))


def _report(conversions: list[Conversion], output: Output) -> None:
    problems = [problem for conversion in conversions for problem in conversion.problems]
    findings = [finding for conversion in conversions for finding in conversion.findings]
    converted = sum(conversion.converted for conversion in conversions)
    if output is Output.JSON:
        report = {"converted": converted, "problems": problems, "differences": findings}
        typer.echo(msgspec.json.encode(report).decode(), err=True)
        return
    err = console(stderr=True)
    for problem in problems:
        say(("error: ", "bold red"), str(problem), to=err)
    for finding in findings:
        say(("differs: ", "yellow"), str(finding), to=err)
    totals = [counted(converted, "manifest"), counted(len(findings), "difference"), counted(len(problems), "error")]
    say(f"{totals[0]} converted, {', '.join(totals[1:])}", to=err)
