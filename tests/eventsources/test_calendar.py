"""Ticks are a function of the schedule and the time, and every one of them becomes one event, whoever leads."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from threading import Event as Flag
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventbus import Bus
from eventbus.clock import ManualClock
from eventsources.base import Context, Identity
from eventsources.journal import Journal
from eventsources.sources.calendar import MOST_AT_ONCE, CalendarSource, CalendarSpec, Ticks
from sensors.spec.problems import ManifestError
from tests.eventsources.serving import events_on, manifest, through_journal

IDENTITY = Identity("clock", "tick", "calendar")
SECOND, MINUTE, HOUR = 1000, 60_000, 3_600_000


def ticks(**spec: Any) -> Ticks:
    return Ticks(CalendarSpec.model_validate(spec))


def at(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def walked(calendar: Ticks, start: str, end: str) -> list[str]:
    """All ticks between two times, for somebody who is always there."""
    last, found = at(start), []
    while (due := calendar.due(last, last)).next is not None and due.next <= at(end):
        last = due.next
        found.append(datetime.fromtimestamp(last / 1000, UTC).strftime("%m-%d %H:%M"))
    return found


def test_a_schedule_in_its_own_time_zone_across_daylight_saving() -> None:
    calendar = ticks(schedule="30 2 * * *", timezone="Europe/Berlin")
    assert walked(calendar, "2026-03-27", "2026-03-31") == ["03-27 01:30", "03-28 01:30", "03-29 01:00", "03-30 00:30"]
    assert walked(calendar, "2026-10-23T12:00", "2026-10-27") == ["10-24 00:30", "10-25 00:30", "10-26 01:30"]


def test_leap_days_and_the_end_of_the_century() -> None:
    assert walked(ticks(schedule="0 0 29 2 *"), "2026-01-01", "2036-01-01") == ["02-29 00:00"] * 2
    assert walked(ticks(schedule="0 0 31 12 *"), "2099-01-01", "2100-01-01") == ["12-31 00:00"]


def test_excluded_days_and_times() -> None:
    calendar = ticks(
        schedule="0 */12 * * *",
        timezone="Europe/Berlin",
        exclusionDates=["2026-12-24", "2026-12-25T12:00:00+01:00", "2026-12-26T00:00:00"],
    )
    assert walked(calendar, "2026-12-23T12:00", "2026-12-26T12:00") == ["12-24 23:00", "12-26 11:00"]


def test_an_interval_comes_to_the_same_ticks_wherever_it_begins() -> None:
    calendar = ticks(interval="90s")
    seen = [calendar.due(last, last).next for last in range(at("2026-01-01"), at("2026-01-01") + 90 * SECOND, 7777)]
    assert len(set(seen)) == 1


@given(
    st.sampled_from(["catchUp", "fold", "skip"]),
    st.lists(st.integers(1, 40 * SECOND), min_size=1, max_size=30),
)
def test_nothing_ticks_twice_and_nothing_that_is_waited_for_is_missed(missed: str, steps: list[int]) -> None:
    """`steps` is when somebody looks: seldom enough that ticks are missed."""
    calendar = ticks(interval="10s", missed=missed, maxMissed="1h")
    last = now = start = at("2026-05-05T12:00:03")
    made: list[int] = []
    for step in steps:
        now += step
        due = calendar.due(last, now)
        made += due.ticks
        assert all(last < tick <= now for tick in due.ticks)
        last = due.last
    assert made == sorted(set(made))
    every = list(range(-(-start // 10_000) * 10_000, now + 1, 10_000))
    if missed == "catchUp":
        assert made == every
    elif missed == "fold":
        assert set(made) <= set(every)
        assert not every or (made and made[-1] == every[-1])


def test_what_is_too_long_ago_is_let_go() -> None:
    due = ticks(interval="1m", maxMissed="5m").due(at("2026-01-01"), at("2026-01-02"))
    assert due.ticks == tuple(range(at("2026-01-01T23:55"), at("2026-01-02") + 1, MINUTE))
    assert ticks(interval="1m", missed="skip").due(at("2026-01-01"), at("2026-01-01T01:00:30")).ticks == ()
    argo = ticks(interval="1m", persistence={"catchup": {"enabled": True, "maxDuration": "2m"}})
    assert len(argo.due(at("2026-01-01"), at("2026-01-02")).ticks) == 3


def test_who_skips_does_not_count_what_was_skipped() -> None:
    """However many ticks there were."""
    decades = ticks(interval="100ms", missed="skip").due(0, at("2026-01-01T00:00:00"))
    assert len(decades.ticks) == 11


def test_many_missed_ticks_come_in_portions() -> None:
    calendar = ticks(interval="1s", maxMissed="1h")
    last, now, made = at("2026-01-01"), at("2026-01-01T01:00"), 0
    while (due := calendar.due(last, now)).ticks:
        assert len(due.ticks) <= MOST_AT_ONCE
        made += len(due.ticks)
        last = due.last
    assert made == 3600


# --- as a source ------------------------------------------------------------------------------------------------------


class Clockwork(ManualClock):
    """Time that moves while somebody waits for it."""

    def __init__(self, stop_at: int) -> None:
        super().__init__(at("2026-05-05T12:00:00"))
        self._stop_at = stop_at
        self.stop = _Stop(self)

    def over(self) -> bool:
        return self.now_ms() >= self._stop_at


class _Stop(Flag):
    def __init__(self, clock: Clockwork) -> None:
        super().__init__()
        self._clock = clock

    def is_set(self) -> bool:
        return self._clock.over()

    def wait(self, timeout: float | None = None) -> bool:
        self._clock.advance(max(timeout or 0, 0.01))
        return self.is_set()


@pytest.fixture
def bus() -> Iterator[Bus]:
    with Bus.memory() as made:
        made.ensure(2)
        yield made


def led(bus: Bus, spec: dict[str, Any], since: int, until: int) -> None:
    """Somebody leads for a while."""
    clock = Clockwork(until)
    clock.advance((since - clock.now_ms()) / 1000)
    journal = Journal(bus, IDENTITY)
    try:
        context = Context(IDENTITY, clock, through_journal(bus, IDENTITY, journal), journal.remembered)
        CalendarSource(CalendarSpec.model_validate(spec)).run(context, clock.stop)
    finally:
        journal.close()


def test_leaders_come_and_go_and_every_tick_is_one_event(bus: Bus) -> None:
    spec = {"interval": "10s", "metadata": {"shop": "eu"}}
    start = at("2026-05-05T12:00:00")
    for since, until in ((0, 25), (27, 38), (45, 46), (75, 90)):
        led(bus, spec, start + since * SECOND, start + until * SECOND)
    events = sorted(events_on(bus), key=lambda event: event.id)
    assert [event.json()["eventTime"] for event in events] == [
        datetime.fromtimestamp((start + 10 * SECOND * number) / 1000, UTC).isoformat() for number in range(1, 9)
    ]
    assert events[0].id == "every 10000 ms UTC 2026-05-05T12:00:10.000Z"
    assert events[0].json()["metadata"] == {"shop": "eu"}
    assert (events[0].source, events[0].subject, events[0].type) == ("clock", "tick", "calendar")


def test_what_ticked_before_there_was_anybody_is_nobodys(bus: Bus) -> None:
    led(bus, {"interval": "10s"}, at("2026-05-05T12:00:05"), at("2026-05-05T12:00:09"))
    assert events_on(bus) == []


# --- manifests --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({}, "a calendar has either a `schedule` or an `interval`"),
        ({"schedule": "@daily", "interval": "1m"}, "a calendar has either a `schedule` or an `interval`"),
        ({"schedule": "0 0 30 2 *"}, "`schedule` must be a cron expression such as"),
        ({"schedule": "nonsense"}, "`schedule` must be a cron expression with five fields"),
        ({"schedule": "@daily", "timezone": "Mars"}, "`timezone` must be in a time zone such as `Europe/Berlin`"),
        ({"schedule": "@daily", "exclusionDates": ["soon"]}, "must be a date or a time such as `2026-12-24`"),
        ({"schedule": "@daily", "filter": {"expression": "a >"}}, "`expression`: a value is missing"),
        ({"schedule": "@daily", "partitionKey": "customer"}, "must be a path into the data such as"),
    ],
)
def test_what_is_wrong_is_told(spec: dict[str, Any], message: str) -> None:
    with pytest.raises(ManifestError) as error:
        manifest("calendar", tick=spec)
    assert message in str(error.value)
