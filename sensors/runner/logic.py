"""What a stage's loop and its logic have to do with each other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import msgspec

from eventbus.names import Stage
from eventbus.ports import Commit, Committed, Output, Record


class Transaction(msgspec.Struct, frozen=True):
    """What a stage wants to make durable, all of it or nothing; or one part of that. Never without commits."""

    outputs: Sequence[Output]
    commits: Sequence[Commit]


class StageLogic(Protocol):
    """What is different between the stages. It is told the truth about partitions and never touches the log."""

    stage: Stage

    def opened(self, partition: int, committed: Committed | None) -> tuple[str, int] | None:
        """A partition is ours. Return the state partition to be read first, if any."""

    def load(self, partition: int, record: Record) -> None:
        """One record of that state partition."""

    def restored(self, partition: int, offsets: tuple[int, int]) -> int:
        """All state is read. Return the offset to start at; `offsets` are the first and the next in the log."""

    def dropped(self, partition: int) -> None:
        """Forget a partition, and whatever of it is not committed."""

    def work(self, records: Sequence[Record]) -> Iterable[Transaction]:
        """Deal with records of running partitions, in the order of the log within each, and tell what to commit now.

        All parts make one transaction. The later commit of a partition takes the place of the earlier one.
        """

    def committed(self) -> None:
        """The last transaction is durable."""

    def aborted(self) -> bool:
        """Nothing of the last transaction has happened. Return whether what is in memory still holds.

        It does where it is knowledge about the world (this action was invoked), and does not where it was computed as
        if the transaction had been committed. In the second case every partition is dropped and restored.
        """

    def revoking(self, partitions: Sequence[int]) -> Iterable[Transaction]:
        """These are about to be given up: come to an end with them, and return what is still to be committed."""

    def congested(self) -> set[int]:
        """Partitions that should not be fetched from for now."""

    def wait(self, timeout: float) -> float:
        """Wait for work that does not come from the log. Return for how long to wait for records instead."""

    def idle(self) -> bool:
        """Whether everything that was received is dealt with."""

    def working(self) -> bool:
        """Whether something is under way that will be committed only when it has ended."""
