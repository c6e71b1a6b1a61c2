"""Events, at a steady rate, whatever happens to the brokers."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence

from eventbus import Bus, Event
from eventbus.errors import LogError

_TURN_SECONDS = 0.1
_HASTE = 2.0
"""How much faster than usual it makes up for a pause."""
_KEYS = 40
_PREFIX = "e"
_RARE = 0.15
"""How many of all events are not of the first kind."""


class Mixture:
    """Of events whose names are a sensor's dependencies."""

    def __init__(self, names: Sequence[str], dice: random.Random) -> None:
        self._names = names
        # All but the first are rare: a trigger's joined actions are invoked one after the other, one per transaction,
        # and the rarest of its events decides how often they come.
        self._weights = [1.0 - _RARE, *[_RARE / max(1, len(names) - 1)] * (len(names) - 1)]
        self._dice = dice

    def event(self, number: int, prefix: str) -> Event:
        [name] = self._dice.choices(self._names, self._weights)
        key = f"key-{self._dice.randrange(_KEYS)}"
        return Event.new("shop", name, {"n": number}, id=f"{prefix}{number}", partitionkey=key)


class Traffic(threading.Thread):
    """Publishes until it is stopped. What was not acknowledged is not repeated: the log tells what there is."""

    def __init__(
        self,
        connect: Callable[[], Bus],
        dependencies: Sequence[str],
        *,
        rate: float,
        seed: int,
        congested: Callable[[], bool],
    ) -> None:
        """While `congested`, it pauses, and makes up for it later."""
        super().__init__(name="traffic", daemon=True)
        self.published = 0
        self.doubtful = 0
        """How many events were not acknowledged; some of them may be in the log all the same."""
        self._connect = connect
        self._mixture = Mixture(dependencies, random.Random(seed))
        self._rate = rate
        self._largest_batch = round(_HASTE * rate * _TURN_SECONDS) + 1
        self._congested = congested
        self._stopped = threading.Event()

    def stop(self) -> None:
        self._stopped.set()
        self.join()

    def run(self) -> None:
        bus = self._connect()
        began = time.monotonic()
        sent = 0
        while not self._stopped.wait(_TURN_SECONDS):
            due = int((time.monotonic() - began) * self._rate) - sent
            if self._congested():
                continue
            batch = [self._mixture.event(sent + number, _PREFIX) for number in range(min(due, self._largest_batch))]
            sent += len(batch)
            try:
                bus.publish_all(batch)
                self.published += len(batch)
            except LogError:
                self.doubtful += len(batch)
                bus.close()
                bus = self._connect()
        bus.close()
