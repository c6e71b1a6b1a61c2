"""Which triggers an operator has paused: followed in the control topic while the sensor runs.

A pause has no place in the order of the log, as a flush has: whoever pauses a trigger wants it to stop now, not when
all that was written before has been dealt with.
"""

from __future__ import annotations

from contextlib import suppress

from eventbus.clock import Deadline
from eventbus.errors import RetriableError
from eventbus.names import SensorName
from eventbus.ports import Clock, Cluster
from sensors.pauses import Pauses, note_pause

_INTERVAL = 1.0
_READ_RECORDS = 1000
_FIRST_SECONDS = 5.0


class Switch:
    """Asked at every turn of the invoke stage, which begins nothing before it has had the first answer."""

    def __init__(self, cluster: Cluster, name: SensorName, clock: Clock) -> None:
        self._topic = name.control_topic
        self._reader = cluster.reader()
        self._clock = clock
        self._known = False
        self._next = 0.0
        self._pauses: Pauses = {}

    def pauses(self) -> Pauses:
        """A new object whenever they have changed. Raises `RetriableError` until it knows."""
        now = self._clock.monotonic()
        if not self._known or now >= self._next:
            self._next = now + _INTERVAL
            if not self._known:
                self._read_all()
            with suppress(RetriableError):  # what was known still holds
                self._read(0.0)
        return self._pauses

    def _read_all(self) -> None:
        first, end = self._reader.offsets(self._topic, 0)
        self._reader.open(self._topic, 0, first)
        deadline = Deadline(self._clock, _FIRST_SECONDS)
        while self._reader.position(self._topic, 0) < end:
            if deadline.over():
                self._reader.close(self._topic, 0)
                raise RetriableError(f"the topic `{self._topic}` could not be read: it tells which triggers are paused")
            self._read(0.1)
        self._known = True

    def _read(self, timeout: float) -> None:
        pauses = dict(self._pauses)
        for record in self._reader.read(_READ_RECORDS, timeout):
            note_pause(pauses, record)
        if pauses != self._pauses:
            self._pauses = pauses

    def close(self) -> None:
        self._reader.close()
