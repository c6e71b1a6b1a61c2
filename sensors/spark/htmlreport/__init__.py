"""A report as one page: no script, font, picture or anything else from elsewhere, and none in it.

=========== ===========================================================================================================
`sections`  what is told in words and numbers
`timeline`  when it happened, from `hours`
`latency`   how long it took, on a `scale`
`markup`    elements and tables; everything that is put into them is text
`style`     how it looks
=========== ===========================================================================================================
"""

from __future__ import annotations

from xml.etree.ElementTree import Element, SubElement

from eventbus.moments import exactly
from sensors.spark.htmlreport import sections
from sensors.spark.htmlreport.latency import latency_card
from sensors.spark.htmlreport.markup import add, document, tag
from sensors.spark.htmlreport.style import STYLE
from sensors.spark.htmlreport.timeline import timeline_card
from sensors.spark.report import AuditReport
from sensors.spark.words import Judgement, Level, judge

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""Should anything ever get past the escaping, a browser still would not run or fetch it."""
_SIGNS = {
    Level.KEPT: "M15 27l8 8 15-17",
    Level.UNSURE: "M26 13v17M26 38.5v.5",
    Level.BROKEN: "M17 17l18 18M35 17l-18 18",
}
_LOST = "The mode of these triggers is at most once: whoever had taken the action did not come to tell how it ended."
_REPEATED = "The mode of these triggers is at least once: the action succeeded more than once."


def html_report(report: AuditReport) -> str:
    """A file for a browser. The same report makes the same file."""
    judgement = judge(report)
    main = tag("main", _header(report), _verdict(judgement), sections.tiles(report))
    optional = {
        "firings": timeline_card(report),
        "broken promises": sections.violations(report),
        "triggers": sections.triggers(report),
        "latencies": latency_card(report),
        "losses": sections.notices(
            "Lost, at most once", _LOST, report.given_up, sum(each.given_up for each in report.triggers)
        ),
        "repeats": sections.notices(
            "Repeated, at least once", _REPEATED, report.repeated, sum(each.repeated for each in report.triggers)
        ),
        "dead letters": sections.dead_letters(report),
        "events let go": sections.let_go(report),
        "hot keys": sections.hot_keys(report),
        "records": sections.records(report),
    }
    add(main, *optional.values(), *sections.gaps(report))
    add(main, _footer([name for name, section in optional.items() if section is None]))
    page = tag("html", _head(report, judgement), tag("body", main), lang="en")
    return document(page)


def _head(report: AuditReport, judgement: Judgement) -> Element:
    head = tag("head", tag("meta", charset="utf-8"))
    head.append(tag("meta", name="viewport", content="width=device-width, initial-scale=1"))
    SubElement(head, "meta", {"http-equiv": "Content-Security-Policy", "content": _POLICY})
    head.append(tag("title", f"{report.sensor}: {judgement.headline}"))
    SubElement(head, "style").text = STYLE
    return head


def _header(report: AuditReport) -> Element:
    asked = [
        *([f"from {_to_the_second(report.since)}"] if report.since is not None else []),
        *([f"until {_to_the_second(report.until)}"] if report.until is not None else []),
    ]
    found = "no events"
    if report.first is not None and report.last is not None:
        found = f"events from {_to_the_second(report.first)} to {_to_the_second(report.last)}"
    facts = [f"generation {report.generation}", found, f"asked for: {' '.join(asked) or 'all there is'}"]
    return tag("header", tag("p", "Audit of a sensor", kind="over"), tag("h1", report.sensor), _facts(facts))


def _to_the_second(timestamp: int) -> str:
    date, separator, time = exactly(timestamp).partition("T")
    return f"{date} {time[:8]}" if separator else date


def _facts(facts: list[str]) -> Element:
    return tag("p", *(tag("span", fact) for fact in facts), kind="facts")


def _verdict(judgement: Judgement) -> Element:
    sign = tag("svg", viewBox="0 0 52 52", aria_hidden="true")
    add(sign, tag("circle", cx="26", cy="26", r="26"), tag("path", d=_SIGNS[judgement.level]))
    words = tag("div", tag("strong", judgement.headline))
    if judgement.details:
        add(words, tag("ul", *(tag("li", detail) for detail in judgement.details)))
    return tag("div", sign, words, kind=f"verdict wide {judgement.level}", role="status")


def _footer(absent: list[str]) -> Element:
    none = f"None of these were found: {', '.join(absent)}." if absent else ""
    return tag("footer", tag("p", none) if none else None, tag("p", "All times are UTC."))
