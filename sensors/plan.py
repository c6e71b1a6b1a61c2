"""A sensor's spec, compiled into what the stages need: indexes, digests, and nothing that needs IO."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property

import msgspec

from eventbus.errors import ConfigError
from eventbus.hashing import short_digest
from eventbus.metadata import SHAPE_CHARACTERS, TRIGGER_CHARACTERS, Owner
from eventbus.names import SensorName
from sensors.conditions import Condition
from sensors.filters.gate import Gate
from sensors.rules import Correlation, Rules

_STATEFUL = "."


class DependencyPlan(msgspec.Struct, frozen=True):
    """Which events satisfy a dependency."""

    name: str
    source: str
    event_name: str
    gate: Gate | None = None
    """What an event of that name still has to go through."""


class TriggerPlan(msgspec.Struct, frozen=True, dict=True):
    """When a trigger fires."""

    name: str
    condition: Condition
    rules: Rules | None = None
    """None: a *plain* trigger, whose held events live in the log. Others live in the state topic."""
    has_dlq_trigger: bool = False
    """Whether another action is due when this trigger's is given up."""

    @property
    def direct(self) -> bool:
        """Every single event is enough, so nothing is ever held: the match stage writes the action itself."""
        return self.condition.single and self.rules is None

    @property
    def correlation(self) -> Correlation | None:
        return None if self.rules is None else self.rules.correlation

    @cached_property
    def digest(self) -> str:
        """Stands for the trigger's name where space is short."""
        return trigger_digest(self.name)

    @cached_property
    def shape(self) -> str:
        """Changes when held events could mean something else than before."""
        shape = short_digest("join-shape", self.name, str(self.condition), length=SHAPE_CHARACTERS)
        return shape if self.rules is None else f"{shape}{_STATEFUL}{self.keying}"

    @cached_property
    def keying(self) -> str:
        """Changes when an event could get another correlation key than before; empty where none has one."""
        if self.correlation is None:
            return ""
        by = sorted(self.correlation.by.items())
        return short_digest("keying", *(text for pair in by for text in pair), length=SHAPE_CHARACTERS)


class SensorPlan(msgspec.Struct, frozen=True):
    """Everything the stages know about their sensor."""

    name: SensorName
    owner: Owner
    dependencies: tuple[DependencyPlan, ...]
    triggers: Mapping[str, TriggerPlan]

    def wanted_by(self, trigger: str) -> dict[str, DependencyPlan]:
        """The dependencies in a trigger's condition, by their names."""
        names = self.triggers[trigger].condition.names
        return {dependency.name: dependency for dependency in self.dependencies if dependency.name in names}

    @classmethod
    def of(
        cls,
        name: SensorName,
        owner: Owner,
        dependencies: Iterable[DependencyPlan],
        triggers: Iterable[TriggerPlan],
    ) -> SensorPlan:
        plan = cls(name, owner, tuple(dependencies), {trigger.name: trigger for trigger in triggers})
        seen: dict[str, str] = {}
        for trigger in plan.triggers.values():
            other = seen.setdefault(trigger.digest, trigger.name)
            if other != trigger.name:
                raise ConfigError(
                    f"the names of the triggers `{other}` and `{trigger.name}` have the same digest: rename one"
                )
        return plan


def keying_of(shape: str) -> str:
    """The keying of the trigger whose shape this was."""
    return shape.partition(_STATEFUL)[2]


def trigger_digest(name: str) -> str:
    return short_digest("trigger", name, length=TRIGGER_CHARACTERS)
