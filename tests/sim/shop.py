"""Where the events of a simulation come from."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from eventbus.clock import ManualClock
from eventbus.cloudevents import to_kafka
from eventbus.events import Event
from eventbus.hashing import partition_of
from eventbus.memory.topics import Partition
from eventbus.ports import Headers, Output
from tests.sim.dice import Dice, Fault
from tests.sim.journal import Journal
from tests.sim.specs import EVENT_NAMES, NAME

_HAPPENINGS = 350
_KEYS = ("k1", "k2", "k3", "")


class Shop:
    """Publishes so many events, in bursts, to the partitions of the event topic."""

    def __init__(
        self, dice: Dice, clock: ManualClock, journal: Journal, logs: Sequence[Partition], events: int
    ) -> None:
        self._dice = dice
        self._clock = clock
        self._journal = journal
        self._logs = logs
        self._events = events
        self._burst = dice.pick((8, 30, 60))
        self.rate = events / (self._burst / 2) / _HAPPENINGS
        """How often it publishes, so that all seeds take about the same time."""
        self._sold = 0
        self.published = 0

    @property
    def open(self) -> bool:
        return self.published < self._events

    def publish(self) -> None:
        for _ in range(min(1 + self._dice.below(self._burst), self._events - self.published)):
            name, key = self._dice.pick(EVENT_NAMES), self._dice.pick(_KEYS)
            record_key, headers, value = _event(name, key)
            partitions = len(self._logs)
            partition = partition_of(record_key, partitions) if record_key else self._sold % partitions
            unique = [(header, b"e%d" % self._sold if header == "ce_id" else text) for header, text in headers]
            output = Output(NAME.event_topic, partition, record_key, value, unique)
            self._sold += 1
            for _ in range(2 if self._dice.strikes(Fault.DUPLICATE) else 1):
                self._journal.note(f"publish e{self._sold} {name}")
                self._logs[partition].append(output, self._clock.now_ms())
                self.published += 1


@cache
def _event(name: str, key: str) -> tuple[bytes | None, Headers, bytes | None]:
    """Key, headers and value of an event as it is on the wire. Only the id is missing: to make each anew takes time."""
    event = Event.new("shop", name, id="the-id", type="t", **({"partitionkey": key} if key else {}))
    headers, value = to_kafka(event)
    return event.key, headers, value
