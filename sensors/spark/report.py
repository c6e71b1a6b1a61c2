"""What an audit has to say."""

from __future__ import annotations

import msgspec

from sensors.audit.violations import Breach, Violation
from sensors.spark.records import Missing

FIRING, WAITING, INVOKING = "event to action", "action to attempt", "first attempt to end"
"""The stages of which the latency is measured: match and join; the queue; the target with all retries."""

SHOWN = 1000
"""How many single cases of a kind are listed."""
HOUR = 3_600_000
"""In milliseconds."""


class TriggerReport(msgspec.Struct, frozen=True, kw_only=True):
    """One trigger, in numbers."""

    trigger: str
    mode: str
    """`atMostOnce`, `atLeastOnce`, `exactlyOnce`; empty where nothing was invoked."""
    fired: int
    attempts: int
    succeeded: int
    """Actions that succeeded at least once."""
    retries: int
    """Attempts after the first."""
    repeated: int
    """At least once: actions that succeeded more than once."""
    given_up: int
    """At most once: actions that were taken, and of which nobody knows whether they were done."""
    dead_lettered: int
    under_way: int
    """Actions that were written and not dealt with yet."""
    held: int
    """Events that wait for others."""
    unused: dict[str, int]
    """Events that were let go, by reason."""


class Latency(msgspec.Struct, frozen=True):
    """How long a stage took, in milliseconds."""

    trigger: str
    stage: str
    count: int
    p50: int
    p90: int
    p99: int
    longest: int


class Firings(msgspec.Struct, frozen=True):
    """How often one trigger fired in one hour."""

    start: int
    """Milliseconds since 1970."""
    trigger: str
    fired: int


class Hour(Firings, frozen=True):
    """What one trigger did in one hour."""

    succeeded: int
    dead_lettered: int


class Bucket(msgspec.Struct, frozen=True):
    """How many actions a stage has dealt with in up to so many milliseconds (and more than the bucket before)."""

    stage: str
    up_to: int
    count: int


class HotKey(msgspec.Struct, frozen=True):
    """A correlation (or event) key that many actions are about."""

    trigger: str
    key: str
    fired: int


class Notice(msgspec.Struct, frozen=True):
    """An action that its mode allows to be lost or repeated, and was: by whom, and when."""

    trigger: str
    action: str
    place: str
    replicas: tuple[str, ...]
    times: tuple[int, ...]
    """When the attempts ended, in milliseconds since 1970."""
    what: str


class AuditReport(msgspec.Struct, frozen=True, kw_only=True):
    """All of it. Lists of single cases are cut (`SHOWN`); the counts beside them are not."""

    sensor: str
    generation: int
    since: int | None
    until: int | None
    """Which time was asked for."""
    first: int | None
    last: int | None
    """When the first and the last of the events in question were appended."""
    records: dict[str, int]
    """How many records were read, by topic."""
    triggers: list[TriggerReport]
    latencies: list[Latency]
    histogram: list[Bucket]
    hours: list[Hour]
    hot_keys: list[HotKey]
    dead_letters: dict[str, int]
    """By reason."""
    violations: list[Violation]
    counts: dict[Breach, int]
    """How many violations there are, by the way in which a promise was broken."""
    given_up: list[Notice]
    repeated: list[Notice]
    missing: list[Missing]
    """What retention has removed: nothing is said about it."""
    not_judged: dict[str, int]
    """What could not be judged, and how much of it."""
    forgotten: list[str] = []
    """Stages of which nobody knows any more how far they had got: nothing that they have done was judged."""

    @property
    def clean(self) -> bool:
        return not any(self.counts.values())

    @property
    def proved(self) -> bool:
        """Whether nothing is wrong, and nothing stood in the way of seeing it."""
        return self.clean and not self.missing and not self.forgotten
