"""The transaction coordinator: who may write under a transactional id, and how transactions end."""

from __future__ import annotations

from collections.abc import Callable

from eventbus.errors import FencedError
from eventbus.memory.groups import Group
from eventbus.memory.topics import Partition


class Transaction:
    """What one open transaction has touched."""

    def __init__(self, producer: int, began: float) -> None:
        self.producer = producer
        self.began = began
        self.partitions: list[Partition] = []
        self.groups: list[Group] = []

    def touch(self, partition: Partition) -> None:
        if partition not in self.partitions:
            self.partitions.append(partition)

    def touch_group(self, group: Group) -> None:
        if group not in self.groups:
            self.groups.append(group)

    def end(self, *, commit: bool) -> None:
        """Tell every partition and group on its own: the markers are not atomic, in Kafka neither."""
        for partition in self.partitions:
            partition.end_transaction(self.producer, commit=commit)
        for group in self.groups:
            group.end_transaction(self.producer, commit=commit)


class _Producer:
    """One transactional id. The epoch tells its present user from all former ones."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.epoch = -1
        self.transaction: Transaction | None = None

    def end(self, *, commit: bool) -> None:
        transaction, self.transaction = self.transaction, None
        if transaction is not None:
            transaction.end(commit=commit)


class Coordinator:
    """All transactional ids of a cluster."""

    def __init__(self, monotonic: Callable[[], float], timeout: float) -> None:
        self._monotonic = monotonic
        self._timeout = timeout
        self._producers: dict[str, _Producer] = {}

    def init(self, transactional_id: str) -> int:
        """Abort what a predecessor left open, fence it, and return the new epoch."""
        producer = self._producers.setdefault(transactional_id, _Producer(len(self._producers)))
        producer.end(commit=False)
        producer.epoch += 1
        return producer.epoch

    def transaction(self, transactional_id: str, epoch: int) -> Transaction:
        """The open transaction; one is opened by the first write."""
        producer = self._current(transactional_id, epoch)
        if producer.transaction is None:
            producer.transaction = Transaction(producer.number, self._monotonic())
        return producer.transaction

    def end(self, transactional_id: str, epoch: int, *, commit: bool) -> None:
        self._current(transactional_id, epoch).end(commit=commit)

    def expire(self) -> None:
        """Abort and fence whoever has kept a transaction open for too long."""
        now = self._monotonic()
        for producer in self._producers.values():
            if producer.transaction is not None and now - producer.transaction.began >= self._timeout:
                producer.end(commit=False)
                producer.epoch += 1

    def _current(self, transactional_id: str, epoch: int) -> _Producer:
        producer = self._producers[transactional_id]
        if producer.epoch != epoch:
            raise FencedError(
                f"producer `{transactional_id}` was fenced: another one uses the same id, or this one was too slow"
            )
        return producer
