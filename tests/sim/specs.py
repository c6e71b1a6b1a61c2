"""The sensor of one seed: what it begins with, and what becomes of it when its spec changes."""

from __future__ import annotations

from collections.abc import Mapping

from eventbus.metadata import Owner
from eventbus.names import BusName, SensorName
from sensors.conditions import parse
from sensors.dlqactions import dlq_name
from sensors.plan import DependencyPlan, SensorPlan, TriggerPlan
from sensors.retry import RetryPolicy
from sensors.tasks import Delivery, RateLimit
from tests.sim.dice import Dice, Fault
from tests.sim.processes import Sensor
from tests.sim.rules import RulesDice

NAME = SensorName(BusName("sim", "bus"), "s")
EVENT_NAMES = "abcde"
"""Of the last one the sensor wants to know nothing."""
_DEPENDENCIES = [
    *(DependencyPlan(name, "shop", name) for name in ("a", "b", "c", "d", "never")),
    DependencyPlan("also-a", "shop", "a"),
]
_CONDITIONS = (
    "a && b", "a && b && c", "(a && b) || c", "a || b", "a", "also-a && a", "(a && c) || (b && d)", "also-a || d",
    "a && b && c && d", "(a || b) && (c || d)", "also-a && b", "d && c",
)  # fmt: skip
_PATIENT_CONDITIONS = (
    "a && never", "also-a && never", "a && also-a && never", "a && b && never", "also-a && c && d && never",
    "a && b && c && d", "b && d",
)  # fmt: skip
"""They hold events for long, so that a change of the spec finds some, and finds that they fit in part."""
_DELIVERIES = (
    Delivery(at_least_once=True, retry=RetryPolicy(steps=4, duration=0.2)),
    Delivery(at_least_once=False, retry=RetryPolicy(steps=3, duration=0.2)),
    Delivery(at_least_once=False),
    Delivery(at_least_once=False, exactly_once=True),
)
_LIMITED = (
    Delivery(at_least_once=True, retry=RetryPolicy(steps=2, duration=0.2), limit=RateLimit(20, 1)),
    Delivery(at_least_once=False, limit=RateLimit(4, 1)),
)
_MAX_TRIGGERS = 8


class Specs:
    """All generations so far. In a *restless* seed they follow each other while events of all of them are held."""

    def __init__(self, dice: Dice) -> None:
        self._dice = dice
        restless = not dice.below(4)
        if restless:
            dice.often(Fault.SPEC_CHANGE)
        self._max_generation = 12 if restless else 4
        self._conditions = _PATIENT_CONDITIONS if restless else _CONDITIONS
        # A trigger that comes back delivers as before: the judge knows one mode per trigger.
        self._deliveries = {f"t{number}": dice.pick(_DELIVERIES) for number in range(_MAX_TRIGGERS + 1)}
        self._rules = RulesDice(dice.seed, [each.name for each in _DEPENDENCIES], patient=restless)
        self._deliveries = {name: self._rules.delivery(each, _LIMITED) for name, each in self._deliveries.items()}
        self._dlq_deliveries = self._rules.dlq_deliveries(list(self._deliveries), (*_DELIVERIES, *_LIMITED))
        self.late_changes = 2 if restless and self._rules.stateful else 0
        """After the last event: what is held then is never superseded."""
        first = {f"t{number}": self._condition() for number in range(dice.pick((1, 2, 3, 6)))}
        self.sensors = {1: self._sensor(1, first)}

    @property
    def latest(self) -> Sensor:
        return self.sensors[len(self.sensors)]

    def may_change(self) -> bool:
        return len(self.sensors) < self._max_generation

    def change(self) -> None:
        """Some triggers get another condition, one may go, one may come, or come back under its old name."""
        dice, generation = self._dice, len(self.sensors) + 1
        conditions = {name: str(trigger.condition) for name, trigger in self.latest.plan.triggers.items()}
        for name in conditions:
            if dice.coin():
                conditions[name] = self._condition()
        free = [name for name in self._deliveries if name not in conditions]
        if dice.coin():
            del conditions[dice.pick(list(conditions))]
        if not conditions or (free and dice.coin()):
            conditions[dice.pick(free)] = self._condition()
        self.sensors[generation] = self._sensor(generation, conditions)

    def _condition(self) -> str:
        return self._dice.pick(self._conditions)

    def _sensor(self, generation: int, conditions: Mapping[str, str]) -> Sensor:
        names = [dependency.name for dependency in _DEPENDENCIES]
        before = self.sensors[generation - 1].plan.triggers if generation > 1 else {}
        triggers = [
            TriggerPlan(
                name,
                parse(text, names),
                self._rules.change(before[name].rules) if name in before else self._rules.rules(),
                has_dlq_trigger=name in self._dlq_deliveries,
            )
            for name, text in conditions.items()
        ]
        plan = SensorPlan.of(NAME, Owner(generation, f"{generation:08}"), _DEPENDENCIES, triggers)
        deliveries = {name: self._deliveries[name] for name in conditions}
        of_failures = {dlq_name(name): each for name, each in self._dlq_deliveries.items() if name in conditions}
        return Sensor(plan, deliveries | of_failures)
