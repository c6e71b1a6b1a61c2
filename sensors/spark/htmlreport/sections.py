"""What the page tells in words and numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from xml.etree.ElementTree import Element

from eventbus.moments import exactly
from sensors.spark.htmlreport.markup import Column, Content, add, bar, card, folded_table, table, tag
from sensors.spark.report import AuditReport, Notice, TriggerReport
from sensors.spark.words import MODES, promises

_FEW, _MANY = 8, 15


def tiles(report: AuditReport) -> Element | None:
    """The sums, at a glance."""
    triggers = report.triggers
    if not triggers:
        return None
    facts = [
        ("fired", sum(each.fired for each in triggers), False),
        ("succeeded", sum(each.succeeded for each in triggers), False),
        ("retries", sum(each.retries for each in triggers), False),
        ("repeated", sum(each.repeated for each in triggers), False),
        ("given up", sum(each.given_up for each in triggers), False),
        ("dead letters", sum(report.dead_letters.values()), True),
        ("under way", sum(each.under_way for each in triggers), False),
        ("held", sum(each.held for each in triggers), False),
    ]
    whole = tag("dl", kind="tiles wide")
    for name, number, alarming in facts:
        kind = "idle" if not number else "alarm" if alarming else ""
        whole.append(tag("div", tag("dt", name), _big(number), kind=kind))
    return whole


def _big(number: int) -> Element:
    """What does not fit is rounded down; the exact number is in the tables."""
    if number < 1_000_000:
        return tag("dd", number)
    size, unit = (10**9, "bn") if number >= 10**9 else (10**6, "M")
    return tag("dd", f"{number * 100 // size / 100:,.2f} {unit}", title=f"{number:,}")


def violations(report: AuditReport) -> Element | None:
    if not report.violations and report.clean:
        return None
    known = promises()
    told = tag("dl", kind="promises")
    for name in sorted({each.invariant for each in report.violations} & known.keys(), key=lambda name: int(name[1:])):
        add(told, tag("dt", name), tag("dd", known[name]))
    columns = [
        *(Column("promise", "short"), Column("breach", "short"), Column("what", "what")),
        *(Column(name) for name in ("trigger", "events", "place", "replica")),
    ]
    rows: list[list[Content]] = [
        [
            each.invariant,
            tag("span", each.breach.replace("_", " "), kind="breach"),
            each.what,
            each.trigger,
            _codes(each.events),
            _codes([each.place]) if each.place else "",
            each.replica,
        ]
        for each in report.violations
    ]
    note = _listed(len(rows), sum(report.counts.values()))
    return card("Broken promises", told, *folded_table(columns, rows, _FEW, stacked=True), note=note, kind="wide")


def triggers(report: AuditReport) -> Element | None:
    if not report.triggers:
        return None
    names = ("fired", "attempts", "succeeded", "retries", "repeated", "given up", "dead letters", "under way", "held")
    columns = [Column("trigger"), Column("mode"), *(Column(name, "number") for name in names)]
    ranked = sorted(report.triggers, key=lambda each: (-each.fired, each.trigger))
    rows = folded_table(columns, [_trigger_row(each) for each in ranked], _MANY)
    return card(
        "Triggers", *rows, note=f"{len(ranked):,}, the busiest first" if len(ranked) > 1 else "", kind="wide first"
    )


def _trigger_row(each: TriggerReport) -> list[Content]:
    dead: Content = tag("b", each.dead_lettered, kind="alarm") if each.dead_lettered else 0
    numbers = [each.fired, each.attempts, each.succeeded, each.retries, each.repeated, each.given_up]
    return [each.trigger, MODES.get(each.mode, each.mode or "–"), *numbers, dead, each.under_way, each.held]


def notices(title: str, why: str, cases: Sequence[Notice], total: int) -> Element | None:
    """Actions that their mode allows to be lost or repeated."""
    if not cases and not total:
        return None
    columns = [
        *(Column("trigger"), Column("action, place"), Column("what", "what")),
        *(Column("replicas"), Column("attempts ended")),
    ]
    rows: list[list[Content]] = [
        [
            case.trigger,
            _codes([case.action, *([case.place] if case.place else [])]),
            case.what,
            ", ".join(case.replicas),
            _codes([exactly(time) for time in case.times]),
        ]
        for case in cases
    ]
    body = folded_table(columns, rows, _FEW, stacked=True) if rows else []
    return card(title, tag("p", why, kind="none"), *body, note=_listed(len(rows), total), kind="wide")


def dead_letters(report: AuditReport) -> Element | None:
    columns = [Column("reason"), Column("letters", "number"), Column("", "bar")]
    found = sorted(report.dead_letters.items(), key=lambda item: (-item[1], item[0]))
    return _bars("Dead letters", columns, [((reason,), count) for reason, count in found if count], kind="alarming")


def let_go(report: AuditReport) -> Element | None:
    """Events that were not used, and why."""
    found = [
        ((each.trigger, reason), count)
        for each in report.triggers
        for reason, count in sorted(each.unused.items())
        if count
    ]
    found.sort(key=lambda item: (-item[1], item[0]))
    columns = [Column("trigger"), Column("reason"), Column("events", "number"), Column("", "bar")]
    return _bars("Events let go", columns, found)


def hot_keys(report: AuditReport) -> Element | None:
    found = [((each.trigger, each.key), each.fired) for each in report.hot_keys]
    columns = [Column("trigger"), Column("key"), Column("fired", "number"), Column("", "bar")]
    return _bars("Hot keys", columns, found)


def records(report: AuditReport) -> Element | None:
    columns = [Column("topic"), Column("records", "number"), Column("", "bar")]
    return _bars("Records read", columns, [((topic,), count) for topic, count in sorted(report.records.items())])


def _bars(
    title: str, columns: Sequence[Column], found: Sequence[tuple[tuple[str, ...], int]], kind: str = ""
) -> Element | None:
    if not found:
        return None
    most = max(count for _, count in found)
    rows: list[list[Content]] = [[*texts, count, bar(count, most)] for texts, count in found]
    total = f"{sum(count for _, count in found):,}"
    return card(title, *folded_table(columns, rows, _FEW), note=total, kind=kind)


def gaps(report: AuditReport) -> Iterator[Element]:
    """What nothing is said about."""
    if report.missing:
        columns = [Column("topic"), *(Column(name, "number") for name in ("partition", "from", "to", "offsets"))]
        rows: list[list[Content]] = [
            [each.topic, str(each.partition), str(each.start), str(each.end - 1), each.end - each.start]
            for each in report.missing
        ]
        yield card("Missing", *folded_table(columns, rows, _FEW), note="removed by retention, and in no archive")
    unjudged = [(what, count) for what, count in report.not_judged.items() if count]
    if unjudged:
        yield card("Not judged", table([Column("what"), Column("how many", "number")], unjudged))


def _codes(texts: Sequence[str]) -> Element:
    return tag("span", *(tag("code", text) for text in texts))


def _listed(listed: int, total: int) -> str:
    return f"{listed:,}" if total <= listed else f"{listed:,} of {total:,} are listed"
