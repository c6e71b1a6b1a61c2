"""What an election needs from the place that keeps the lease, and what an event source needs from an election.

A store answers with a value and never raises, because each answer asks for another reaction:

=============== ===============================================================================================
`Seen`          the record as it is now; after a write, the one that was written
`Gone`          there is no record
`Conflict`      nothing was written: somebody else has written since the given version
`Unreachable`   no usable answer; a write may have been done, or may still be done later
=============== ===============================================================================================
"""

from __future__ import annotations

from typing import Protocol, TypeAlias

import msgspec


class Record(msgspec.Struct, frozen=True):
    """A lease. Its times are of the holder's own clock and for people: nobody decides anything by them."""

    holder: str
    """Empty when nobody holds it."""
    duration: int
    """Seconds that others wait for a sign of life; 0 when the record does not say."""
    transitions: int
    acquired_ms: int
    renewed_ms: int


class Seen(msgspec.Struct, frozen=True):
    record: Record
    version: str
    """Differs after every write. There is no order among versions."""


class Gone(msgspec.Struct, frozen=True):
    pass


class Conflict(msgspec.Struct, frozen=True):
    pass


class Unreachable(msgspec.Struct, frozen=True):
    reason: str


Answer: TypeAlias = Seen | Gone | Conflict | Unreachable


class LeaseStore(Protocol):
    """One record, and the writers' race for it. Used by one thread."""

    @property
    def name(self) -> str:
        """What is led, for people."""

    def get(self, timeout: float) -> Seen | Gone | Unreachable:
        """Never older than any write that was answered before."""

    def create(self, record: Record, timeout: float) -> Seen | Conflict | Unreachable: ...

    def replace(self, record: Record, version: str, timeout: float) -> Seen | Gone | Conflict | Unreachable: ...

    def close(self) -> None:
        """Release the client."""


class Stop(Protocol):
    """A `threading.Event` that says when to give up."""

    def is_set(self) -> bool: ...

    def wait(self, timeout: float | None = None) -> bool: ...


class Election(Protocol):
    """One contender, from its start until `close`."""

    def wait_until_leading(self, stop: Stop) -> int | None:
        """The term that has begun, or that is under way; None when `stop` was set or the election was closed."""

    @property
    def leading(self) -> bool:
        """Ask before every single thing that only the leader may do: a process may have slept for any time."""

    @property
    def term(self) -> int | None:
        """Greater than that of every leader before; None while somebody else may lead."""

    def close(self) -> None:
        """Leave it to others at once."""
