"""Cron expressions as points in time, also where clocks are put forward and back."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventbus.schedule import Schedule


def at(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


@pytest.mark.parametrize(
    ("cron", "zone", "moment", "tick"),
    [
        ("0 6 * * *", "UTC", "2026-01-01T06:00:00", "2026-01-02T06:00:00"),
        ("0 6 * * *", "UTC", "2026-01-01T05:59:59.999", "2026-01-01T06:00:00"),
        ("@hourly", "UTC", "2026-01-01T05:00:00.001", "2026-01-01T06:00:00"),
        ("0 0 * * ?", "", "2026-01-01T05:00:00", "2026-01-02T00:00:00"),
        ("30 8 * * MON-FRI", "Europe/Berlin", "2026-11-20T12:00:00", "2026-11-23T07:30:00"),
        # Clocks go from 2:00 to 3:00: what would happen at 2:30 happens at 3:00.
        ("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00", "2026-03-29T01:00:00"),
        # Clocks go from 3:00 to 2:00: what happens at 2:30 happens once.
        ("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00", "2026-10-25T00:30:00"),
        ("30 2 * * *", "Europe/Berlin", "2026-10-25T00:30:00", "2026-10-26T01:30:00"),
        ("0 3 * * *", "Europe/Berlin", "2026-03-28T12:00:00", "2026-03-29T01:00:00"),
    ],
)
def test_the_next_tick(cron: str, zone: str, moment: str, tick: str) -> None:
    assert Schedule(cron, zone).next_after(at(moment)) == at(tick)


HOUR = 3_600_000
CHANGES = [  # clocks are put back, and forward
    ("Europe/Berlin", "2026-10-25T01:00:00"),
    ("Europe/Berlin", "2026-03-29T01:00:00"),
    ("America/New_York", "2026-11-01T06:00:00"),
    ("Australia/Lord_Howe", "2026-04-04T15:00:00"),
]


@given(
    st.sampled_from(CHANGES),
    st.sampled_from(["30 2 * * *", "15 1 * * *", "*/20 2 * * *", "0 * * * *", "@daily", "45 0-3 * * 0"]),
    st.integers(-4 * HOUR, 4 * HOUR),
    st.floats(0, 1, exclude_max=True),
)
def test_no_tick_is_in_the_past_and_none_comes_between(
    change: tuple[str, str], cron: str, away: int, fraction: float
) -> None:
    """Found in a review: in the hour that is repeated, the next tick was one that had been."""
    zone, when = change
    moment = at(when) + away
    tick = Schedule(cron, zone).next_after(moment)
    assert tick is not None
    assert tick > moment
    between = moment + int(fraction * (tick - moment))
    assert Schedule(cron, zone).next_after(between) == tick


@pytest.mark.parametrize("cron", ["", "* * * *", "* * * * * *", "61 * * * *", "0 0 30 2 *", "a b c d e", "@never"])
def test_what_is_no_cron_expression(cron: str) -> None:
    with pytest.raises(ValueError, match=r"^must be a cron expression"):
        Schedule(cron)


@pytest.mark.parametrize("zone", ["Mars", "../etc/passwd", "Europe/", "\0"])
def test_what_is_no_time_zone(zone: str) -> None:
    with pytest.raises(ValueError, match="time zone"):
        Schedule("@daily", zone)


@given(st.lists(st.integers(0, 10**13), min_size=1, max_size=20))
def test_what_was_asked_before_does_not_matter(moments: list[int]) -> None:
    schedule = Schedule("*/7 3-5 * * *", "America/New_York")
    for moment in moments:
        assert schedule.next_after(moment) == Schedule("*/7 3-5 * * *", "America/New_York").next_after(moment)


def test_after_the_end_of_time_there_is_nothing() -> None:
    assert Schedule("@daily").next_after(2**63 - 1) is None
    assert Schedule("@daily").next_after(-1) is None
