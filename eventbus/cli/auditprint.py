"""The report of an audit, for people at a terminal and for programs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from eventbus.cli.printing import console, counted, one_line, print_table, say
from eventbus.moments import span, when

if TYPE_CHECKING:
    from sensors.spark.report import AuditReport, Latency, Notice, TriggerReport

_VIOLATIONS, _NOTICES, _ROWS, _LATENCIES = 20, 10, 10, 30
_STYLES = {"kept": "bold green", "unsure": "bold yellow", "broken": "bold red"}
_ELSEWHERE = "--output json or --report has"


def report_json(report: AuditReport) -> dict[str, object]:
    """All of the report, and first of all what it comes to. Times are milliseconds since 1970."""
    from msgspec.structs import asdict

    return {"clean": report.clean, **asdict(report)}


def print_report(report: AuditReport) -> None:
    """The verdict first, then the numbers, then single cases."""
    _verdict(report)
    if report.triggers:
        say(("\nTriggers", "bold"))
        _triggers(report.triggers)
    if report.latencies:
        say(("\nLatency", "bold"))
        _latencies(report.latencies)
    _counts("Dead letters", ["reason", "letters"], [([reason], count) for reason, count in report.dead_letters.items()])
    let_go = [([each.trigger, reason], count) for each in report.triggers for reason, count in each.unused.items()]
    _counts("Events let go", ["trigger", "reason", "events"], let_go)
    _counts(
        "Hot keys", ["trigger", "key", "fired"], [([each.trigger, each.key], each.fired) for each in report.hot_keys]
    )
    _violations(report)
    lost, repeated = (sum(each.given_up for each in report.triggers), sum(each.repeated for each in report.triggers))
    _notices("At most once: lost, as the mode allows", report.given_up, lost)
    _notices("At least once: repeated, as the mode allows", report.repeated, repeated)
    _gaps(report)


def _verdict(report: AuditReport) -> None:
    from sensors.spark.words import judge

    judgement = judge(report)
    say((judgement.headline, _STYLES[judgement.level]))
    for detail in judgement.details:
        say(f"  {one_line(detail)}")
    facts = [f"{report.sensor}, generation {report.generation}"]
    if report.first is not None and report.last is not None:
        facts.append(f"events from {when(report.first)} to {when(report.last)}")
    facts.append(f"{sum(report.records.values()):,} read from {counted(len(report.records), 'topic')}")
    say((one_line("; ".join(facts)), "dim"))


def _triggers(triggers: Sequence[TriggerReport]) -> None:
    from sensors.spark.words import MODES

    names = [each.trigger for each in triggers]
    modes = [MODES.get(each.mode, each.mode or "-") for each in triggers]
    work = {
        "fired": [each.fired for each in triggers],
        "attempts": [each.attempts for each in triggers],
        "succeeded": [each.succeeded for each in triggers],
        "retries": [each.retries for each in triggers],
    }
    rest = {
        "repeated": [each.repeated for each in triggers],
        "given up": [each.given_up for each in triggers],
        "dead letters": [each.dead_lettered for each in triggers],
        "under way": [each.under_way for each in triggers],
        "held": [each.held for each in triggers],
    }
    labels = {"trigger": names, "mode": modes}
    if not console().is_terminal:
        _columns(labels, work | rest)
        return
    rest = _worth_their_place(rest)
    if _width(labels | _written(work | rest)) <= console().width:
        _columns(labels, work | rest)
        return
    _columns(labels, work)
    if rest:
        _columns({"trigger": names}, rest)


def _columns(labels: Mapping[str, list[str]], numbers: Mapping[str, list[int]]) -> None:
    columns = {**labels, **_written(numbers)}
    print_table([*columns], list(zip(*columns.values(), strict=True)), right=[*numbers])


def _written(numbers: Mapping[str, list[int]]) -> dict[str, list[str]]:
    return {name: [f"{number:,}" for number in column] for name, column in numbers.items()}


def _width(columns: Mapping[str, list[str]]) -> int:
    """Of a table on a terminal, with its lines and the spaces beside them."""
    return 1 + sum(3 + max(map(len, [name, *cells])) for name, cells in columns.items())


def _worth_their_place(columns: Mapping[str, list[int]]) -> dict[str, list[int]]:
    """A terminal is narrow: there, what is zero throughout is left out. Programs want the same columns every time."""
    return {name: numbers for name, numbers in columns.items() if any(numbers)}


def _latencies(latencies: Sequence[Latency]) -> None:
    """All of them or, where there are too many, the slowest."""
    shown: Sequence[Latency] = latencies
    if len(latencies) > _LATENCIES:
        shown = sorted(latencies, key=lambda each: -each.p99)[:_LATENCIES]
    columns = ["trigger", "stage", "actions", "p50", "p90", "p99", "longest"]
    rows = [
        [each.trigger, each.stage, f"{each.count:,}", *map(span, (each.p50, each.p90, each.p99, each.longest))]
        for each in shown
    ]
    print_table(columns, rows, right=columns[2:])
    _more(len(latencies), _LATENCIES, len(latencies))


def _counts(title: str, columns: Sequence[str], found: Iterable[tuple[list[str], int]]) -> None:
    """What there is most of comes first."""
    ranked = sorted(((texts, count) for texts, count in found if count), key=lambda item: (-item[1], item[0]))
    if ranked:
        say((f"\n{title}", "bold"))
        print_table(columns, [[*texts, f"{count:,}"] for texts, count in ranked[:_ROWS]], right=columns[-1:])
        _more(len(ranked), _ROWS, len(ranked))


def _violations(report: AuditReport) -> None:
    if not report.violations:
        return
    say(("\nBroken promises", "bold red"))
    for violation in report.violations[:_VIOLATIONS]:
        say(f"  {one_line(str(violation))}")
    _more(sum(report.counts.values()), _VIOLATIONS, len(report.violations))


def _notices(title: str, notices: Sequence[Notice], total: int) -> None:
    if not notices:
        return
    say((f"\n{title}", "bold"))
    for notice in notices[:_NOTICES]:
        say(f"  {one_line(_told(notice))}")
    _more(total, _NOTICES, len(notices))


def _told(notice: Notice) -> str:
    known = {
        "action": notice.action,
        "at": notice.place,
        "replica": ", ".join(notice.replicas),
        "ended": ", ".join(map(when, notice.times)),
    }
    details = "; ".join(f"{name} {value}" for name, value in known.items() if value)
    return f"{notice.trigger}: {notice.what} ({details})"


def _more(total: int, shown: int, listed: int) -> None:
    """Where the rest is, as far as it is anywhere: lists of single cases are cut."""
    rest = max(total, listed) - shown
    if rest > 0:
        them = "them" if listed >= total else f"the first {listed:,}"
        say((f"… and {rest:,} more; {_ELSEWHERE} {them}", "dim"))


def _gaps(report: AuditReport) -> None:
    """What nothing is said about."""
    if report.missing:
        say(("\nMissing", "bold yellow"))
        for each in report.missing[:_ROWS]:
            say(f"  {one_line(str(each))}")
        _more(len(report.missing), _ROWS, len(report.missing))
    unjudged = [([what], count) for what, count in report.not_judged.items()]
    _counts("Not judged", ["what", "how many"], unjudged)
