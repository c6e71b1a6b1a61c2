"""Dead letters on their way back to where they came from, each of them once.

Theory of operation
-------------------
A dead letter that was driven back stays in its topic. Behind it, in the same partition, stands a *mark* that says so;
record and mark are written in one transaction. All redrives of a topic share one transactional id, and each of them
reads the marks after it has claimed that id: one that started earlier has either committed, then its marks are seen,
or it is fenced and can commit no more. So two people who redrive at the same time cannot drive one letter back twice.

Only the transactions are in memory, never the topic: it is read once for the marks and once for the letters.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Self

import msgspec

from eventbus.clock import Deadline
from eventbus.errors import (
    ConfigError,
    FencedError,
    FormatError,
    LogError,
    NewerFormatError,
    RetriableError,
    UnproducibleError,
)
from eventbus.formats import (
    DLQ_HEADER,
    REDRIVE_MARK_HEADER,
    REDRIVEN_HEADER,
    VERSION,
    DeadLetter,
    dead_letter,
    header,
    is_redrive_mark,
)
from eventbus.names import BusName, Kind, SensorName
from eventbus.ports import Clock, Cluster, Output, Reader, Record, TransactionalProducer
from sensors.deadletters import NO_EVENT, UNPRODUCIBLE
from sensors.dlqactions import parent_of

_CHUNK_RECORDS = 500
_CHUNK_BYTES = 16 << 20
_READ_RECORDS = 500
_STALL_SECONDS = 30.0
_HOPELESS = {UNPRODUCIBLE: "the log would refuse it again", NO_EVENT: "it never was an event"}


class RedriveMark(msgspec.Struct, frozen=True, kw_only=True):
    """A dead letter was driven back. Its version is pinned by golden bytes, like those of `eventbus.formats`."""

    partition: int
    offset: int
    at: int
    """Milliseconds since 1970."""
    version: int = msgspec.field(name="v")


class Letter(msgspec.Struct, frozen=True):
    """A record of the dead-letter topic that is not a mark."""

    record: Record
    fact: DeadLetter | None
    problem: str | None
    """Why there is no fact: the record is not one of ours."""
    redriven_at: int | None

    @property
    def place(self) -> tuple[int, int]:
        return self.record.partition, self.record.offset


class Box(msgspec.Struct, frozen=True):
    """Whose dead letters they are, where they lie, and where they may go back to."""

    owner: str
    topic: str
    inputs: tuple[str, ...]
    transactional_id: str

    @classmethod
    def of_sensor(cls, name: SensorName) -> Self:
        inputs = (name.event_topic, name.topic(Kind.TRIGGER), name.topic(Kind.ACTION))
        return cls(f"the sensor {name}", name.topic(Kind.DLQ), inputs, f"{name.prefix}-redrive")

    @classmethod
    def of_sources(cls, bus: BusName) -> Self:
        """Of all event sources of a bus."""
        owner = f"an event source of the bus {bus.namespace}/{bus.bus} that fetches"
        return cls(owner, bus.reject_topic, (bus.event_topic,), f"{bus.reject_topic}-redrive")


class Selection(msgspec.Struct, frozen=True):
    """Which letters are meant. Places mean exactly those; without any, what was driven back already is left out."""

    places: frozenset[tuple[int, int]] = frozenset()
    reason: str | None = None
    trigger: str | None = None
    redriven_too: bool = False
    but_for: frozenset[str] = frozenset()
    """Letters of these triggers stay."""

    def wants(self, letter: Letter) -> bool:
        if self.places:
            return letter.place in self.places
        if letter.redriven_at is not None and not self.redriven_too:
            return False
        reason, trigger = (letter.fact.reason, letter.fact.trigger) if letter.fact else (None, None)
        names = (None, trigger, parent_of(trigger or ""))  # a trigger's dlqTrigger is meant, too
        return self.reason in (None, reason) and self.trigger in names and self.but_for.isdisjoint(names)


class Outcome(msgspec.Struct, frozen=True):
    """What became of one letter: it was driven back, or there is a reason why not."""

    letter: Letter
    refused: str | None = None


def read_letters(
    cluster: Cluster, box: Box, selection: Selection, clock: Clock, newest: int | None = None
) -> Iterator[Letter]:
    """Dead letters, partition by partition, in the order they were written.

    `newest`: only among so many records of each partition. The mark of a letter comes after it.
    """
    topic = box.topic
    info = cluster.describe([topic])[topic]
    if info is None:
        raise ConfigError(f"the topic `{topic}` does not exist: {box.owner} has never run here")
    reader = cluster.reader()
    try:
        for partition in range(info.partitions):
            first, end = reader.offsets(topic, partition)
            wanted = range(first if newest is None else max(first, end - newest), end)
            marks = _marks(_records(reader, topic, partition, wanted, clock))
            for record in _records(reader, topic, partition, wanted, clock):
                if not is_redrive_mark(record):
                    letter = _letter(record, marks.get(record.offset))
                    if selection.wants(letter):
                        yield letter
    finally:
        reader.close()


def refusal(box: Box, letter: Letter) -> str | None:
    """Why a letter cannot be driven back, if it cannot."""
    fact = letter.fact
    if fact is None:
        return f"it cannot be read: {letter.problem}"
    if letter.redriven_at is not None:
        return "it was driven back already"
    if fact.reason in _HOPELESS:
        return f"{_HOPELESS[fact.reason]}: {fact.detail}"
    if fact.truncated is not None:
        return f"only the first {len(letter.record.value or b'')} of its {fact.truncated} bytes were kept"
    if fact.topic not in box.inputs:
        return f"the topic `{fact.topic}` is none of those that it could have come from"
    return None


def redrive(cluster: Cluster, box: Box, selection: Selection, clock: Clock) -> Iterator[Outcome]:
    """Drive letters back. An outcome is yielded when it is durable; raises `FencedError` when another redrive began."""
    producer = cluster.producer(box.transactional_id)
    try:
        producer.init()
        for chunk in _chunks(read_letters(cluster, box, selection, clock)):
            yield from _drive_back(producer, box, chunk, clock)
    except FencedError:
        raise FencedError(
            f"another redrive of `{box.topic}` has begun and takes over; what is not reported here was left to it"
        ) from None
    finally:
        producer.close()


def original(fact: DeadLetter, record: Record) -> Output:
    """The record as it was before it became a dead letter, with a note of how often it has been driven back."""
    before = header(record.headers, REDRIVEN_HEADER) or b""
    count = int(before) + 1 if before.isdigit() else 1
    headers = [(key, value) for key, value in record.headers if key not in (DLQ_HEADER, REDRIVEN_HEADER)]
    return Output(
        fact.topic, fact.partition, record.key, record.value, [*headers, (REDRIVEN_HEADER, str(count).encode())]
    )


def mark(record: Record, now_ms: int) -> Output:
    """The note that a dead letter was driven back."""
    fact = RedriveMark(version=VERSION, partition=record.partition, offset=record.offset, at=now_ms)
    key = msgspec.json.encode(("redriven", record.partition, record.offset))
    return Output(record.topic, record.partition, key, None, [(REDRIVE_MARK_HEADER, msgspec.json.encode(fact))])


def decode_mark(record: Record) -> RedriveMark:
    """The mark in a record that has a `REDRIVE_MARK_HEADER`. Raises `FormatError`."""
    where = f"{record.topic}[{record.partition}]@{record.offset}"
    try:
        fact = msgspec.json.decode(header(record.headers, REDRIVE_MARK_HEADER) or b"", type=RedriveMark)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise FormatError(f"{where}: not a redrive mark: {error}") from None
    if fact.version != VERSION:
        raise NewerFormatError(f"{where}: written in format version {fact.version}: use the release that wrote it")
    return fact


def _drive_back(
    producer: TransactionalProducer, box: Box, letters: Sequence[Letter], clock: Clock
) -> Iterator[Outcome]:
    """One transaction; once more without each letter that the log refuses."""
    refused = {letter.place: reason for letter in letters if (reason := refusal(box, letter))}
    while pending := [letter for letter in letters if letter.place not in refused]:
        failed = _commit(producer, pending, clock.now_ms())
        if failed is None:
            break
        letter, reason = failed
        refused[letter.place] = reason
    for letter in letters:
        yield Outcome(letter, refused.get(letter.place))


def _commit(producer: TransactionalProducer, letters: Sequence[Letter], now_ms: int) -> tuple[Letter, str] | None:
    """Returns the letter that spoiled the transaction, if one did."""
    outputs: list[Output] = []
    for letter in letters:
        if letter.fact is not None:
            outputs += original(letter.fact, letter.record), mark(letter.record, now_ms)
    producer.begin()
    try:
        producer.produce(outputs)
        producer.commit()
    except UnproducibleError as error:
        producer.abort()
        return letters[error.index // 2], str(error)
    except LogError:
        with suppress(LogError):
            producer.abort()
        raise
    return None


def _chunks(letters: Iterable[Letter]) -> Iterator[list[Letter]]:
    """What fits into one transaction."""
    chunk: list[Letter] = []
    size = 0
    for letter in letters:
        length = len(letter.record.value or b"")
        if chunk and (len(chunk) == _CHUNK_RECORDS or size + length > _CHUNK_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(letter)
        size += length
    if chunk:
        yield chunk


def _marks(records: Iterable[Record]) -> dict[int, int]:
    """When which offset of the partition was driven back."""
    marks = (decode_mark(record) for record in records if is_redrive_mark(record))
    return {mark.offset: mark.at for mark in marks}


def _letter(record: Record, redriven_at: int | None) -> Letter:
    try:
        return Letter(record, dead_letter(record), None, redriven_at)
    except FormatError as error:
        return Letter(record, None, str(error), redriven_at)


def _records(reader: Reader, topic: str, partition: int, offsets: range, clock: Clock) -> Iterator[Record]:
    """The committed records among these offsets, however long that takes as long as it goes on."""
    reader.open(topic, partition, offsets.start)
    patience = Deadline(clock, _STALL_SECONDS)
    while reader.position(topic, partition) < offsets.stop:
        records = reader.read(_READ_RECORDS, 0.1)
        if not records and patience.over():
            raise RetriableError(f"{topic}[{partition}] could not be read within {_STALL_SECONDS:g} s")
        yield from (record for record in records if record.offset < offsets.stop)
        if records:
            patience = Deadline(clock, _STALL_SECONDS)
    reader.close(topic, partition)
