"""Transactions in memory, with the states that a transaction on Kafka goes through."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from eventbus.errors import AbortableError, FatalError, UnproducibleError
from eventbus.memory.broker import Broker
from eventbus.memory.groups import Membership
from eventbus.memory.transactions import Transaction
from eventbus.ports import Commit, Output
from eventbus.topics import INTERNAL_BYTES


class MemoryProducer:
    """`eventbus.ports.TransactionalProducer` in memory."""

    def __init__(self, broker: Broker, transactional_id: str) -> None:
        self._broker = broker
        self._id = transactional_id
        self._epoch = -1
        self._open = False
        self._produced = 0
        self._failure: AbortableError | UnproducibleError | None = None

    def init(self) -> None:
        with self._broker.changing():
            self._epoch = self._broker.coordinator.init(self._id)

    def begin(self) -> None:
        if self._open or self._epoch < 0:
            raise FatalError(f"producer `{self._id}` cannot begin a transaction now")
        self._open = True
        self._produced = 0
        self._failure = None

    def produce(self, outputs: Sequence[Output]) -> None:
        with self._writing() as transaction:
            now = self._broker.clock.now_ms()
            for output in outputs:
                self._write(transaction, output, now)
                self._produced += 1

    def send_offsets(self, topic: str, commits: Sequence[Commit], group_metadata: object) -> None:
        if not isinstance(group_metadata, Membership):
            raise FatalError(f"the offsets of {topic} belong to a group of another cluster")
        with self._writing() as transaction:
            group = self._broker.group(group_metadata.group)
            group.stage(transaction.producer, topic, commits, group_metadata)
            transaction.touch(group)

    def commit(self) -> None:
        self._check()
        self._end(commit=True)

    def abort(self) -> None:
        self._end(commit=False)

    def close(self) -> None:
        """Nothing is held here; the open transaction stays with the broker."""

    @contextmanager
    def _writing(self) -> Iterator[Transaction]:
        self._check()
        with self._broker.changing():
            try:
                yield self._broker.coordinator.transaction(self._id, self._epoch)
            except AbortableError as error:
                self._failure = error
                raise

    def _check(self) -> None:
        if not self._open:
            raise FatalError(f"producer `{self._id}` has no open transaction")
        if self._failure is not None:
            raise self._failure

    def _write(self, transaction: Transaction, output: Output, now_ms: int) -> None:
        topic = self._broker.topics.get(output.topic)
        if topic is None or not 0 <= output.partition < len(topic.partitions):
            raise UnproducibleError(f"{output.topic}/{output.partition} does not exist", self._produced)
        size = output.size()
        if size > INTERNAL_BYTES:
            raise UnproducibleError(f"a record for {output.topic} is too large to be sent", self._produced)
        refusal = topic.refusal(output, size)
        if refusal is not None:
            # The log's own refusals come late: see `TransactionalProducer.produce`.
            self._failure = self._failure or UnproducibleError(f"{output.topic}: {refusal}", self._produced)
            return
        partition = topic.partitions[output.partition]
        partition.append(output, now_ms, transaction.producer)
        transaction.touch(partition)

    def _end(self, *, commit: bool) -> None:
        if not self._open:
            raise FatalError(f"producer `{self._id}` has no open transaction")
        with self._broker.changing():
            self._broker.coordinator.end(self._id, self._epoch, commit=commit)
        self._open = False
