"""The `log` action writes who fired why, at most as often as it may."""

from __future__ import annotations

import logging

import pytest

from eventbus.clock import ManualClock
from eventbus.events import Event
from sensors.actions import make_action
from sensors.actions.log import LogAction, LogSpec
from tests.actions.conftest import CONTEXT, make_call


def _logged(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.name == "eventbus.action"]


def test_a_line_names_sensor_trigger_action_and_events(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "eventbus.action")
    events = {"paid": Event.new("shop", "paid", id="e-1"), "packed": Event.new("depot", "packed", id="e-2")}
    assert LogAction(LogSpec(), CONTEXT).invoke(make_call(events=events)) == "logged"
    (record,) = _logged(caplog)
    assert record.levelno == logging.INFO
    assert record.getMessage() == "sensor=orders trigger=ship action=action-1 events=paid:e-1,packed:e-2"
    facts = {name: vars(record)[name] for name in ("sensor", "trigger", "action_id", "events")}
    assert facts == {
        "sensor": "orders",
        "trigger": "ship",
        "action_id": "action-1",
        "events": {"paid": "e-1", "packed": "e-2"},
    }


def test_every_action_is_logged_unless_an_interval_is_set(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "eventbus.action")
    action = make_action("log", LogSpec(), CONTEXT)
    assert isinstance(action, LogAction)
    for _ in range(3):
        action.invoke(make_call())
    action.close()
    assert len(_logged(caplog)) == 3


def test_within_the_interval_nothing_more_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "eventbus.action")
    clock = ManualClock()
    action = LogAction(LogSpec(intervalSeconds=20), CONTEXT, monotonic=clock.monotonic)
    statuses = []
    for seconds in (0, 19, 1, 19.9, 0.1):
        clock.advance(seconds)
        statuses.append(action.invoke(make_call()))
    assert statuses == ["logged", "skipped", "logged", "skipped", "logged"]
    assert len(_logged(caplog)) == 3
