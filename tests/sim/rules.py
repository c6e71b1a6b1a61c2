"""Rules beyond conditions, for the stateful triggers of a seed."""

from __future__ import annotations

import random

from eventbus.schedule import Schedule
from sensors.rules import Correlation, Dedupe, Rules
from sensors.selectors import compile_selector

_BY_KEY, _BY_SOURCE = "context.partitionkey", "context.source"
_SPANS = (300, 3_000, 20_000)
_RESETS = (Schedule("* * * * *"), Schedule("*/2 * * * *", "Asia/Kolkata"))


class RulesDice:
    """In every second seed some triggers are stateful.

    It has a generator of its own, so that the other seeds do what they did before there was such a thing.
    """

    def __init__(self, seed: int, dependencies: list[str]) -> None:
        self._stateful = seed % 2 == 0
        self._random = random.Random(f"{seed} rules")
        self._dependencies = dependencies

    def change(self, rules: Rules | None) -> Rules | None:
        """What becomes of a trigger's rules when the spec changes."""
        return self.rules() if self._random.random() < 0.4 else rules

    def rules(self) -> Rules | None:
        dice = self._random
        if not self._stateful or dice.random() < 0.4:
            return None
        correlation = self._correlation()
        within = dice.choice((None, *_SPANS))
        ttl = dice.choice((None, 1, 2, 10))
        if correlation is not None and within is None and ttl is None:
            within = _SPANS[1]
        return Rules(
            correlation=correlation,
            within=within,
            ttl=None if ttl is None else ttl * (within or _SPANS[1]),
            once_within=dice.choice((None, None, *_SPANS)),
            count=dice.choice(({}, {}, {"a": 2}, {"a": 3, "b": 2})),
            dedupe=dice.choice((None, None, Dedupe(dice.choice(_SPANS)), Dedupe(_SPANS[1], compile_selector(_BY_KEY)))),
            resets=dice.choice(((), (), _RESETS[:1], _RESETS)),
            bury_expired=dice.random() < 0.5,
        )

    def _correlation(self) -> Correlation | None:
        dice = self._random
        if dice.random() < 0.4:
            return None
        by = dict.fromkeys(self._dependencies, dice.choice((_BY_KEY, _BY_KEY, _BY_SOURCE)))
        if dice.random() < 0.3:
            by["also-a"] = _BY_SOURCE  # one event, two keys
        return Correlation(
            by, {name: compile_selector(text) for name, text in by.items()}, ignore_missing=dice.random() < 0.5
        )
