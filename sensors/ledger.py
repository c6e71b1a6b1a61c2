"""What is finished of one partition of the action topic.

Actions finish out of order: a slow trigger does not hold up the others in its partition. Kafka commits one offset,
so what is finished above it travels in the commit's metadata. The ledger keeps the unfinished offsets only: whatever
lies between two of them is finished, or is no record at all (transaction markers take offsets too).
"""

from __future__ import annotations

from itertools import chain, pairwise

from eventbus.metadata import InvokeCommit, Owner, open_that_fit


class Ledger:
    """The unfinished offsets of one partition. They are opened in ascending order."""

    def __init__(self, owner: Owner, commit: InvokeCommit) -> None:
        self._owner = owner
        self._finished_before = list(commit.finished)
        self._position = commit.offset
        self._unfinished: set[int] = set()
        self._taken: set[int] = set()

    @property
    def position(self) -> int:
        """The next offset to be opened."""
        return self._position

    def has_room(self) -> bool:
        """Whether the metadata fits if one more action is opened, whichever of them finish or are reopened."""
        first = min(chain(self._unfinished, self._taken), default=self._position)
        return len(self._unfinished) + len(self._taken) < open_that_fit(self._position + 1 - first)

    def open(self, offset: int) -> bool:
        """Take note of the next record; False when a predecessor has finished it."""
        while self._finished_before and self._finished_before[0][1] <= offset:
            self._finished_before.pop(0)
        self._position = offset + 1
        if self._finished_before and self._finished_before[0][0] <= offset:
            return False
        self._unfinished.add(offset)
        return True

    def take(self, offset: int) -> None:
        """Mark it as finished before it is begun. It keeps its room in the metadata, as it may be reopened."""
        self._unfinished.discard(offset)
        self._taken.add(offset)

    def finish(self, offset: int) -> None:
        self._unfinished.discard(offset)
        self._taken.discard(offset)

    def reopen(self, offset: int) -> None:
        """It was taken, and never begun: leave it to the next owner."""
        self._taken.discard(offset)
        self._unfinished.add(offset)

    def commit(self) -> InvokeCommit:
        bounds = [*sorted(self._unfinished), self._position]
        finished = [(left + 1, right) for left, right in pairwise(bounds) if right > left + 1]
        later = [(max(start, self._position), end) for start, end in self._finished_before if end > self._position]
        return InvokeCommit(self._owner, bounds[0], finished + later)
