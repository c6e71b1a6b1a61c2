"""What makes a trigger *stateful*: its outcome depends on more than the events that it holds right now.

Everything here is a function of the log. Time is what the events carry (when they were appended to the event topic) and
the partition's clock, the running maximum of that; nobody asks what time it is. So a restart, another replica or a
backtest years later come to the same result.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from eventbus.schedule import Schedule
from sensors.selectors import Select

EXPIRED, RESET = "expired", "reset"
SUPERSEDED, DUPLICATE, SUPPRESSED = "superseded", "duplicate", "suppressed"
"""Why an event was not used."""


class Correlation(msgspec.Struct, frozen=True):
    """Only events that agree on a value are joined."""

    by: Mapping[str, str]
    """What each dependency's value is called; what decides whether held events still fit a changed spec."""
    select: Mapping[str, Select]
    ignore_missing: bool = False
    """An event without a value is passed over; otherwise it is a dead letter."""


class Dedupe(msgspec.Struct, frozen=True):
    """The same event counts once."""

    span: int
    select: Select | None = None
    """None: the event's source and id."""


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """Beyond the condition. All times are milliseconds."""

    correlation: Correlation | None = None
    within: int | None = None
    """All events of one firing lie within this span of time."""
    ttl: int | None = None
    """For how long an event is held, by the partition's clock."""
    once_within: int | None = None
    """At most one firing in this span of time."""
    count: Mapping[str, int] = msgspec.field(default_factory=dict)
    """How many events a dependency needs; 1 where nothing is said."""
    dedupe: Dedupe | None = None
    resets: tuple[Schedule, ...] = ()
    """Events before and after one of these moments are not joined."""
    bury_expired: bool = False
    """An event that expires is a dead letter; otherwise it is only counted."""

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why an event may be let go without being used."""
        possible = {
            SUPERSEDED: True,
            EXPIRED: self.within is not None or self.ttl is not None,
            RESET: bool(self.resets),
            DUPLICATE: self.dedupe is not None,
            SUPPRESSED: self.once_within is not None,
        }
        return tuple(reason for reason, may_be in possible.items() if may_be)

    @property
    def counted(self) -> tuple[str, ...]:
        """The dependencies that need several events."""
        return tuple(sorted(name for name, count in self.count.items() if count > 1))

    def wanted(self, dependency: str) -> int:
        return self.count.get(dependency, 1)

    def complete(self, held: Mapping[str, Collection[object]]) -> set[str]:
        """The dependencies that have all the events they need."""
        wanted = self.count.get
        return {name for name, events in held.items() if len(events) >= wanted(name, 1)}

    def separated(self, timestamp: int, newest: int) -> str | None:
        """Why an event is too old to be joined with the newest one, if it is."""
        if self.within is not None and newest - timestamp > self.within:
            return EXPIRED
        if timestamp < newest and any(_between(timestamp, reset, newest) for reset in self.resets):
            return RESET
        return None


def _between(older: int, reset: Schedule, newer: int) -> bool:
    tick = reset.next_after(older)
    return tick is not None and tick <= newer
