"""`eventbus explain`: a sensor's own account of a list of events."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import EVENTS, JOIN, Command


def test_every_event_is_accounted_for(cli: Command, orders: Path, events: Path) -> None:
    events.write_text(
        EVENTS + '{"source": "shop", "name": "paid", "id": "paid-3"}\n{"source": "bank", "name": "x", "id": "x"}'
    )
    answer = cli("explain", orders, "--events", events)
    assert answer.code == 0
    action = answer.out.partition("action ")[2][:32]
    assert (
        answer.out
        == f"""\
   1  shop/paid  paid-1
        matched  ship: paid
        holds    ship: paid=paid-1; not fired, it waits for packed
   2  warehouse/packed  packed-1
        matched  ship: packed
        fired    ship: packed=packed-1 paid=paid-1, action {action}
   3  shop/paid  paid-2
        matched  ship: paid
        holds    ship: paid=paid-2; not fired, it waits for packed
   4  shop/paid  paid-3
        matched  ship: paid
        replaced ship: paid-2 for paid (the latest event of a dependency wins)
        holds    ship: paid=paid-3; not fired, it waits for packed
   5  bank/x  x
        ignored  no dependency asks for the source `bank`; they ask for `shop`, `warehouse`

at the end:
TRIGGER  CONDITION       HOLDS        WAITS FOR
ship     packed && paid  paid=paid-3  packed
"""
    )


def test_one_trigger_can_be_singled_out(cli: Command, orders: Path, events: Path) -> None:
    other = "    - template:\n        name: invoice\n        conditions: paid\n        log: {}\n"
    orders.write_text(JOIN + other)
    answer = cli("explain", orders, "--events", events, "--trigger", "invoice")
    assert "ship:" not in answer.out
    assert answer.out.count("fired    invoice: paid=") == 2
    assert "ignored  it is for the trigger ship" in answer.out


def test_an_unknown_trigger_gets_a_suggestion(cli: Command, orders: Path, events: Path) -> None:
    answer = cli("explain", orders, "--events", events, "--trigger", "shipp")
    assert answer == (2, "", "error: the sensor has no trigger `shipp`; did you mean `ship`?\n")


def test_programs_get_a_line_per_event_and_one_for_the_end(cli: Command, orders: Path, events: Path) -> None:
    answer = cli("explain", orders, "--events", events, "--output", "json")
    *explanations, end = map(json.loads, answer.out.splitlines())
    assert [each["event"] for each in explanations] == ["paid-1", "packed-1", "paid-2"]
    assert [firing["events"] for firing in explanations[1]["fired"]] == [{"packed": "packed-1", "paid": "paid-1"}]
    assert end == {
        "waiting": [
            {"trigger": "ship", "condition": "packed && paid", "held": {"paid": "paid-2"}, "missing": [["packed"]]}
        ]
    }


def test_a_bad_event_names_its_line(cli: Command, orders: Path, events: Path) -> None:
    events.write_text(EVENTS + "{}")
    answer = cli("explain", orders, "--events", events)
    assert answer.code == 2
    assert answer.err == f"error: {events}:4: the required attribute `source` is missing\n"


def test_two_sensors_in_a_file_cannot_be_explained_at_once(cli: Command, orders: Path, events: Path) -> None:
    orders.write_text(f"{JOIN}---\n{JOIN.replace('orders', 'others')}")
    answer = cli("explain", orders, "--events", events)
    assert answer == (2, "", f"error: {orders}: there are 2 manifests in this file, and one is expected\n")


def test_on_a_terminal_there_are_colours_and_a_table(
    cli: Command, orders: Path, events: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    answer = cli("explain", orders, "--events", events)
    assert "\x1b[32mfired" in answer.out
    assert "│ ship    │ packed && paid │ paid=paid-2 │ packed    │" in answer.out


def test_an_event_cannot_take_over_the_terminal(cli: Command, orders: Path, events: Path) -> None:
    events.write_text('{"source": "shop", "name": "paid", "id": "\\u001b[2Jx"}')
    answer = cli("explain", orders, "--events", events)
    assert "   1  shop/paid   [2Jx\n" in answer.out
    assert "\x1b" not in answer.out
