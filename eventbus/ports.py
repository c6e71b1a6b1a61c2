"""What the rest of the project needs from a log, a clock and a group of consumers.

Two adapters implement these protocols: `eventbus.kafka` (confluent-kafka) and `eventbus.memory` (shipped to users
for their own tests). `tests/contract` is the definition of their behaviour; both adapters must pass it.

All calls may raise the `LogError` family of `eventbus.errors` and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol, TypeAlias

import msgspec

from eventbus.errors import LogError

Headers: TypeAlias = Sequence[tuple[str, bytes | None]]


class Record(msgspec.Struct, frozen=True, gc=False):
    """A record as it was read from the log. `timestamp` is milliseconds since 1970, as the log keeps it."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class Output(msgspec.Struct, frozen=True, gc=False):
    """A record to be written. The partition is always ours to choose, never a client's default."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()

    def size(self) -> int:
        """Bytes this record takes on the wire, with room for the framing of a record batch."""
        headers = sum(len(name) + len(value or b"") + 10 for name, value in self.headers)
        return len(self.key or b"") + len(self.value or b"") + headers + 100


class Committed(msgspec.Struct, frozen=True):
    """What a consumer group has committed for one partition."""

    offset: int
    metadata: str


class Commit(msgspec.Struct, frozen=True):
    """An input offset with its metadata, to be committed inside a transaction."""

    partition: int
    offset: int
    metadata: str


class Position(msgspec.Struct, frozen=True):
    """Where a published record was written."""

    topic: str
    partition: int
    offset: int


class TopicSpec(msgspec.Struct, frozen=True):
    """A topic as it should be. `config` holds Kafka's own names and values."""

    name: str
    partitions: int
    config: Mapping[str, str]


class TopicInfo(msgspec.Struct, frozen=True):
    """A topic as it is."""

    name: str
    partitions: int
    replication: int
    config: Mapping[str, str]
    id: str = ""
    """Tells a topic from another one that had the same name before; empty where the log has no such thing."""


class RebalanceListener(Protocol):
    """Told about changes of assignment, always from inside `GroupConsumer.poll` or `close`."""

    def assigned(self, partitions: Sequence[int]) -> None:
        """These partitions are ours now. They stay silent until `GroupConsumer.start`.

        Called with none, once, where the group has nothing for a new member: it has joined all the same.
        """

    def revoked(self, partitions: Sequence[int]) -> None:
        """These partitions go to another member after this call returns: the last moment to commit them."""

    def lost(self, partitions: Sequence[int]) -> None:
        """These partitions already belong to another member: nothing about them may be committed."""


class GroupConsumer(Protocol):
    """One member of a consumer group that reads one topic, read_committed, with cooperative rebalancing."""

    def poll(self, max_records: int, timeout: float) -> Sequence[Record]:
        """Return what is there, at most `max_records`; wait up to `timeout` seconds only while there is nothing.

        Returns records of started partitions only. Calls the listener when the assignment changed, and returns soon
        after that. Raises `RetriableError` while there is nothing because no broker answers.
        """

    def start(self, partition: int, offset: int) -> None:
        """Deliver this assigned partition from `offset` on. Also moves a partition that was started before.

        Records that were fetched before this call are never delivered after it. Raises `FatalError` from `poll`
        when the log no longer has `offset` (there is no silent reset).
        """

    def stop(self, partition: int) -> None:
        """Deliver nothing of this partition until the next `start`."""

    def pause(self, partitions: Iterable[int]) -> None:
        """Deliver nothing of these started partitions until `resume`, which goes on where they were."""

    def resume(self, partitions: Iterable[int]) -> None:
        """The counterpart of `pause`."""

    def committed(self, partitions: Iterable[int]) -> dict[int, Committed | None]:
        """What the group has committed; None where it has committed nothing.

        Raises `RetriableError` while a transaction that commits one of them is still open: never an old answer.
        """

    def offsets(self, partition: int) -> tuple[int, int]:
        """The first offset that still exists and the next one to be written (read_uncommitted)."""

    def position(self, partition: int) -> int:
        """Everything of this started partition before this offset was delivered, was aborted, or is not a record.

        It passes over transaction markers at the end too, so that `offsets` minus it is the lag.
        """

    def group_metadata(self) -> object:
        """This member's identity and generation right now, for `TransactionalProducer.send_offsets`."""

    def close(self) -> None:
        """Leave the group. The listener is told about what is revoked thereby."""


