"""The report as a page: all of it is there, nothing in it comes from elsewhere, and nobody can break out of it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser

import pytest
from msgspec.structs import replace

from sensors.audit.violations import Breach
from sensors.spark.htmlreport import html_report
from sensors.spark.htmlreport.hours import COLUMNS, timeline
from sensors.spark.htmlreport.markup import visible
from sensors.spark.htmlreport.scale import Axis, stages
from sensors.spark.records import Missing
from sensors.spark.report import INVOKING, AuditReport, Bucket, Hour
from sensors.spark.words import Level, judge, promises
from tests.spark.sample_reports import (
    HOSTILE,
    HOUR,
    START,
    broken_report,
    clean_report,
    empty_report,
    hostile_report,
    partial_report,
)

REPORTS = {
    "clean": clean_report(),
    "broken": broken_report(),
    "partial": partial_report(),
    "empty": empty_report(),
    "hostile": hostile_report(),
    "one hour": clean_report(1, 1),
    "no hour": clean_report(3, 0),
    "a month of 60 triggers": clean_report(60, 720),
    "10,000 hours": clean_report(2, 10_000),
}
VOID = {"meta"}
FETCHED = {"script", "link", "img", "image", "iframe", "object", "embed", "base", "form", "use", "foreignobject"}


class Page(HTMLParser):
    """What a browser would see. It insists on every element being closed, in the right order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: Counter[str] = Counter()
        self.classes: Counter[str] = Counter()
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += attrs
        self.classes.update((dict(attrs).get("class") or "").split())
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.texts.append(data)


@pytest.fixture(params=REPORTS, name="report")
def _report(request: pytest.FixtureRequest) -> AuditReport:
    return REPORTS[request.param]


def test_every_page_is_well_formed_and_the_same_every_time(report: AuditReport) -> None:
    text = html_report(report)
    page = Page(text)
    assert text.startswith("<!doctype html>\n")
    assert (page.tags["html"], page.tags["main"], page.tags["h1"], page.tags["style"]) == (1, 1, 1, 1)
    assert text == html_report(report)
    text.encode()


def test_nothing_comes_from_elsewhere(report: AuditReport) -> None:
    text = html_report(report)
    page = Page(text)
    assert not FETCHED & page.tags.keys()
    assert not [name for name, _ in page.attributes if name in ("src", "href", "xlink:href") or name.startswith("on")]
    markup = re.sub(r">[^<]*<", "><", text.replace(text.partition("<style>")[2].partition("</style>")[0], ""))
    style = text.partition("<style>")[2].partition("</style>")[0]
    for found in (markup, style):
        assert not re.search(r"https?://|src=|@import|url\(|javascript:", found)


def _numbers(report: AuditReport) -> Iterator[int]:
    yield from report.records.values()
    for each in report.triggers:
        yield from (each.fired, each.attempts, each.succeeded, each.retries, each.repeated, each.given_up)
        yield from (each.dead_lettered, each.under_way, each.held, *each.unused.values())
    yield from (latency.count for latency in report.latencies)
    yield from (key.fired for key in report.hot_keys)
    yield from (*report.dead_letters.values(), *report.not_judged.values())
    yield from (each.end - each.start for each in report.missing)
    yield from report.counts.values()


def test_every_number_and_every_case_is_there() -> None:
    report = broken_report()
    texts = Page(html_report(report)).texts
    shown = set(texts) | {word for text in texts for word in re.findall(r"[\d,]*\d", text)}
    assert {f"{number:,}" for number in _numbers(report)} <= shown
    for violation in report.violations:
        assert {violation.what, violation.place, *violation.events} <= set(texts)
    for notice in (*report.given_up, *report.repeated):
        assert {notice.action, notice.what, ", ".join(notice.replicas)} <= set(texts)
    assert "2026-01-02T15:00:12.345Z" in texts
    assert {key.key for key in report.hot_keys} <= set(texts)
    assert {"7.97 s", "1.05 min", "931 ms"} <= set(texts)
    assert promises()["I3"] in texts


def test_the_head_tells_which_sensor_and_which_time() -> None:
    texts = Page(html_report(broken_report())).texts
    assert {"prod/default/orders", "generation 7", "34 promises were broken."} <= set(texts)
    assert "events from 2026-01-01 00:00:01 to 2026-01-03 23:59:55" in texts
    assert "asked for: from 2026-01-01 00:00:00 until 2026-01-04 00:00:00" in texts
    assert "prod/default/orders: 34 promises were broken." in texts


def test_text_from_outside_is_text_and_nothing_else() -> None:
    text = html_report(hostile_report())
    page = Page(text)
    assert "<script" not in text
    assert page.tags["script"] == 0
    assert not set("\x00\x1b\u202e\ud800") & set(text)
    seen = visible(HOSTILE)
    assert seen == "</title><script>alert('1')</script>\"']]> &amp;\ufffdevil\ufffd[2J\ufffd\ufffd"
    assert page.texts.count(seen) > 15
    assert seen in [value for name, value in page.attributes if name == "title"]


def test_dead_letters_losses_and_repeats_are_marked_in_time() -> None:
    clean, broken = (Page(html_report(report)) for report in (clean_report(), broken_report()))
    assert (clean.classes["dead"], clean.classes["notice"]) == (0, 0)
    assert broken.classes["dead"] == 1 + 6 + 4 + 2 + 4  # the legend; all triggers; ship, invoice, fraud-check
    assert broken.classes["notice"] == 1 + 3 + 3
    assert broken.texts.count("12 broken") == 1
    assert any("2026-01-02 14:00, hour" in text and "dead letters" in text for text in broken.texts)


