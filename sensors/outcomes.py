"""What is written about an action: its invocation records, and what remains of one that is given up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from eventbus.formats import VERSION, Failure, Invocation, encodable, encode_fact
from eventbus.hashing import partition_of
from eventbus.names import Kind, SensorName
from eventbus.ports import Output
from eventbus.topics import Topology
from sensors.actions.base import ActionError
from sensors.deadletters import ACTION_FAILED, DeadLetters
from sensors.dlqactions import dlq_action, dlq_name
from sensors.tasks import Delivery, Task

TAKEN, RELEASED, LOST = "taken", "released", "lost"
SUCCEEDED, FAILED, DEAD_LETTERED = "succeeded", "failed", "dead-lettered"
_ERROR_LIMIT = 1000


class Outcomes(msgspec.Struct, frozen=True):
    """Writes them for one replica."""

    name: SensorName
    deliveries: Mapping[str, Delivery]
    dead_letters: DeadLetters
    topology: Topology
    replica: str
    generation: int

    def note(
        self, task: Task, outcome: str, ended_ms: int, *, status: str | None = None, error: str | None = None
    ) -> Output:
        """One step in the life of an action."""
        invocation = Invocation(
            version=VERSION,
            action=task.fact.id,
            sensor=str(self.name),
            trigger=task.fact.trigger,
            attempt=task.attempt,
            outcome=outcome,
            mode=task.lane.delivery.mode,
            partition=task.record.partition,
            offset=task.record.offset,
            replica=self.replica,
            started=task.started_ms,
            ended=ended_ms,
            status=None if status is None else encodable(status),
            error=None if error is None else encodable(error[:_ERROR_LIMIT]),
        )
        key = task.fact.id.encode()
        partition = partition_of(key, self.topology.invocation_partitions)
        return Output(self.name.topic(Kind.INVOCATION), partition, key, encode_fact(invocation))

    def given_up(self, task: Task, error: ActionError, ended_ms: int) -> Iterator[Output]:
        """Its dead letter and, if its trigger has a `dlqTrigger`, the action that is due now."""
        fact = task.fact
        yield self.dead_letters.of(
            task.record,
            ACTION_FAILED,
            str(error),
            trigger=fact.trigger,
            action=fact.id,
            attempts=task.attempt,
            generation=self.generation,
        )
        if dlq_name(fact.trigger) in self.deliveries:
            status = None if error.status is None else encodable(error.status)
            failure = Failure(fact.id, encodable(str(error)[:_ERROR_LIMIT]), task.attempt, status)
            yield dlq_action(task.record, fact, failure, self.replica)
        yield self.note(task, DEAD_LETTERED, ended_ms, status=error.status, error=str(error))
