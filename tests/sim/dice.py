"""All chance of a simulation: one generator, seeded once. Each seed has its own mixture of faults."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from enum import StrEnum
from math import floor, inf, log
from typing import TypeVar

T = TypeVar("T")


class Fault(StrEnum):
    """What can go wrong. The first group strikes inside a call to the log, the second between two steps."""

    CRASH = "crash"
    SUSPEND = "suspended process"
    ABORT = "aborted transaction"
    UNKNOWN_COMMITTED = "unknown outcome, committed"
    UNKNOWN_LOST = "unknown outcome, request lost"
    UNKNOWN_DELAYED = "unknown outcome, request delayed"
    RETRIABLE = "unanswered request"
    UNSTABLE_OFFSETS = "offset fetch failed"
    LATE_MARKER = "late transaction marker"
    ZOMBIE = "suspended past its session, with a commit under way"

    STOP = "graceful stop"
    START = "replica started"
    TWIN = "second process with the same slot"
    CLOCK_JUMP = "clock jump"
    DUPLICATE = "event published twice"
    SPEC_CHANGE = "spec change"
    COMPACTION = "compaction"
    RETENTION = "retention"
    DELAYED_END = "delayed end of a transaction"
    ACTION_UNSENT = "action failed, not sent"
    ACTION_SENT = "action failed, sent"
    ACTION_REFUSED = "action refused"
    ACTION_HANGS = "action outlasts the drain time"
    ACTION_DIED = "action died with its process"


_RATES = {
    Fault.CRASH: 0.004,
    Fault.SUSPEND: 0.003,
    Fault.ABORT: 0.04,
    Fault.UNKNOWN_COMMITTED: 0.06,
    Fault.UNKNOWN_LOST: 0.06,
    Fault.UNKNOWN_DELAYED: 0.06,
    Fault.RETRIABLE: 0.03,
    Fault.UNSTABLE_OFFSETS: 0.2,
    Fault.LATE_MARKER: 0.5,
    Fault.ZOMBIE: 0.03,
    Fault.STOP: 0.06,
    Fault.START: 0.1,
    Fault.TWIN: 0.2,
    Fault.CLOCK_JUMP: 0.1,
    Fault.DUPLICATE: 0.01,
    Fault.SPEC_CHANGE: 0.15,
    Fault.COMPACTION: 0.2,
    Fault.RETENTION: 0.2,
    Fault.DELAYED_END: 0.3,
    Fault.ACTION_UNSENT: 0.15,
    Fault.ACTION_SENT: 0.15,
    Fault.ACTION_REFUSED: 0.03,
    Fault.ACTION_HANGS: 0.5,
    Fault.ACTION_DIED: 0.5,
}


class Dice:
    """Decides. After `calm` nothing goes wrong any more."""

    def __init__(self, seed: int, note: Callable[[str], None]) -> None:
        self.seed = seed
        self._random = random.Random(seed)
        self._note = note
        self.counts: Counter[Fault] = Counter()
        self._rates = {fault: rate * self._random.choice((0, 0.5, 1, 3)) for fault, rate in _RATES.items()}
        self._points_left = self._points_between()

    def often(self, fault: Fault) -> None:
        """This seed is about this fault."""
        self._rates[fault] = 0.5

    def calm(self) -> None:
        self._rates = dict.fromkeys(Fault, 0.0)
        self._points_left = self._points_between()

    def mishap(self) -> Fault | None:
        """What happens to a process at one of the many points where something could: hardly ever anything.

        Asked between any two calls, so it counts down to the next one instead of throwing dice each time.
        """
        self._points_left -= 1
        if self._points_left > 0:
            return None
        self._points_left = self._points_between()
        crash, suspend = self._rates[Fault.CRASH], self._rates[Fault.SUSPEND]
        return self._struck(Fault.CRASH if self._random.random() * (crash + suspend) < crash else Fault.SUSPEND)

    def _points_between(self) -> float:
        rate = self._rates[Fault.CRASH] + self._rates[Fault.SUSPEND]
        return inf if not rate else 1 + floor(log(1 - self._random.random()) / log(1 - rate))

    def strikes(self, fault: Fault) -> bool:
        rate = self._rates[fault]
        if not rate or self._random.random() >= rate:
            return False
        self._struck(fault)
        return True

    def _struck(self, fault: Fault) -> Fault:
        self.counts[fault] += 1
        self._note(fault)
        return fault

    def coin(self) -> bool:
        return self._random.random() < 0.5

    def fraction(self) -> float:
        return self._random.random()

    def below(self, limit: int) -> int:
        """0 to `limit` - 1. Faster than `randrange`, and its tiny bias does not matter here."""
        return int(self._random.random() * limit)

    def pick(self, choices: Sequence[T]) -> T:
        return choices[self.below(len(choices))]