def test_a_long_time_is_added_up_and_nothing_gets_lost() -> None:
    report = clean_report(2, 10_000)
    times = timeline(report.hours)
    assert times is not None
    assert 100 < times.columns <= COLUMNS + 1
    assert sum(times.total.fired.values()) == sum(each.fired for each in report.triggers)
    assert times.step % HOUR == 0
    assert len(list(times.ticks())) <= 8


@pytest.mark.parametrize(("triggers", "lanes"), [(1, 1), (12, 12), (13, 12), (60, 12)])
def test_only_so_many_triggers_have_a_lane_of_their_own(triggers: int, lanes: int) -> None:
    report = clean_report(triggers, 5)
    times = timeline(report.hours)
    assert times is not None
    assert len(times.lanes) == lanes
    assert times.lanes[0].name == "ship"
    assert (times.lanes[-1].name == f"{triggers - 11} others") == (triggers > 12)
    assert sum(sum(lane.fired.values()) for lane in times.lanes) == sum(each.fired for each in report.triggers)
    assert Page(html_report(report)).classes["lane"] == (lanes if triggers > 1 else 0)


def test_one_hour_does_not_fill_the_page() -> None:
    times = timeline([Hour(START, "ship", 5, 5, 0)])
    assert times is not None
    assert (times.columns, times.total.fired) == (12, {5: 5})
    assert times.column(START) == 5
    assert times.column(START - 10 * HOUR) is None


def test_times_that_cannot_be_do_not_stretch_the_timeline() -> None:
    times = timeline([Hour(START, "ship", 5, 5, 0), Hour(2**62, "ship", 1, 1, 0), Hour(-HOUR, "x", 1, 1, 0)])
    assert times is not None
    assert (times.step, sum(times.total.fired.values())) == (HOUR, 5)
    assert timeline([Hour(2**62, "ship", 1, 1, 0)]) is None


def test_nothing_at_all_is_said_in_a_few_words() -> None:
    page = Page(html_report(empty_report()))
    assert page.tags["section"] == 0
    assert "There was nothing to judge: no record is of this time." in page.texts
    assert any(text.startswith("None of these were found: firings, broken promises, ") for text in page.texts)


def test_what_is_long_can_be_unfolded_and_what_was_cut_is_said() -> None:
    report = broken_report(1000)
    page = Page(html_report(replace(report, counts={Breach.LOST: 3412})))
    assert {"992 more", "1,000 of 3,412 are listed"} <= set(page.texts)
    assert page.tags["details"] == page.tags["summary"] > 1


@pytest.mark.parametrize(
    ("report", "level", "headline"),
    [
        (clean_report(), Level.KEPT, "Every promise was kept."),
        (broken_report(1), Level.BROKEN, "1 promise was broken."),
        (broken_report(2000), Level.BROKEN, "2,000 promises were broken."),
        (empty_report(), Level.UNSURE, "There was nothing to judge: no record is of this time."),
        (
            replace(clean_report(), missing=[Missing("t", 0, 0, 1)]),
            Level.UNSURE,
            "Part of the history is missing; in the rest every promise was kept.",
        ),
        (
            replace(clean_report(), not_judged={"odd ones": 2, "none": 0}),
            Level.UNSURE,
            "Part of the history was not judged; in the rest every promise was kept.",
        ),
        (
            partial_report(),
            Level.UNSURE,
            "Part of the history is missing and part was not judged; in the rest every promise was kept.",
        ),
    ],
)
def test_the_verdict(report: AuditReport, level: Level, headline: str) -> None:
    judgement = judge(report)
    assert (judgement.level, judgement.headline) == (level, headline)
    assert Page(html_report(report)).classes[level] == 1


def test_the_verdict_says_what_is_missing_and_what_was_not_judged() -> None:
    assert judge(partial_report()).details == [
        "missing: 238,313 offsets of prod-default",
        "missing: 1,900 offsets of prod-default-orders-trigger",
        "not judged: actions of which an event is gone (1,204)",
        "not judged: actions of another generation (3)",
    ]


def test_percentiles_are_measured_where_one_trigger_tells_and_guessed_from_the_histogram_otherwise() -> None:
    one = {stage.stage: stage.marks() for stage in stages(clean_report(1, 5))}
    [latency] = [each for each in clean_report(1, 5).latencies if each.stage == INVOKING]
    assert [length for length, _ in one[INVOKING].values()] == [latency.p50, latency.p90, latency.p99]
    buckets = [Bucket("s", 1, 50), Bucket("s", 10, 40), Bucket("s", 100, 10)]
    [guessed] = stages(replace(empty_report(), histogram=buckets))
    assert [text for _, text in guessed.marks().values()] == ["≈ 1 ms", "≈ 10 ms", "≈ 80 ms"]


def test_a_scale_has_a_place_for_every_length() -> None:
    axis = Axis.around([0, 3_600_000])
    assert (axis.place(0), axis.place(3_600_000), axis.place(10**15)) == (0, 1, 1)
    assert [text for _, text in axis.ticks()] == [
        *("0 ms", "1 ms", "10 ms", "100 ms", "1 s", "10 s"),
        *("1 min", "10 min", "1 h"),
    ]
    assert Axis.around([]).place(0) == 0
