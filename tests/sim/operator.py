"""Somebody who tells triggers to let go of what they hold, or to fire with it, in the seeds with stateful triggers."""

from __future__ import annotations

import random

from eventbus.clock import ManualClock
from eventbus.formats import FLUSH_HEADER, VERSION, Flush, encode_fact
from eventbus.hashing import partition_of, slot_key
from eventbus.memory.topics import Partition
from eventbus.names import Kind
from eventbus.ports import Output
from tests.sim.journal import Journal
from tests.sim.specs import NAME

_KEYS = ("", "", "k1", "k2", "k3", "shop")
_OFTEN = 0.05


class Operator:
    """Has dice of their own, so that the other seeds do what they did before there was such a person."""

    def __init__(self, seed: int, clock: ManualClock, journal: Journal, logs: list[Partition]) -> None:
        self._busy = seed % 2 == 0
        self._random = random.Random(f"{seed} operator")
        self._clock = clock
        self._journal = journal
        self._logs = logs

    def look(self, triggers: list[str]) -> None:
        """Does something, now and then."""
        dice = self._random
        if not self._busy or dice.random() >= _OFTEN:
            return
        wanted = Flush(version=VERSION, trigger=dice.choice(triggers), fire=dice.random() < 0.5, key=dice.choice(_KEYS))
        key = slot_key(wanted.trigger, wanted.key.encode())
        partition = partition_of(key, len(self._logs))
        self._journal.note(f"flush {wanted.trigger} {wanted.key} {wanted.fire}")
        output = Output(NAME.topic(Kind.TRIGGER), partition, key, None, [(FLUSH_HEADER, encode_fact(wanted))])
        self._logs[partition].append(output, self._clock.now_ms())
