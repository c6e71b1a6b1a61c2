"""Hours and triggers, added up until there are no more of them than a person can look at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime

import msgspec

from eventbus.moments import LAST
from sensors.spark.report import Hour

HOUR = 3_600_000
DAY = 24 * HOUR
COLUMNS = 200
LANES = 12
_FEWEST = 12
"""A single hour is not to be as wide as the page."""
_TICKS = 7
_STEPS = (HOUR, 2 * HOUR, 3 * HOUR, 4 * HOUR, 6 * HOUR, 8 * HOUR, 12 * HOUR, DAY, 2 * DAY, 3 * DAY, 5 * DAY, 7 * DAY)


class Lane(msgspec.Struct, frozen=True):
    """One trigger, or several: what they did, by column."""

    name: str
    triggers: frozenset[str]
    fired: Counter[int]
    succeeded: Counter[int]
    dead_lettered: Counter[int]

    @property
    def peak(self) -> int:
        return max([*self.fired.values(), *self.succeeded.values()], default=0)


class Timeline(msgspec.Struct, frozen=True):
    """Columns of equal length, and lanes that go through all of them."""

    start: int
    step: int
    columns: int
    total: Lane
    lanes: Sequence[Lane]

    def column(self, moment: int) -> int | None:
        """In which column a moment is, if it is in any."""
        number = (moment - self.start) // self.step
        return number if 0 <= number < self.columns else None

    def began(self, column: int) -> int:
        return self.start + column * self.step

    def ticks(self) -> Iterator[tuple[float, str]]:
        """Where to write which time: as a fraction of the width, at round times."""
        length = self.columns * self.step
        between = _at_least(max(length // _TICKS, self.step))
        first = -(-self.start // between) * between
        for moment in range(max(first, 0), min(self.start + length, LAST), between):
            yield (moment - self.start) / length, _tick(moment, between)


def timeline(hours: Sequence[Hour]) -> Timeline | None:
    """All that is known of when it happened; None if that is nothing. Times that cannot be are left out."""
    hours = [hour for hour in hours if 0 <= hour.start <= LAST]
    if not hours:
        return None
    first, last = min(hour.start for hour in hours), max(hour.start for hour in hours)
    step = _at_least((last - first + HOUR) / COLUMNS)
    start = first // step * step
    columns = (last - start) // step + 1
    if columns < _FEWEST:
        start -= (_FEWEST - columns) // 2 * step
        columns = _FEWEST
    lanes = [_idle(name, triggers) for name, triggers in _groups(hours)]
    lane_of = {trigger: lane for lane in lanes for trigger in lane.triggers}
    total = _idle("all triggers", lane_of)
    for hour in hours:
        column = (hour.start - start) // step
        for lane in (total, lane_of[hour.trigger]):
            lane.fired[column] += hour.fired
            lane.succeeded[column] += hour.succeeded
            lane.dead_lettered[column] += hour.dead_lettered
    return Timeline(start, step, columns, total, lanes)


def _idle(name: str, triggers: Iterable[str]) -> Lane:
    return Lane(name, frozenset(triggers), Counter(), Counter(), Counter())


def _groups(hours: Iterable[Hour]) -> list[tuple[str, list[str]]]:
    """The busiest triggers, and one lane for the others."""
    fired: Counter[str] = Counter()
    for hour in hours:
        fired[hour.trigger] += hour.fired
    ranked = sorted(fired, key=lambda trigger: (-fired[trigger], trigger))
    if len(ranked) <= LANES:
        return [(trigger, [trigger]) for trigger in ranked]
    others = ranked[LANES - 1 :]
    busiest = [(trigger, [trigger]) for trigger in ranked[: LANES - 1]]
    return [*busiest, (f"{len(others)} others", others)]


def _at_least(length: float) -> int:
    """The shortest round length of time that is as long."""
    for step in _STEPS:
        if step >= length:
            return step
    return -int(-length // _STEPS[-1]) * _STEPS[-1]


def _tick(moment: int, between: int) -> str:
    time = datetime.fromtimestamp(moment / 1000, UTC)
    if between < DAY and moment % DAY:
        return f"{time:%H:%M}"
    return f"{time:%Y-%m}" if between > 60 * DAY else f"{time.day} {time:%b}"
