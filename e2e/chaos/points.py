"""Named points inside a commit at which a replica can be made to kill itself.

They are installed by the launcher of the chaos run (`e2e/chaos/replica.py`) around the real classes; nothing of this
is shipped. A point is armed from outside. The process dies by SIGKILL when it passes the armed point next.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from eventbus.kafka.producer import KafkaProducer
from eventbus.names import Stage
from eventbus.ports import Commit, Output
from sensors.actions.base import ActionCall
from sensors.actions.http import HttpAction

AFTER_BEGIN = "after-begin"
AFTER_PRODUCE = "after-produce"
AFTER_SEND_OFFSETS = "after-send-offsets"
BEFORE_COMMIT = "before-commit"
AFTER_COMMIT = "after-commit"
AFTER_INVOKE = "invoke after-invoke"
"""The target has answered, and nobody knows yet."""

POINTS = (
    *(
        f"{stage} {point}"
        for stage in Stage
        for point in (AFTER_BEGIN, AFTER_PRODUCE, AFTER_SEND_OFFSETS, BEFORE_COMMIT, AFTER_COMMIT)
    ),
    AFTER_INVOKE,
)
DISARM = "none"
_FLUSH_SECONDS = 5.0


class Trap:
    """At most one point is armed at a time."""

    def __init__(self) -> None:
        self.armed = DISARM

    def passes(self, producer: KafkaProducer, point: str) -> bool:
        """Whether the process is to die at this point of this producer's stage."""
        return self.armed == f"{_stage(producer)} {point}"

    def install(self) -> None:
        """Wrap the calls of a transaction and of an `http` action."""
        producer: Any = KafkaProducer
        producer.begin = self._begin(KafkaProducer.begin)
        producer.produce = self._produce(KafkaProducer.produce)
        producer.send_offsets = self._send_offsets(KafkaProducer.send_offsets)
        producer.commit = self._commit(KafkaProducer.commit)
        action: Any = HttpAction
        action.invoke = self._invoke(HttpAction.invoke)

    def _begin(self, original: Callable[[KafkaProducer], None]) -> Callable[[KafkaProducer], None]:
        def begin(producer: KafkaProducer) -> None:
            original(producer)
            if self.passes(producer, AFTER_BEGIN):
                _die()

        return begin

    def _produce(
        self, original: Callable[[KafkaProducer, Sequence[Output]], None]
    ) -> Callable[[KafkaProducer, Sequence[Output]], None]:
        def produce(producer: KafkaProducer, outputs: Sequence[Output]) -> None:
            original(producer, outputs)
            if outputs and self.passes(producer, AFTER_PRODUCE):
                _flush(producer)
                _die()

        return produce

    def _send_offsets(
        self, original: Callable[[KafkaProducer, str, Sequence[Commit], object], None]
    ) -> Callable[[KafkaProducer, str, Sequence[Commit], object], None]:
        def send_offsets(producer: KafkaProducer, topic: str, commits: Sequence[Commit], member: object) -> None:
            original(producer, topic, commits, member)
            if self.passes(producer, AFTER_SEND_OFFSETS):
                _die()

        return send_offsets

    def _commit(self, original: Callable[[KafkaProducer], None]) -> Callable[[KafkaProducer], None]:
        def commit(producer: KafkaProducer) -> None:
            if self.passes(producer, BEFORE_COMMIT):
                _flush(producer)
                _die()
            original(producer)
            if self.passes(producer, AFTER_COMMIT):
                _die()

        return commit

    def _invoke(self, original: Callable[[HttpAction, ActionCall], str]) -> Callable[[HttpAction, ActionCall], str]:
        def invoke(action: HttpAction, call: ActionCall) -> str:
            status = original(action, call)
            if self.armed == AFTER_INVOKE:
                _die()
            return status

        return invoke


def _stage(producer: KafkaProducer) -> str:
    """A transactional id ends with the stage and the slot."""
    return producer._id.split("-")[-2]


def _flush(producer: KafkaProducer) -> None:
    """The records of the transaction shall be in the log, not in the memory of the process that dies."""
    producer._client.flush(_FLUSH_SECONDS)


def _die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("nobody survives SIGKILL")
