"""Dead letters: what could not be used, kept whole, with the reason and the way back."""

from __future__ import annotations

from typing import Self

import msgspec

from eventbus.formats import DLQ_HEADER, VERSION, DeadLetter, encodable, encode_fact
from eventbus.names import Kind, SensorName, Stage
from eventbus.ports import Output, Record
from eventbus.topics import Topology

INVALID_EVENT = "invalid-event"
TRANSFORM_FAILED = "transform-failed"
INVALID_RECORD = "invalid-record"
SPEC_CHANGED = "spec-changed"
NO_KEY = "no-correlation-key"
EXPIRED_EVENT = "expired"
FLUSHED = "flushed"
PAUSED = "paused"
UNPRODUCIBLE = "unproducible"
ACTION_FAILED = "action-failed"
NO_EVENT = "no-event"
"""A message that an event source could not make an event of."""
TOO_LARGE = "too-large"

_DETAIL_LIMIT = 2000


class DeadLetters(msgspec.Struct, frozen=True):
    """Makes the dead letters of one writer, such as one stage of one replica."""

    topic: str
    partitions: int
    most_bytes: int
    """Of a value; of a larger one the beginning is kept."""
    stage: str
    replica: str
    source: str | None = None
    """The event source that they are of, and its event."""

    @classmethod
    def of_stage(cls, name: SensorName, stage: Stage, topology: Topology, replica: str) -> Self:
        return cls(name.topic(Kind.DLQ), topology.dlq_partitions, topology.max_value_bytes, stage, replica)

    def of(
        self,
        record: Record,
        reason: str,
        detail: str,
        *,
        trigger: str | None = None,
        action: str | None = None,
        attempts: int | None = None,
        generation: int | None = None,
    ) -> Output:
        """A record that was read and cannot be used."""
        fact = DeadLetter(
            version=VERSION,
            reason=reason,
            detail=encodable(detail[:_DETAIL_LIMIT]),
            stage=self.stage,
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            timestamp=record.timestamp,
            replica=self.replica,
            trigger=trigger,
            action=action,
            attempts=attempts,
            generation=generation,
        )
        return self._written(fact, record.key, record.value, [*record.headers])

    def of_refused(self, output: Output, detail: str, reason: str = UNPRODUCIBLE) -> Output:
        """A record that the log will not take: its beginning, and where it should have gone."""
        fact = DeadLetter(
            version=VERSION,
            reason=reason,
            detail=encodable(detail[:_DETAIL_LIMIT]),
            stage=self.stage,
            topic=output.topic,
            partition=output.partition,
            offset=-1,
            timestamp=-1,
            replica=self.replica,
            source=self.source,
        )
        return self._written(fact, output.key, output.value, [*output.headers])

    def _written(
        self, fact: DeadLetter, key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
    ) -> Output:
        if value is not None and len(value) > self.most_bytes:
            fact = msgspec.structs.replace(fact, truncated=len(value))
            value = value[: self.most_bytes]
        kept = [(name, raw) for name, raw in headers if name != DLQ_HEADER]
        place = fact.partition % self.partitions
        return Output(self.topic, place, key, value, [*kept, (DLQ_HEADER, encode_fact(fact))])
