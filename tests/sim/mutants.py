"""Planted protocol bugs: small patches of behaviour, applied at run time, that the simulator has to catch.

`make mutants` (`tests.sim.planted`) runs each of them on a number of seeds and tells in how many it was caught.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, ExitStack
from itertools import count
from typing import Any
from unittest.mock import patch

import msgspec

import sensors.join
import sensors.match
import sensors.runner.invoke_stage
import sensors.runner.loop
import sensors.runner.stages
from eventbus.errors import AbortableError, RetriableError, UnknownOutcome
from eventbus.memory.groups import Group
from eventbus.memory.reader import MemoryReader
from eventbus.memory.topics import Partition
from eventbus.metadata import InvokeCommit, JoinCommit
from eventbus.ports import Commit, Committed, Output, Record
from sensors.actions.base import ActionError
from sensors.invoke import Invoker
from sensors.join import Held, JoinPartition, Slot
from sensors.ledger import Ledger
from sensors.runner.invoke_stage import InvokeStage
from sensors.runner.logic import Transaction
from sensors.runner.loop import StageLoop
from sensors.runner.ownership import OffsetsGone
from sensors.runner.stages import JoinStage, MatchStage
from sensors.tasks import Delivery, State, Task
from tests.sim.log import SimProducer
from tests.sim.simulation import run_seed

Patch = Callable[[], AbstractContextManager[Any]]
MUTANTS: dict[str, Patch] = {}


def mutant(target: object, attribute: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The decorated function takes the place of a method. It gets the original as its first argument."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        original = getattr(target, attribute)

        def replacement(*arguments: Any, **keywords: Any) -> Any:
            return function(original, *arguments, **keywords)

        MUTANTS[function.__name__.replace("_", " ")] = lambda: patch.object(target, attribute, replacement)
        return function

    return register


# --- join -----------------------------------------------------------------------------------------------------------


@mutant(JoinPartition, "_marks")
def drop_the_marks(_original: Any, _join: JoinPartition) -> dict[str, object]:
    return {}


@mutant(Slot, "oldest")
def prune_too_early(_original: Any, slot: Slot) -> int | None:
    return max((event.offset for event in slot.held.values() if event.offset is not None), default=None)


@mutant(JoinPartition, "_replay")
def replay_fires(_original: Any, join: JoinPartition, record: Record) -> None:
    join._evaluate(record, join._parked)


@mutant(JoinPartition, "_replay")
def replay_ignores_the_marks(_original: Any, join: JoinPartition, record: Record) -> None:
    fact, event = sensors.join._read(record)
    join._hold(fact.trigger, fact.dependencies, event, fact.own)


@mutant(sensors.runner.stages, "decode_join")
def metadata_reset_to_empty(original: Any, offset: int, metadata: str) -> JoinCommit:
    commit: JoinCommit = original(offset, metadata)
    return JoinCommit(commit.owner, offset, commit.clock, {})


@mutant(JoinStage, "restored")
def resume_at_the_position(original: Any, stage: JoinStage, partition: int, offsets: tuple[int, int]) -> int:
    resumed = stage._resumed.get(partition)
    start: int = original(stage, partition, offsets)
    stage._partitions[partition]._restored_marks = {}
    return start if resumed is None else resumed.position


@mutant(JoinPartition, "_hold")
def the_first_event_wins(
    original: Any, join: JoinPartition, trigger: str, dependencies: Iterable[str], *more: Any
) -> Slot:
    slot = join._slots.setdefault(trigger, Slot())
    slot_: Slot = original(join, trigger, [name for name in dependencies if name not in slot.held], *more)
    return slot_


@mutant(JoinPartition, "_fire")
def firing_does_not_clear(original: Any, join: JoinPartition, trigger: Any, slot: Slot, completing: Held) -> Any:
    held = dict(slot.held)
    outputs = original(join, trigger, slot, completing)
    slot.held.update(held)
    return outputs


@mutant(JoinPartition, "_fire")
def forget_the_tombstone(original: Any, join: JoinPartition, trigger: Any, slot: Slot, completing: Held) -> Any:
    slot.stored.clear()
    return original(join, trigger, slot, completing)


@mutant(JoinPartition, "_spill_slot")
def spill_without_a_record(original: Any, join: JoinPartition, name: str, slot: Slot) -> list[Output]:
    original(join, name, slot)
    return []


@mutant(JoinPartition, "_fire")
def only_the_completing_event(original: Any, join: JoinPartition, trigger: Any, slot: Slot, completing: Held) -> Any:
    slot.held = {name: event for name, event in slot.held.items() if event is completing}
    return original(join, trigger, slot, completing)


@mutant(JoinPartition, "_parked_event")
def park_nothing(_original: Any, join: JoinPartition, trigger: str, dependency: str, _event: Held) -> Output:
    return join._state_output(trigger, dependency, None)


# --- bugs that the simulator has found, planted again -----------------------------------------------------------------


@mutant(StageLoop, "_doubt")
def trust_an_old_answer_about_offsets(_original: Any, _loop: StageLoop, error: OffsetsGone) -> None:
    raise error


# --- match ----------------------------------------------------------------------------------------------------------

_turns = count()


@mutant(sensors.match, "partition_of")
def random_partitioner(_original: Any, _key: bytes, partitions: int) -> int:
    return next(_turns) % partitions


@mutant(MatchStage, "_apply")
def commit_one_too_far(original: Any, stage: MatchStage, partition: int, records: Iterable[Record]) -> None:
    original(stage, partition, records)
    batch = stage._batches[partition]
    if batch.commit is not None:
        batch.commit = Commit(partition, batch.commit.offset + 1, batch.commit.metadata)


@mutant(MatchStage, "_apply")
def commit_one_too_little(original: Any, stage: MatchStage, partition: int, records: Iterable[Record]) -> None:
    original(stage, partition, records)
    batch = stage._batches[partition]
    if batch.commit is not None:
        batch.commit = Commit(partition, batch.commit.offset - 1, batch.commit.metadata)


# --- the loop -------------------------------------------------------------------------------------------------------


@mutant(sensors.runner.stages._Synchronous, "aborted")
def keep_state_after_an_abort(_original: Any, _stage: object) -> bool:
    return True


@mutant(InvokeStage, "aborted")
def an_abort_forgets_outcomes(_original: Any, stage: InvokeStage) -> bool:
    stage._invoker._under_way = {}
    return True


@mutant(StageLoop, "lost")
def work_kept_after_a_loss(_original: Any, _loop: StageLoop, _partitions: object) -> None:
    pass


@mutant(StageLoop, "revoked")
def work_kept_after_a_revoke(_original: Any, _loop: StageLoop, _partitions: object) -> None:
    pass


@mutant(StageLoop, "_commit")
def commit_before_flush(original: Any, loop: StageLoop, parts: Iterable[Transaction]) -> None:
    whole = list(parts)
    original(loop, [Transaction([], part.commits) for part in whole])
    original(loop, whole)


@mutant(StageLoop, "_commit")
def outputs_outside_the_transaction(original: Any, loop: StageLoop, parts: Iterable[Transaction]) -> None:
    whole = list(parts)
    original(loop, whole)
    original(loop, [Transaction([], part.commits) for part in whole])
    if whole and loop._producer is not None and next(_turns) % 10 == 0:
        original(loop, whole[:1])


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


def _no_owner_is_checked() -> AbstractContextManager[Any]:
    stack = ExitStack()
    for module in (sensors.runner.stages, sensors.runner.invoke_stage):
        stack.enter_context(patch.object(module, "check_owner", _agree))
    stack.enter_context(patch.object(sensors.runner.stages, "check_identity", _agree))
    return stack


MUTANTS["an older generation goes on"] = _no_owner_is_checked


def _agree(*_arguments: object) -> None:
    pass


# --- invoke ---------------------------------------------------------------------------------------------------------


def _marked_first(*, first: bool) -> Patch:
    return lambda: patch.object(Delivery, "marked_first", first)


MUTANTS["done before success"] = _marked_first(first=True)
MUTANTS["taken after the invocation"] = _marked_first(first=False)


@mutant(Ledger, "commit")
def forget_what_is_finished_out_of_order(original: Any, ledger: Ledger) -> InvokeCommit:
    commit: InvokeCommit = original(ledger)
    return InvokeCommit(commit.owner, commit.offset, ())


@mutant(Ledger, "commit")
def commit_past_what_is_unfinished(original: Any, ledger: Ledger) -> InvokeCommit:
    return InvokeCommit(original(ledger).owner, ledger.position, ())


@mutant(Invoker, "release")
def release_what_is_running(original: Any, invoker: Invoker, partitions: Iterable[int], now_ms: int) -> None:
    homes = invoker._homes(partitions)
    for task in invoker._running.values():
        if task.lane.home in homes:
            task.state = State.READY
    original(invoker, partitions, now_ms)


@mutant(Invoker, "failed")
def a_failure_counts_as_done(_original: Any, invoker: Invoker, task: Task, _error: ActionError, *_now: float) -> None:
    if invoker._ended(task):
        invoker._finish(task)


@mutant(Invoker, "failed")
def at_most_once_tries_again_what_was_sent(
    original: Any, invoker: Invoker, task: Task, error: ActionError, *now: float
) -> None:
    error.sent = False
    original(invoker, task, error, *now)


@mutant(Invoker, "_is_current")
def an_outcome_counts_for_a_partition_that_is_gone(_original: Any, _invoker: Invoker, _home: object) -> bool:
    return True


class Result(msgspec.Struct):
    """In how many seeds a mutant was caught, and how at first."""

    name: str
    seeds: int
    caught: int
    first: str


def run(name: str, seeds: Iterable[int], *, stop_at_first: bool = False) -> Result:
    result = Result(name, 0, 0, "")
    with MUTANTS[name]():
        for seed in seeds:
            found = _caught(seed)
            result.seeds += 1
            if found:
                result.caught += 1
                result.first = result.first or f"seed {seed}: {found[:120]}"
                if stop_at_first:
                    break
    return result


def run_many(arguments: tuple[str, int]) -> Result:
    name, seeds = arguments
    return run(name, range(seeds))


def _caught(seed: int) -> str:
    try:
        report = run_seed(seed)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "" if report.clean else str(report.findings)
