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
    has_dlq_trigger: bool = False
    """Whether another action is due when this trigger's is given up."""

    @property
    def direct(self) -> bool:
        """Every single event is enough, so nothing is ever held: the match stage writes the action itself."""
        return self.condition.single

    @cached_property
    def digest(self) -> str:
        """Stands for the trigger's name where space is short."""
        return trigger_digest(self.name)

    @cached_property
    def shape(self) -> str:
        """Changes when held events could mean something else than before."""
        return short_digest("join-shape", self.name, str(self.condition), length=SHAPE_CHARACTERS)


class SensorPlan(msgspec.Struct, frozen=True):
    """Everything the stages know about their sensor."""

    name: SensorName
    owner: Owner
    dependencies: tuple[DependencyPlan, ...]
    triggers: Mapping[str, TriggerPlan]

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


def trigger_digest(name: str) -> str:
    return short_digest("trigger", name, length=TRIGGER_CHARACTERS)
