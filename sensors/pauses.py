"""Triggers that an operator has paused: their actions wait as dead letters."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TypeAlias

from eventbus.errors import FormatError, NewerFormatError
from eventbus.formats import REDRIVEN_HEADER, ActionFact, header
from eventbus.ports import Record
from eventbus.stateformats import paused
from sensors.dlqactions import parent_of

log = logging.getLogger("eventbus.sensor")

ALL = ""
"""Stands for all triggers of a sensor."""
Pauses: TypeAlias = Mapping[str, int]
"""Since when which triggers are paused, in milliseconds since 1970. A trigger's `dlqTrigger` is paused with it."""


def withholds(pauses: Pauses, record: Record, fact: ActionFact) -> bool:
    """What was driven back during a pause is not kept a second time: that is how it ends. The next one keeps it."""
    if not pauses:
        return False
    since = max(pauses.get(ALL, 0), pauses.get(fact.trigger, 0), pauses.get(parent_of(fact.trigger), 0))
    return since > 0 and (header(record.headers, REDRIVEN_HEADER) is None or record.timestamp < since)


def note_pause(pauses: dict[str, int], record: Record) -> None:
    """What a record of the control topic says. One that is none of ours pauses nothing."""
    try:
        trigger, state = paused(record)
    except NewerFormatError:
        raise
    except FormatError as error:
        log.warning("passed over: %s", error)
        return
    pauses.pop(trigger, None)
    if state is not None:
        pauses[trigger] = state.at
