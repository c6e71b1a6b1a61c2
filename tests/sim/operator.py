"""Somebody who pauses triggers, or tells them to let go of what they hold, in the seeds with stateful triggers."""

from __future__ import annotations

import random

from eventbus.clock import ManualClock
from eventbus.formats import FLUSH_HEADER, VERSION, Flush, encode_fact
from eventbus.hashing import partition_of, slot_key
from eventbus.memory.topics import Partition
from eventbus.names import Kind
from eventbus.ports import Cluster, Output
from sensors.deadletters import PAUSED
from sensors.pauses import ALL
from sensors.redrive import Box, Selection, redrive
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
        self.pauses: dict[str, int] = {}

    def look(self, triggers: list[str]) -> None:
        """Does something, now and then."""
        if self._busy and self._random.random() < _OFTEN:
            self._flush(triggers)
        if self._busy and self._random.random() < _OFTEN:
            self._pause(triggers)

    def _pause(self, triggers: list[str]) -> None:
        """What is resumed before the end stays in the dead letters until then."""
        paused = [] if self._random.random() < 0.5 else [self._random.choice((ALL, *triggers))]
        self._journal.note(f"pause {paused}")
        self.pauses = dict.fromkeys(paused, self._clock.now_ms())

    def resume(self, cluster: Cluster) -> None:
        """The end: nothing is paused, and what was withheld is driven back."""
        self.pauses = {}
        if self._busy:
            driven = list(redrive(cluster, Box.of_sensor(NAME), Selection(reason=PAUSED), self._clock))
            self._journal.note(f"resume {len(driven)}")

    def _flush(self, triggers: list[str]) -> None:
        dice = self._random
        wanted = Flush(version=VERSION, trigger=dice.choice(triggers), fire=dice.random() < 0.5, key=dice.choice(_KEYS))
        key = slot_key(wanted.trigger, wanted.key.encode())
        partition = partition_of(key, len(self._logs))
        self._journal.note(f"flush {wanted.trigger} {wanted.key} {wanted.fire}")
        output = Output(NAME.topic(Kind.TRIGGER), partition, key, None, [(FLUSH_HEADER, encode_fact(wanted))])
        self._logs[partition].append(output, self._clock.now_ms())
