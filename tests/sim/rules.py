"""Rules beyond conditions, for the stateful triggers of a seed."""

from __future__ import annotations

import random
from collections.abc import Sequence

from eventbus.schedule import Schedule
from sensors.rules import Correlation, Dedupe, Rules
from sensors.selectors import compile_selector
from sensors.tasks import Delivery

_BY_KEY, _BY_SOURCE = "context.partitionkey", "context.source"
_SPANS = (300, 3_000, 20_000)
_LONG_SPANS = (60_000, 3_600_000)
_RESETS = (Schedule("* * * * *"), Schedule("*/2 * * * *", "Asia/Kolkata"))


class RulesDice:
    """In every second seed some triggers are stateful, limited, or have a dlqTrigger.

    It has a generator of its own, so that the other seeds do what they did before there was such a thing. A *patient*
    seed holds events for long, so that changes of the spec and restarts find some.
    """

    def __init__(self, seed: int, dependencies: list[str], *, patient: bool) -> None:
        self.stateful = seed % 2 == 0
        self._random = random.Random(f"{seed} rules")
        self._dependencies = dependencies
        self._patient = patient
        self._spans = _LONG_SPANS if patient else _SPANS
        self._correlated = self._random.random() < (0.3 if patient else 0.7)
        """Without keys a trigger may become stateful, and a plain one again, and keep what it holds."""

    def change(self, rules: Rules | None) -> Rules | None:
        """What becomes of a trigger's rules when the spec changes."""
        return self.rules() if self._random.random() < 0.6 else rules

    def rules(self) -> Rules | None:
        dice = self._random
        if not self.stateful or dice.random() < 0.4:
            return None
        correlation = self._correlation() if self._correlated else None
        within, ttl = dice.choice((None, *self._spans)), dice.choice((None, None, 1, 2, 10))
        if correlation is not None and within is None and ttl is None:
            within = self._spans[1]
        return Rules(
            correlation=correlation,
            within=within,
            ttl=None if ttl is None else ttl * (within or self._spans[1]),
            once_within=dice.choice((None, None, *self._spans)),
            count=dice.choice(({}, {}, {"a": 2}, {"a": 3, "b": 2})),
            dedupe=self._dedupe(),
            resets=() if self._patient else dice.choice(((), (), _RESETS[:1], _RESETS)),
            bury_expired=dice.random() < 0.5,
        )

    def delivery(self, usual: Delivery, limited: Sequence[Delivery]) -> Delivery:
        return self._random.choice(limited) if self.stateful and self._random.random() < 0.3 else usual

    def dlq_deliveries(self, triggers: Sequence[str], deliveries: Sequence[Delivery]) -> dict[str, Delivery]:
        """Which triggers have a dlqTrigger, and how its action is delivered."""
        chosen = [name for name in triggers if self.stateful and self._random.random() < 0.3]
        return {name: self._random.choice(deliveries) for name in chosen}

    def _correlation(self) -> Correlation | None:
        dice = self._random
        if dice.random() < 0.2:
            return None
        by = dict.fromkeys(self._dependencies, dice.choice((_BY_KEY, _BY_KEY, _BY_SOURCE)))
        if dice.random() < 0.5:
            by["also-a"] = _BY_SOURCE  # one event, two keys
        select = {name: compile_selector(text) for name, text in by.items()}
        return Correlation(by, select, ignore_missing=dice.random() < 0.5)

    def _dedupe(self) -> Dedupe | None:
        """By key it lets hardly anything pass, so it is rare."""
        dice = self._random
        if dice.random() < 0.6:
            return None
        return Dedupe(dice.choice(self._spans), compile_selector(_BY_KEY) if dice.random() < 0.2 else None)
