"""Calls that librdkafka may never return from.

`send_offsets_to_transaction` ignores its time-out (librdkafka #5456) and was seen to hang for good after a broker had
been restarted. A call into C cannot be interrupted, only left behind: it runs in a thread of its own, and whoever
waits for it goes on without it when its time is up.
"""

from __future__ import annotations

from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TypeAlias

Outcome: TypeAlias = "SimpleQueue[BaseException | None]"


class Impatient:
    """One thread for the calls of one client. It is a daemon: a call that hangs does not keep the process alive."""

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[tuple[Callable[[], None], Outcome] | None] = SimpleQueue()
        self._thread = Thread(target=self._serve, name=name, daemon=True)

    def call(self, function: Callable[[], None], seconds: float) -> bool:
        """Call it, and raise what it raises. Returns False when it has not returned in time: it still runs."""
        if not self._thread.is_alive():
            self._thread.start()
        outcome: Outcome = SimpleQueue()
        self._calls.put((function, outcome))
        try:
            error = outcome.get(timeout=seconds)
        except Empty:
            return False
        if error is not None:
            raise error
        return True

    def close(self) -> None:
        self._calls.put(None)

    def _serve(self) -> None:
        while (entry := self._calls.get()) is not None:
            function, outcome = entry
            try:
                function()
            except BaseException as error:
                outcome.put(error)
            else:
                outcome.put(None)
