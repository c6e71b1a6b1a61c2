"""The rules of a lease: when to take it, when to renew it, when it is lost. No clock, no threads, no network.

Every contender goes by its own monotonic clock only; no time of one machine is ever compared with one of another.
The others measure how long *they* have not seen the record change, and take it after the `duration` that it states, or
their own where that is longer. The holder counts from the moment before it *sent* its last successful renewal, and
leads for less time than that: the others cannot have seen that renewal any earlier, so it stops before anybody can take
over, however long a request or an answer was under way, and even when clocks do not run at quite the same speed.

`transitions` counts the terms. It grows with every term, also when the same process leads again: what an earlier term
left behind can be told from what belongs to this one. Who finds that a record has vanished goes on counting, and waits
as if it had just changed, because its holder may not know yet. Only who has never seen one makes it at once.

The caller asks for the `next` step and reports what was `answered`, in turn. See `eventsources.election.elector`.
"""

from __future__ import annotations

from math import inf
from typing import TypeAlias

import msgspec

from eventbus.errors import ConfigError
from eventsources.election.ports import Answer, Conflict, Gone, Record, Seen, Unreachable

DRIFT = 0.01
"""By how much clocks may run too fast or too slow. Those of real machines stay far below that."""
_MARGIN = (1 + DRIFT) / (1 - DRIFT) - 1
"""By how much time passes faster for one that is too fast than for one that is too slow."""
JITTER = 0.2
"""By how much of it the caller may prolong a wait, so that contenders do not come all at once."""


class Timings(msgspec.Struct, frozen=True):
    """In seconds. Raises `ConfigError` unless a lease outlasts the renew deadline, and that one the retries."""

    lease: int = 15
    """How long others wait for a sign of life. A whole number, because Kubernetes keeps it as one."""
    renew_deadline: float = 10
    """How long the holder leads after it has sent its last successful renewal."""
    retry: float = 2

    def __post_init__(self) -> None:
        if not 0 < self.retry * (1 + JITTER) < self.renew_deadline:
            raise ConfigError(
                f"the renew deadline ({self.renew_deadline:g} s) must be more than {1 + JITTER:g} times "
                f"the retry period ({self.retry:g} s), and that more than 0"
            )
        if not self.renew_deadline * (1 + _MARGIN) < self.lease:
            raise ConfigError(
                f"the lease ({self.lease:g} s) must be more than {_MARGIN:.1%} longer than the renew deadline "
                f"({self.renew_deadline:g} s), because clocks do not run at the same speed"
            )


class Get(msgspec.Struct, frozen=True):
    pass


class Create(msgspec.Struct, frozen=True):
    record: Record


class Replace(msgspec.Struct, frozen=True):
    record: Record
    version: str


class Wait(msgspec.Struct, frozen=True):
    """Nothing to do before this time."""

    until: float


Request: TypeAlias = Get | Create | Replace


class _Reign(msgspec.Struct, frozen=True):
    term: int
    until: float


