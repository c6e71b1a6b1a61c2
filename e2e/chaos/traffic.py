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
_RARE = 0.15
"""How many of all events are not of the first kind."""


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
        self._dependencies = dependencies
        # All but the first are rare: a trigger's joined actions are invoked one after the other, one per transaction,
        # and the rarest of its events decides how often they come.
        self._weights = [1.0 - _RARE, *[_RARE / max(1, len(dependencies) - 1)] * (len(dependencies) - 1)]
        self._rate = rate
        self._largest_batch = round(_HASTE * rate * _TURN_SECONDS) + 1
        self._congested = congested
        self._random = random.Random(seed)
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
            batch = [self._event(sent + number) for number in range(min(due, self._largest_batch))]
            sent += len(batch)
            try:
                bus.publish_all(batch)
                self.published += len(batch)
            except LogError:
                self.doubtful += len(batch)
                bus.close()
                bus = self._connect()
        bus.close()

    def _event(self, number: int) -> Event:
        [name] = self._random.choices(self._dependencies, self._weights)
        key = f"key-{self._random.randrange(_KEYS)}"
        return Event.new("shop", name, {"n": number}, id=f"e{number}", partitionkey=key)
