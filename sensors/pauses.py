"""Triggers that an operator has paused: their actions wait as dead letters."""

from __future__ import annotations

from eventbus.formats import REDRIVEN_HEADER, ActionFact, header
from eventbus.ports import Record
from sensors.dlqactions import parent_of

ALL = ""
"""Stands for all triggers of a sensor."""


def is_paused(paused: frozenset[str], fact: ActionFact) -> bool:
    """Whoever pauses a trigger means its `dlqTrigger`, too."""
    return bool(paused) and not paused.isdisjoint((ALL, fact.trigger, parent_of(fact.trigger)))


def withholds(paused: frozenset[str], record: Record, fact: ActionFact) -> bool:
    """What was driven back is not kept a second time: that is how a pause ends."""
    return is_paused(paused, fact) and header(record.headers, REDRIVEN_HEADER) is None
