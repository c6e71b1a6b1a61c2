"""`eventbus graph`: everything that a manifest says is in the picture, and nothing in it can break out of it."""

from __future__ import annotations

from pathlib import Path
from xml.etree.ElementTree import fromstring

import pytest

from tests.cli.conftest import JOIN, Command

HOSTILE = 'sh"op</title><script>#'
SVG = "{http://www.w3.org/2000/svg}"


def test_mermaid_has_every_dependency_condition_and_trigger(cli: Command, orders: Path) -> None:
    answer = cli("graph", orders)
    assert answer.code == 0
    assert answer.out.splitlines() == [
        "graph LR",
        '  d0["paid<br/>shop / paid"]',
        '  d1["packed<br/>warehouse / packed"]',
        '  c0{{"packed &amp;&amp; paid"}}',
        '  t0(["ship<br/>log, at most once"])',
        "  d0 --> c0",
        "  d1 --> c0",
        "  c0 --> t0",
    ]


def test_the_picture_has_them_too_and_a_line_for_every_arrow(cli: Command, orders: Path) -> None:
    picture = fromstring(cli("graph", orders, "--format", "svg").out)
    texts = [each.text for each in picture.iter(f"{SVG}text")]
    assert texts == [
        *("paid", "shop / paid", "packed", "warehouse / packed"),
        "packed && paid",
        *("ship", "log, at most once"),
    ]
    assert len(list(picture.iter(f"{SVG}path"))) == 3


@pytest.mark.parametrize("format_", ["svg", "mermaid"])
def test_what_a_manifest_says_is_text_and_nothing_else(cli: Command, orders: Path, format_: str) -> None:
    orders.write_text(JOIN.replace("eventSourceName: shop", f"eventSourceName: '{HOSTILE}'"))
    answer = cli("graph", orders, "--format", format_)
    assert answer.code == 0
    assert "<script>" not in answer.out
    if format_ == "svg":
        assert f"{HOSTILE} / paid" in [each.text for each in fromstring(answer.out).iter(f"{SVG}text")]
    else:
        assert "sh#quot;op&lt;/title&gt;&lt;script&gt;#35;" in answer.out


def test_what_does_not_fit_is_cut_and_shown_in_full_under_the_mouse(cli: Command, orders: Path) -> None:
    long = "n" * 60
    orders.write_text(JOIN.replace("name: ship", f"name: {long}"))
    picture = fromstring(cli("graph", orders, "--format", "svg").out)
    assert long in [each.text for each in picture.iter(f"{SVG}title")]
    assert f"{long[:33]}…" in [each.text for each in picture.iter(f"{SVG}text")]


def test_what_is_said_beyond_a_condition_stands_below_it(cli: Command, orders: Path) -> None:
    rules = "correlate: {by: data.order}\n        within: 1h30m\n        onceWithin: 1500ms\n        count: {paid: 2}"
    more = 'dedupe: {within: 1h}\n        conditionsReset: [{byTime: {cron: "@daily"}}]'
    orders.write_text(JOIN.replace("log: {}", f"log: {{}}\n        {rules}\n        {more}"))
    answer = cli("graph", orders)
    below = "by data.order, 2 × paid, within 1h30m, once in 1s500ms, no repeats, reset at @daily"
    assert f'  c0{{{{"packed &amp;&amp; paid<br/>{below}"}}}}' in answer.out.splitlines()
