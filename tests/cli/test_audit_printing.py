"""The report of an audit at a terminal, in a pipe, and for programs."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from eventbus.cli.auditprint import print_report, report_json
from eventbus.cli.printing import say_json
from eventbus.moments import exactly, span, when
from sensors.audit.violations import Breach
from sensors.spark.report import AuditReport
from tests.spark.sample_reports import (
    START,
    broken_report,
    clean_report,
    empty_report,
    hostile_report,
    partial_report,
)


def _print(report: AuditReport, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    print_report(report)
    out, err = capsys.readouterr()
    assert err == ""
    return out


def _section(out: str, title: str) -> list[str]:
    return out.partition(f"\n{title}\n")[2].partition("\n\n")[0].splitlines()


def test_the_verdict_comes_first(capsys: pytest.CaptureFixture[str]) -> None:
    assert _print(clean_report(), capsys).startswith("Every promise was kept.\nprod/default/orders, generation 7; ")
    broken = _print(broken_report(), capsys)
    assert broken.startswith("34 promises were broken.\n  10 lost, 9 duplicated, 10 out of order, 5 unexplained\n")
    partial = _print(partial_report(), capsys).splitlines()
    assert partial[:3] == [
        "Part of the history is missing and part was not judged; in the rest every promise was kept.",
        "  missing: 238,313 offsets of prod-default",
        "  missing: 1,900 offsets of prod-default-orders-trigger",
    ]
    assert _print(empty_report(), capsys) == (
        "There was nothing to judge: no record is of this time.\n"
        "prod/default/orders, generation 1; 0 read from 0 topics\n"
    )


@pytest.mark.parametrize(
    ("report", "colour"), [(clean_report(), "32"), (partial_report(), "33"), (broken_report(), "31")]
)
def test_the_verdict_has_the_colour_of_a_traffic_light(
    report: AuditReport, colour: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert _print(report, capsys).startswith(f"\x1b[1;{colour}m")


def test_every_trigger_has_a_row_with_all_its_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    head, ship, *others = _section(_print(broken_report(), capsys), "Triggers")
    assert head.split("  ")[0] == "TRIGGER"
    assert head.endswith("RETRIES  REPEATED  GIVEN UP  DEAD LETTERS  UNDER WAY  HELD")
    assert ship.split() == [
        *("ship", "at", "most", "once", "54,128", "54,415", "53,311", "287"),
        *("0", "9", "817", "3", "22"),
    ]
    assert len(others) == 4
    assert len({len(line) for line in (head, ship, *others)}) == 1  # numbers stand below each other


def test_programs_get_the_same_columns_whatever_is_in_them(capsys: pytest.CaptureFixture[str]) -> None:
    heads = [_section(_print(report, capsys), "Triggers")[0].split() for report in (clean_report(), broken_report())]
    assert heads[0] == heads[1]


@pytest.mark.parametrize("width", [80, 200])
def test_a_table_is_cut_in_two_where_a_terminal_is_too_narrow(
    width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(width))
    out = _print(broken_report(), capsys).partition("Latency")[0]
    assert "│ ship            │ at most once  │ 54,128 │   54,415 │    53,311 │     287 │" in out
    assert out.count("ship  ") == (2 if width == 80 else 1)
    assert "│        0 │        9 │          817 │         3 │   22 │" in out
    assert "dead letters" not in _print(clean_report(), capsys)  # all of them are zero


def test_latencies_reasons_and_keys_have_their_tables(capsys: pytest.CaptureFixture[str]) -> None:
    out = _print(broken_report(), capsys)
    assert _section(out, "Latency")[1].split() == [
        *("ship", "event", "to", "action", "54,128"),
        *("56", "ms", "200", "ms", "967", "ms", "7.97", "s"),
    ]
    assert [line.split() for line in _section(out, "Dead letters")] == [
        ["REASON", "LETTERS"],
        ["action-failed", "943"],
        ["no-correlation-key", "41"],
        ["expired", "12"],
        ["invalid-event", "3"],
    ]
    assert _section(out, "Events let go")[1].split() == ["ship", "superseded", "449"]
    assert _section(out, "Hot keys")[1].split() == ["ship", "customer-433021", "90"]
    assert _section(out, "Not judged")[1].split()[-1] == "1,204"
    assert _section(out, "Missing")[0] == "  prod-default[0]: the offsets 0 to 120,310 are gone"


def test_of_many_latencies_the_slowest_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    report = clean_report(60, 3)
    rows = _section(_print(report, capsys), "Latency")
    assert len(rows) == 1 + 30 + 1
    assert rows[-1] == "… and 150 more; --output json or --report has them"
    slowest = max(report.latencies, key=lambda each: each.p99)
    assert rows[1].startswith(f"{slowest.trigger} ")


def test_violations_are_told_in_full_up_to_a_number(capsys: pytest.CaptureFixture[str]) -> None:
    report = broken_report()
    lines = _section(_print(report, capsys), "Broken promises")
    assert lines[:-1] == [f"  {violation}" for violation in report.violations[:20]]
    assert lines[-1] == "… and 14 more; --output json or --report has them"
    assert len(_section(_print(broken_report(20), capsys), "Broken promises")) == 20
    many = replace(report, counts={Breach.LOST: 5000})
    assert _section(_print(many, capsys), "Broken promises")[-1] == (
        "… and 4,980 more; --output json or --report has the first 34"
    )


def test_losses_and_repeats_name_replicas_and_times(capsys: pytest.CaptureFixture[str]) -> None:
    report = broken_report()
    out = _print(report, capsys)
    lost = _section(out, "At most once: lost, as the mode allows")
    assert len(lost) == 11
    assert lost[-1] == "… and 8 more; --output json or --report has them"
    [first, *_] = _section(out, "At least once: repeated, as the mode allows")
    times = ", ".join(when(time) for time in report.repeated[0].times)
    assert first == (
        f"  invoice: succeeded 2 times (action {report.repeated[0].action}; at prod-default-orders-action[0]@7000; "
        f"replica orders-7c9d-0, orders-7c9d-1; ended {times})"
    )


@pytest.mark.parametrize("terminal", [False, True])
def test_what_events_hold_cannot_take_over_the_terminal(
    terminal: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")
    out = _print(hostile_report(), capsys)
    assert "\x1b[2J" not in out
    assert not set("\x00\u202e\ud800") & set(out)
    if not terminal:
        assert "\x1b" not in out
        assert not [line for line in out.splitlines() if line.startswith("&amp;")]  # no line break of theirs


def test_programs_get_everything_and_the_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    report = broken_report()
    say_json(report_json(report))
    found = json.loads(capsys.readouterr().out)
    assert found["clean"] is False
    assert (found["since"], found["first"]) == (START, START + 1234)
    assert found["hours"][0]["start"] == START
    assert found["repeated"][0]["times"] == list(report.repeated[0].times)
    assert found["counts"] == {"lost": 10, "duplicated": 9, "out_of_order": 10, "unexplained": 5}
    assert len(found["violations"]) == 34
    assert found["violations"][0]["breach"] == "unexplained"
    assert found["missing"][0] == {"topic": "prod-default", "partition": 0, "start": 0, "end": 120_311}
    assert {*found} == {"clean", *report.__struct_fields__}
    say_json(report_json(clean_report()))
    assert json.loads(capsys.readouterr().out)["clean"] is True


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (1000, "1 s"),
        (1234, "1.23 s"),
        (59_999, "59.9 s"),
        (63_000, "1.05 min"),
        (3_599_999, "59.9 min"),
        (3_600_000, "1 h 0 min"),
        (90_000_000, "1 d 1 h"),
    ],
)
def test_spans_keep_what_matters(milliseconds: int, text: str) -> None:
    assert span(milliseconds) == text


def test_times_that_no_calendar_has_are_told_as_they_are() -> None:
    assert (when(2**62), exactly(2**62)) == ("4611686018427387904 ms", "4611686018427387904 ms")
    assert (when(-1), exactly(-1)) == ("-", "-1 ms")
    assert exactly(START) == "2026-01-01T00:00:00.000Z"