class Lease:
    """One contender. `now` is always its monotonic time; `term` and `left` may be asked from other threads."""

    def __init__(self, identity: str, timings: Timings) -> None:
        self._identity = identity
        self._timings = timings
        self._reign: _Reign | None = None
        self._last_term = 0
        self._observed: Seen | Gone | None = None
        self._changed_at = -inf
        self._patience = 0.0
        self._up_to_date = False
        self._may_be_held_by_us = False
        self._resigned = False
        self._turn_began: float | None = None
        self._turn_over = False

    def term(self, now: float) -> int | None:
        """The term that we lead, or None."""
        reign = self._reign
        return reign.term if reign is not None and now < reign.until else None

    def left(self, now: float) -> float:
        """For how long we lead if no renewal succeeds."""
        reign = self._reign
        return 0.0 if reign is None else max(0.0, reign.until - now)

    @property
    def holder(self) -> str:
        """As last seen; empty when there is none."""
        return self._observed.record.holder if isinstance(self._observed, Seen) else ""

    def next(self, now: float, now_ms: int) -> Request | Wait:
        """What to ask the store for, until it says to wait. `now_ms` is only written down, for people."""
        if self._turn_began is None:
            self._turn_began = now
            self._up_to_date = self._up_to_date and self.term(now) is not None
        request = None if self._turn_over else self._wanted(now, now_ms)
        if request is not None:
            return request
        until = self._turn_began + self._timings.retry
        self._turn_began, self._turn_over = None, False
        return Wait(until)

    def answered(self, request: Request, answer: Answer, sent: float, now: float) -> None:
        """`sent` must be read before the request leaves, `now` after its answer has come."""
        match answer:
            case Seen():
                self._observe(answer, now)
                if isinstance(request, Get):
                    self._check_holder(answer.record)
                else:
                    self._written(answer.record, sent, now)
            case Gone():
                self._observe(answer, now)
                self._reign = None
                self._turn_over = not isinstance(request, Get)
            case Conflict():
                self._up_to_date = False
                self._turn_over = self.term(now) is None
            case Unreachable():
                self._up_to_date = False
                self._turn_over = True

    def resign(self) -> None:
        """Lead no more, at once. What `next` asks for until it says to wait tells the others."""
        self._resigned = True
        self._reign = None
        self._turn_began, self._turn_over = None, False

    # --- what is known ----------------------------------------------------------------------------------------------

    def _observe(self, found: Seen | Gone, now: float) -> None:
        before, self._observed = self._observed, found
        self._up_to_date = True
        if isinstance(found, Gone):
            self._may_be_held_by_us = False
            if isinstance(before, Seen):
                self._changed_at = now
            return
        self._may_be_held_by_us = found.record.holder == self._identity
        self._last_term = max(self._last_term, found.record.transitions)
        if not isinstance(before, Seen) or before.version != found.version:
            self._changed_at = now
            self._patience = max(found.record.duration, self._timings.lease)

    def _check_holder(self, record: Record) -> None:
        if record.holder != self._identity:
            self._reign = None

    def _written(self, record: Record, sent: float, now: float) -> None:
        self._turn_over = True
        renewed = self._reign is not None and self._reign.term == record.transitions
        if self._resigned or (renewed and self.term(now) is None):
            return  # what was lost stays lost: whoever watches has been told, and the next term has another number
        self._reign = _Reign(record.transitions, sent + self._timings.renew_deadline)

    # --- what to do -------------------------------------------------------------------------------------------------

    def _wanted(self, now: float, now_ms: int) -> Request | None:
        if self._resigned and not self._may_be_held_by_us:
            return None
        if not self._up_to_date:
            return Get()
        if self._resigned:
            return self._release(now_ms)
        if self.term(now) is not None:
            return self._renew(now_ms)
        return self._acquire(now_ms) if self._free(now) else None

    def _free(self, now: float) -> bool:
        unclaimed = isinstance(self._observed, Seen) and self.holder in ("", self._identity)
        return unclaimed or now >= self._changed_at + self._patience

    def _acquire(self, now_ms: int) -> Request:
        self._may_be_held_by_us = True
        record = Record(self._identity, self._timings.lease, self._last_term + 1, now_ms, now_ms)
        return Replace(record, self._observed.version) if isinstance(self._observed, Seen) else Create(record)

    def _renew(self, now_ms: int) -> Request:
        assert isinstance(self._observed, Seen)  # noqa: S101 - who leads has seen its own record
        changes = {"duration": self._timings.lease, "transitions": self._last_term}
        return self._replace(self._observed, msgspec.structs.replace(self._observed.record, **changes), now_ms)

    def _release(self, now_ms: int) -> Request:
        assert isinstance(self._observed, Seen)  # noqa: S101 - it may be held by us
        return self._replace(self._observed, msgspec.structs.replace(self._observed.record, holder=""), now_ms)

    def _replace(self, observed: Seen, record: Record, now_ms: int) -> Replace:
        """A write that changes nothing has no new version, and would not be a sign of life."""
        differs = now_ms if now_ms != observed.record.renewed_ms else now_ms + 1
        return Replace(msgspec.structs.replace(record, renewed_ms=differs), observed.version)
