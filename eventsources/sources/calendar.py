"""Events by the clock: one for every tick of a schedule, whoever leads, and however often the leader changes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any, Literal, TypeAlias
from zoneinfo import ZoneInfo

import msgspec
from pydantic import AfterValidator

from eventbus.events import Event
from eventbus.schedule import Schedule
from eventsources.base import Context, SourceSpec, Stop
from sensors.spec.base import Flaw, SpecModel, get
from sensors.spec.fields import Bool, Duration, Text, duration_text

MOST_AT_ONCE = 1000
"""Ticks that are made up for in one go."""
_LONGEST_WAIT = 1.0
"""Seconds. The clock of the machine may be set while somebody waits for it."""
_LATEST = timedelta(minutes=5)
_GRACE = 1000
"""Milliseconds by which a tick may be late that was waited for."""
_SHORTEST = timedelta(milliseconds=100)
_DAY_LENGTH = len("2026-12-24")

Missed: TypeAlias = Literal["catchUp", "fold", "skip"]


def _exclusion(text: str) -> str:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        message = f"must be a date or a time such as `2026-12-24` or `2026-12-24T18:00:00Z`, not `{text}`"
        raise ValueError(message) from None
    return text


def _not_too_short(value: timedelta) -> timedelta:
    if value < _SHORTEST:
        raise ValueError(f"must be at least {duration_text(_SHORTEST)}")
    return value


class Catchup(SpecModel):
    """What becomes of ticks for which nobody was there."""

    enabled: Bool = False
    """Make up for them."""
    maxDuration: Duration | None = None
    """How long ago they may be."""


class Persistence(SpecModel):
    """argo-events' way to say what becomes of missed ticks. The last tick is on the bus, in any case."""

    catchup: Catchup | None = None
    configMap: dict[Text, Any] | None = None
    """Where argo-events keeps the last tick; not used here."""


class CalendarSpec(SourceSpec):
    """A schedule or an interval."""

    schedule: Text | None = None
    """A cron expression with five fields, or one of `@hourly`, `@daily`, …"""
    interval: Annotated[Duration, AfterValidator(_not_too_short)] | None = None
    """Every so often, counted from 1970: whoever counts comes to the same ticks."""
    timezone: Text = "UTC"
    """Where `schedule` is meant, such as `Europe/Berlin`."""
    exclusionDates: tuple[Annotated[Text, AfterValidator(_exclusion)], ...] = ()
    """No ticks on these days, or at these times."""
    missed: Missed = "catchUp"
    """Of ticks for which nobody was there: make up for each of them, for all together, or for none."""
    maxMissed: Annotated[Duration, AfterValidator(_not_too_short)] = _LATEST
    """How long ago they may be."""
    persistence: Persistence | None = None

    @classmethod
    def flaws(cls, data: Any) -> Iterator[Flaw]:
        schedule, interval, timezone = (get(data, name) for name in ("schedule", "interval", "timezone"))
        if (schedule is None) == (interval is None):
            yield Flaw((), "a calendar has either a `schedule` or an `interval`")
        try:
            Schedule(schedule if isinstance(schedule, str) else "@daily", timezone if isinstance(timezone, str) else "")
        except ValueError as error:
            field = "timezone" if "time zone" in str(error) else "schedule"
            yield Flaw((field,), f"`{field}` {error}")


class Due(msgspec.Struct, frozen=True):
    """What is to be done now."""

    ticks: tuple[int, ...]
    """One event for each of them. Milliseconds since 1970."""
    last: int
    """All up to here is settled."""
    next: int | None
    """When to look again; None where nothing comes any more."""


class Ticks:
    """A pure function of the last tick and the time: it never asks what time it is."""

    def __init__(self, spec: CalendarSpec) -> None:
        self._zone = ZoneInfo(spec.timezone)
        self._schedule = None if spec.schedule is None else Schedule(spec.schedule, spec.timezone)
        self._interval = 0 if spec.interval is None else max(1, round(spec.interval.total_seconds() * 1000))
        self._excluded_days = {
            date.fromisoformat(each) for each in spec.exclusionDates if len(each) == len("2026-12-24")
        }
        self._excluded = {self._moment(each) for each in spec.exclusionDates if len(each) > len("2026-12-24")}
        catchup = None if spec.persistence is None else spec.persistence.catchup
        self._missed: Missed = "catchUp" if catchup is not None and catchup.enabled else spec.missed
        latest = catchup.maxDuration if catchup is not None and catchup.maxDuration is not None else spec.maxMissed
        self._horizon = _GRACE if self._missed == "skip" else round(latest.total_seconds() * 1000)
        """Milliseconds: what was due before is let go."""
        self.name = spec.schedule if spec.interval is None else f"every {self._interval} ms"
        self.timezone = spec.timezone

    def due(self, last: int, now: int) -> Due:
        """`last` is the tick up to which all is settled."""
        ticks: list[int] = []
        tick = self._after(max(last, now - self._horizon - 1))
        while tick is not None and tick <= now:
            ticks.append(tick)
            last = max(last, tick)
            if len(ticks) == MOST_AT_ONCE and self._missed == "catchUp":
                return Due(tuple(ticks), last, now)
            tick = self._after(tick)
        if self._missed == "fold":
            ticks = ticks[-1:]
        return Due(tuple(ticks), last, tick)

    def _after(self, moment: int) -> int | None:
        while True:
            tick = self._candidate(moment)
            if tick is None or not self._is_excluded(tick):
                return tick
            moment = tick

    def _candidate(self, moment: int) -> int | None:
        if self._schedule is not None:
            return self._schedule.next_after(moment)
        return (moment // self._interval + 1) * self._interval

    def _is_excluded(self, tick: int) -> bool:
        return tick in self._excluded or self.local(tick).date() in self._excluded_days

    def local(self, tick: int) -> datetime:
        return datetime.fromtimestamp(tick / 1000, self._zone)

    def _moment(self, text: str) -> int:
        moment = datetime.fromisoformat(text)
        return round((moment if moment.tzinfo else moment.replace(tzinfo=self._zone)).timestamp() * 1000)


class CalendarSource:
    """Waits, and ticks."""

    def __init__(self, spec: CalendarSpec) -> None:
        self._spec = spec
        self._ticks = Ticks(spec)

    def run(self, context: Context, stop: Stop) -> None:
        last = context.clock.now_ms() if context.remembered is None else int(context.remembered)
        if context.remembered is None:
            context.deliver([], str(last).encode())  # a successor knows from when on there were ticks
        while not stop.is_set():
            now = context.clock.now_ms()
            due = self._ticks.due(last, now)
            if due.last != last:
                events = [self._event(context, tick) for tick in due.ticks]
                context.deliver(events, str(due.last).encode())
                last = due.last
            left = _LONGEST_WAIT if due.next is None else (due.next - context.clock.now_ms()) / 1000
            stop.wait(min(max(left, 0), _LONGEST_WAIT))

    def _event(self, context: Context, tick: int) -> Event:
        moment = datetime.fromtimestamp(tick / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        data = {"eventTime": self._ticks.local(tick).isoformat()}
        return context.identity.event(
            f"{self._ticks.name} {self._ticks.timezone} {moment}", self._spec.described(data), time=moment
        )
