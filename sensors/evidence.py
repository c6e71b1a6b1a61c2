"""What a sensor's topics tell about it, as `sensors.diagnosis` judges it. All times are milliseconds since 1970."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec

from eventbus.events import Event
from sensors.deadletters import NO_KEY
from sensors.explain import Explanation, Ids
from sensors.plan import SensorPlan
from sensors.rules import SUPERSEDED
from sensors.spec.suggestions import closest

MAX_NEAR_MISSES = 20


class HeldEvent(msgspec.Struct, frozen=True):
    """An event that waits, since when, and where it stands in the event topic."""

    dependency: str
    source: str
    id: str
    since: int
    partition: int
    offset: int


class TriggerState(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one trigger holds and waits for, for one correlation key."""

    trigger: str
    condition: str
    held: list[HeldEvent]
    missing: list[list[str]]
    key: str = ""


class StageProgress(msgspec.Struct, frozen=True):
    """How far a stage has come with its input."""

    stage: str
    replicas: int
    behind: int
    """Records that it has not dealt with."""
    oldest: int | None = None
    """When the oldest of them was written."""
    begun: bool = True
    """Whether it has ever committed anything."""


class Tally(msgspec.Struct):
    """How often something was seen, and the latest example."""

    count: int = 0
    example: str = ""
    text: str = ""

    def add(self, example: str, text: str = "") -> None:
        self.count += 1
        self.example = example
        self.text = text


class NearMiss(msgspec.Struct):
    """Events that no dependency asks for, though they come from the right source or are called alike."""

    source: str
    name: str
    count: int
    example: str
    meant: str | None
    """The dependency that was probably meant; None where only the source is right."""


class Invoked(msgspec.Struct, frozen=True):
    """The last that is known of an action's invocation."""

    outcome: str
    attempt: int
    ended: int
    status: str | None = None
    error: str | None = None


class Firing(msgspec.Struct, frozen=True):
    """An action."""

    action: str
    at: int
    events: Ids
    key: str = ""
    invoked: Invoked | None = None


class Recent(msgspec.Struct):
    """What recent events did to one trigger."""

    matched: dict[str, Tally] = msgspec.field(default_factory=dict)
    """By dependency."""
    other_keys: dict[str, Tally] = msgspec.field(default_factory=dict)
    """What matched under other correlation keys than the one that was asked about; the text is such a key."""
    filtered: dict[str, dict[str, Tally]] = msgspec.field(default_factory=dict)
    """By dependency and reason."""
    without_key: Tally = msgspec.field(default_factory=Tally)
    let_go: dict[str, Tally] = msgspec.field(default_factory=dict)
    """By reason."""
    in_vain: str | None = None
    """The latest of these reasons, where nothing has fired since."""
    near: list[NearMiss] = msgspec.field(default_factory=list)


class TriggerEvidence(msgspec.Struct, frozen=True):
    """All about one trigger."""

    trigger: str
    condition: str
    asks_for: dict[str, tuple[str, str]]
    """Dependency → source and name."""
    joins: bool
    """Whether it ever waits for a second event."""
    held: list[TriggerState]
    recent: Recent
    last: Firing | None
    waiting: Tally
    """Actions that are not invoked yet."""
    waiting_since: int | None
    dead_letters: dict[str, Tally]
    """By reason."""
    paused_since: int | None = None


class Evidence(msgspec.Struct, frozen=True):
    """All about a sensor."""

    sensor: str
    now: int
    stages: list[StageProgress]
    other_generation: int | None
    """The generation that was at work last, where its spec is another than the one that is asked about."""
    events: int
    """So many recent events were looked at …"""
    since: int | None
    """… the oldest of which was appended then."""
    unreadable: Tally
    """Records among them that are no events."""
    triggers: list[TriggerEvidence]
    dead_letters: dict[str, Tally]
    """Of no trigger in particular, by reason."""
    key: str | None = None
    """The correlation key that was asked about."""


class RecentEvents:
    """Counts what explanations tell, trigger by trigger."""

    def __init__(self, plan: SensorPlan, triggers: Sequence[str], key: str | None) -> None:
        self._key = key
        self._wants = {trigger: plan.wanted_by(trigger) for trigger in triggers}
        self._near: dict[str, dict[tuple[str, str], NearMiss]] = {trigger: {} for trigger in triggers}
        self.of = {trigger: Recent() for trigger in triggers}

    def note(self, event: Event, told: Explanation) -> None:
        for trigger, recent in self.of.items():
            self._note_matches(trigger, recent, told)
            for dependency in told.filtered.keys() & self._wants[trigger].keys():
                reason, _, text = told.filtered[dependency].partition(": ")
                recent.filtered.setdefault(dependency, {}).setdefault(reason, Tally()).add(told.event, text)
            for letter in told.dead_letters:
                if letter.reason == NO_KEY and letter.trigger == trigger:
                    recent.without_key.add(told.event, letter.detail)
            self._note_let_go(trigger, recent, told)
            if told.unmatched is not None:
                self._note_near_miss(trigger, event)

    def finish(self) -> dict[str, Recent]:
        """What looks most like a mistake comes first."""
        for trigger, recent in self.of.items():
            misses = sorted(self._near[trigger].values(), key=lambda miss: (miss.meant is None, -miss.count))
            recent.near = misses[:MAX_NEAR_MISSES]
        return self.of

    def _note_matches(self, trigger: str, recent: Recent, told: Explanation) -> None:
        keys = {each.key for each in told.fired if each.trigger == trigger}
        keys |= {each.key for each in told.waiting if each.trigger == trigger}
        mine = self._key is None or self._key in keys
        for dependency in told.matched.get(trigger, ()):
            tallies = recent.matched if mine else recent.other_keys
            tallies.setdefault(dependency, Tally()).add(told.event, ", ".join(sorted(keys)))

    def _note_let_go(self, trigger: str, recent: Recent, told: Explanation) -> None:
        for gone in told.let_go:
            if gone.trigger == trigger and self._key in (None, gone.key):
                recent.let_go.setdefault(gone.reason, Tally()).add(gone.event, gone.dependency)
                recent.in_vain = recent.in_vain if gone.reason == SUPERSEDED else gone.reason
        if any(fired.trigger == trigger and self._key in (None, fired.key) for fired in told.fired):
            recent.in_vain = None

    def _note_near_miss(self, trigger: str, event: Event) -> None:
        names = [name for name in (event.subject, event.type) if name]
        wants = self._wants[trigger]
        meant = _meant(event.source, names, {name: (each.source, each.event_name) for name, each in wants.items()})
        if meant is None and event.source not in {each.source for each in wants.values()}:
            return
        misses = self._near[trigger]
        place = event.source, names[0]
        if place in misses:
            misses[place].count += 1
            misses[place].example = event.id
        elif meant is not None or len(misses) < MAX_NEAR_MISSES:
            misses[place] = NearMiss(*place, 1, event.id, meant)


def _meant(source: str, names: Collection[str], wants: Mapping[str, tuple[str, str]]) -> str | None:
    """The dependency whose source and name are like these, one of them at least exactly or nearly so."""
    for dependency, (wanted_source, wanted_name) in wants.items():
        if closest(source, [wanted_source]) and any(closest(name, [wanted_name]) for name in names):
            return dependency
    return None