class TransactionalProducer(Protocol):
    """Writes transactions. One producer at a time may use a transactional id: a newer one fences the older."""

    def init(self) -> None:
        """Fence and finish whatever a predecessor with this id left behind. Call once, first."""

    def begin(self) -> None:
        """Open a transaction."""

    def produce(self, outputs: Sequence[Output]) -> None:
        """Write records into the open transaction.

        Raises `UnproducibleError` at once for a record that is too large for the client, and may leave those after
        it unwritten. A refusal by the log itself comes out of `commit`, or of any call before it. The error's index
        counts all records of the transaction. After any error but a `RetriableError` the transaction is over:
        `abort` it.
        """

    def send_offsets(self, topic: str, commits: Sequence[Commit], group_metadata: object) -> None:
        """Make the input's progress part of the open transaction."""

    def commit(self) -> None:
        """Make everything visible at once, or raise."""

    def abort(self) -> None:
        """Make nothing visible."""

    def close(self) -> None:
        """Release the client. An open transaction is left for the successor's `init` or the log's time-out."""


class Reader(Protocol):
    """Reads single partitions without a group, read_committed: for restores, `tail` and inspection."""

    def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        """The first offset that still exists and the next one to be written (read_uncommitted)."""

    def offset_at(self, topic: str, partition: int, timestamp: int) -> int:
        """Where to begin so as to read all that was appended at this time (milliseconds since 1970) or later.

        Where nothing was, that is the end of what is committed.
        """

    def open(self, topic: str, partition: int, offset: int) -> None:
        """Read this partition too, from `offset` on."""

    def read(self, max_records: int, timeout: float) -> list[Record]:
        """Return what is there; wait up to `timeout` seconds only while there is nothing.

        Where `position` has moved over what is no record, that ends the wait too. Raises `RetriableError` while there
        is nothing because no broker answers.
        """

    def position(self, topic: str, partition: int) -> int:
        """Everything before this offset has been returned by `read`, was aborted, or is not a record.

        It passes over transaction markers and aborted records at the end of the partition too, so that comparing
        it with `offsets` tells when all is read.
        """

    def close(self, topic: str | None = None, partition: int | None = None) -> None:
        """Stop reading one partition, or release the client."""


class Publisher(Protocol):
    """Writes single records outside transactions, idempotently, acknowledged by all in-sync replicas."""

    def send(self, output: Output, done: Callable[[LogError | None, Position | None], None]) -> None:
        """Queue one record. `done` is called once, from `serve`, `flush` or another `send`, when its fate is known.

        Raises `UnproducibleError` at once when it is too large, `RetriableError` when the queue is full.
        """

    def serve(self, timeout: float) -> None:
        """Wait until the fate of some record is known, or the time is up, and tell it."""

    def flush(self, timeout: float) -> int:
        """Wait until nothing is queued, or the time is up; return how many records are still under way."""

    def close(self) -> None:
        """Release the client."""


class Cluster(Protocol):
    """A log, and the makers of everything that reads and writes it."""

    def describe(self, topics: Iterable[str]) -> dict[str, TopicInfo | None]:
        """What these topics are like; None for one that does not exist."""

    def create(self, topics: Iterable[TopicSpec]) -> None:
        """Create topics. One that exists already is left alone."""

    def delete(self, topics: Iterable[str]) -> None:
        """Delete topics. One that does not exist is ignored."""

    def forget(self, groups: Iterable[str]) -> None:
        """Delete groups and all that they have committed. One that does not exist is ignored.

        Raises `FatalError` where one of them still has members.
        """

    def committed(self, group: str, topic: str) -> dict[int, Committed | None]:
        """What any group has committed, without joining it; one entry per partition of the topic."""

    def members(self, group: str) -> int:
        """How many consumers any group has at the moment, without joining it."""

    def consumer(self, group: str, topic: str, listener: RebalanceListener) -> GroupConsumer:
        """Join a group."""

    def producer(self, transactional_id: str) -> TransactionalProducer:
        """Make a transactional producer; call its `init` before anything else."""

    def reader(self) -> Reader:
        """Make a reader."""

    def publisher(self) -> Publisher:
        """Make a publisher."""

    def close(self) -> None:
        """Release what the cluster itself holds. What it made is closed by whoever asked for it."""


class Clock(Protocol):
    """Time, for the shell. The core has none: it goes by the records' timestamps."""

    def monotonic(self) -> float:
        """Seconds that never go back; for deadlines and delays."""

    def now_ms(self) -> int:
        """Milliseconds since 1970; for people and records."""
