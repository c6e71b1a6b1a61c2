"""Planted bugs around the core: the loop that drives it, transactions, the group, the log."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from unittest.mock import patch

import msgspec

import sensors.runner.invoke_stage
import sensors.runner.loop
import sensors.runner.stages
from eventbus.errors import AbortableError, RetriableError, UnknownOutcome
from eventbus.memory.groups import Group
from eventbus.memory.reader import MemoryReader
from eventbus.memory.topics import Partition
from eventbus.ports import Committed, Record
from sensors.runner.invoke_stage import InvokeStage
from sensors.runner.logic import Transaction
from sensors.runner.loop import StageLoop
from sensors.runner.ownership import Contradiction
from tests.sim.log import SimProducer
from tests.sim.planting import mutant, mutants

# --- the loop -------------------------------------------------------------------------------------------------------


@mutant(sensors.runner.stages._Synchronous, "aborted")
def keep_state_after_an_abort(_original: Any, _stage: object) -> bool:
    return True


@mutant(InvokeStage, "aborted")
def an_abort_forgets_outcomes(_original: Any, stage: InvokeStage) -> bool:
    stage._invoker._under_way = {}
    return True


def _stop_fetching_only(loop: StageLoop, partitions: Iterable[int]) -> None:
    for partition in partitions:
        loop._states.end(partition)
        loop._assignments.pop(partition, None)


@mutant(StageLoop, "lost")
def work_kept_after_a_loss(_original: Any, loop: StageLoop, partitions: Sequence[int]) -> None:
    _stop_fetching_only(loop, partitions)


@mutant(StageLoop, "revoked")
def work_kept_after_a_revoke(_original: Any, loop: StageLoop, partitions: Sequence[int]) -> None:
    _stop_fetching_only(loop, partitions)


@mutant(StageLoop, "_commit")
def commit_before_flush(original: Any, loop: StageLoop, parts: Iterable[Transaction]) -> None:
    whole = list(parts)
    original(loop, [Transaction([], part.commits) for part in whole])
    original(loop, whole)


@mutant(StageLoop, "_commit")
def outputs_outside_the_transaction(original: Any, loop: StageLoop, parts: Iterable[Transaction]) -> None:
    whole = list(parts)
    outputs = [output for part in whole for output in part.outputs]
    if outputs and loop._producer is not None:
        loop._producer.begin()
        loop._producer.produce(outputs)
        loop._producer.commit()
    original(loop, [Transaction([], part.commits) for part in whole])


@mutant(StageLoop, "_commit")
def offsets_of_the_first_part_only(original: Any, loop: StageLoop, parts: Iterable[Transaction]) -> None:
    whole = list(parts)
    original(loop, [Transaction([out for part in whole for out in part.outputs], whole[0].commits)] if whole else [])


@mutant(MemoryReader, "offsets")
def state_read_to_its_committed_end_only(
    _original: Any, reader: MemoryReader, topic: str, partition: int
) -> tuple[int, int]:
    log = reader._broker.partition(topic, partition)
    return log.start, log.last_stable_offset


@mutant(Group, "committed")
def an_old_answer_while_a_transaction_is_open(
    _original: Any, group: Group, topic: str, partitions: Iterable[int]
) -> dict[int, Committed | None]:
    return {partition: group._committed.get((topic, partition)) for partition in partitions}


@mutant(Partition, "read")
def read_uncommitted(_original: Any, log: Partition, offset: int, max_records: int) -> tuple[list[Record], int]:
    entries = [entry for entry in log._entries if entry.offset >= offset and entry.record is not None][:max_records]
    records = [entry.record for entry in entries if entry.record is not None]
    return records, entries[-1].offset + 1 if len(entries) == max_records and entries else log.end


@mutant(SimProducer, "commit")
def an_unknown_outcome_taken_for_success(original: Any, producer: SimProducer) -> None:
    try:
        original(producer)
    except UnknownOutcome:
        producer._real._open = False
        producer._real.init()


@mutant(SimProducer, "commit")
def an_unknown_outcome_taken_for_failure(original: Any, producer: SimProducer) -> None:
    try:
        original(producer)
    except UnknownOutcome as error:
        producer._real._open = True
        raise AbortableError(str(error)) from error


@mutant(StageLoop, "_ask_offsets")
def unknown_offsets_taken_for_none(original: Any, loop: StageLoop, partitions: list[int]) -> None:
    try:
        if partitions:
            loop._consumer.committed(partitions)
    except RetriableError:
        for partition in partitions:
            end = loop._consumer.offsets(partition)[1]
            loop._logic.opened(partition, None)
            loop._logic.restored(partition, (end, end))
            loop._consumer.start(partition, end)
            loop._assignments[partition].phase = sensors.runner.loop._Phase.RUNNING
    else:
        original(loop, partitions)


def _agree(*_arguments: object) -> None:
    pass


mutants(
    "an older generation goes on",
    lambda: patch.object(sensors.runner.stages, "check_owner", _agree),
    lambda: patch.object(sensors.runner.invoke_stage, "check_owner", _agree),
    lambda: patch.object(sensors.runner.stages, "check_identity", _agree),
)


@mutant(Group, "stage")
def a_stale_generation_is_accepted(original: Any, group: Group, *arguments: Any) -> None:
    *others, membership = arguments
    original(group, *others, msgspec.structs.replace(membership, generation=group.generation))


@mutant(StageLoop, "_doubt")
def trust_an_old_answer_about_offsets(_original: Any, _loop: StageLoop, error: Contradiction) -> None:
    raise error
