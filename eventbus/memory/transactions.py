"""The transaction coordinator: who may write under a transactional id, and how transactions end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from eventbus.errors import FencedError
from eventbus.memory.groups import Group
from eventbus.memory.topics import Partition

Touched: TypeAlias = Partition | Group


class Markers(Protocol):
    """How the end of a transaction reaches the partitions and groups it has touched. In Kafka that is not atomic."""

    def write(self, producer: int, touched: Sequence[Touched], *, commit: bool) -> None:
        """Call `end_transaction` of each, now or later, in any order."""

    def finish(self, producer: int) -> None:
        """Do whatever of that is left for this producer: it is about to begin something new."""


class PromptMarkers:
    """All of them at once."""

    def write(self, producer: int, touched: Sequence[Touched], *, commit: bool) -> None:
        for each in touched:
            each.end_transaction(producer, commit=commit)

    def finish(self, producer: int) -> None:
        """Nothing is ever left."""


class Transaction:
    """What one open transaction has touched."""

    def __init__(self, producer: int, began: float) -> None:
        self.producer = producer
        self.began = began
        self.touched: dict[Touched, None] = {}

    def touch(self, touched: Touched) -> None:
        self.touched[touched] = None


class _Producer:
    """One transactional id. The epoch tells its present user from all former ones."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.epoch = -1
        self.transaction: Transaction | None = None


class Coordinator:
    """All transactional ids of a cluster."""

    def __init__(self, monotonic: Callable[[], float], timeout: float, markers: Markers) -> None:
        self._monotonic = monotonic
        self._timeout = timeout
        self._markers = markers
        self._producers: dict[str, _Producer] = {}

    def init(self, transactional_id: str) -> int:
        """Abort what a predecessor left open, fence it, and return the new epoch."""
        producer = self._producers.setdefault(transactional_id, _Producer(len(self._producers)))
        self._end(producer, commit=False)
        self._markers.finish(producer.number)
        producer.epoch += 1
        return producer.epoch

    def transaction(self, transactional_id: str, epoch: int) -> Transaction:
        """The open transaction; one is opened by the first write."""
        producer = self._current(transactional_id, epoch)
        if producer.transaction is None:
            self._markers.finish(producer.number)
            producer.transaction = Transaction(producer.number, self._monotonic())
        return producer.transaction

    def end(self, transactional_id: str, epoch: int, *, commit: bool) -> None:
        self._end(self._current(transactional_id, epoch), commit=commit)

    def expire(self) -> None:
        """Abort and fence whoever has kept a transaction open for too long."""
        now = self._monotonic()
        for producer in self._producers.values():
            if producer.transaction is not None and now - producer.transaction.began >= self._timeout:
                self._end(producer, commit=False)
                producer.epoch += 1

    def _end(self, producer: _Producer, *, commit: bool) -> None:
        transaction, producer.transaction = producer.transaction, None
        if transaction is not None:
            self._markers.write(producer.number, list(transaction.touched), commit=commit)

    def _current(self, transactional_id: str, epoch: int) -> _Producer:
        producer = self._producers[transactional_id]
        if producer.epoch != epoch:
            raise FencedError(
                f"producer `{transactional_id}` was fenced: another one uses the same id, or this one was too slow"
            )
        return producer
