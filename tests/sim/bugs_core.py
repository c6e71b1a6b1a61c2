"""Planted bugs in the core: match, join, invoke."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from typing import Any
from unittest.mock import patch

import sensors.join
import sensors.match
import sensors.runner.stages
from eventbus.metadata import InvokeCommit, JoinCommit
from eventbus.names import Kind
from eventbus.ports import Commit, Output, Record
from eventbus.stateformats import HeldKey, encode_state_key
from sensors.actions.base import ActionError
from sensors.held import Held, Slot, read_event
from sensors.heldletters import HeldLetters
from sensors.invoke import Invoker
from sensors.join import JoinPartition
from sensors.ledger import Ledger
from sensors.outcomes import Outcomes
from sensors.plan import trigger_digest
from sensors.runner.stages import JoinStage, MatchStage
from sensors.tasks import Delivery, State, Task
from tests.sim.planting import MUTANTS, Patch, mutant, mutants

# --- join -----------------------------------------------------------------------------------------------------------


@mutant(JoinPartition, "_marks")
def drop_the_marks(_original: Any, _join: JoinPartition) -> dict[str, object]:
    return {}


@mutant(Slot, "oldest")
def prune_too_early(_original: Any, slot: Slot) -> int | None:
    return max((event.offset for event in slot.held.values() if event.offset is not None), default=None)


@mutant(JoinPartition, "_replay")
def replay_fires(_original: Any, join: JoinPartition, record: Record) -> None:
    join._evaluate(record, join._to_write)


@mutant(JoinPartition, "_replay")
def replay_ignores_the_marks(_original: Any, join: JoinPartition, record: Record) -> None:
    fact, event = read_event(record)
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


@mutant(HeldLetters, "parked")
def park_nothing(_original: Any, letters: HeldLetters, key: HeldKey, _event: Held, _shape: str) -> Output:
    return Output(letters.name.topic(Kind.STATE), letters.partition, encode_state_key(key), None)


@mutant(JoinPartition, "loaded")
def what_the_log_supersedes_is_parked(_original: Any, join: JoinPartition) -> None:
    """The simulator has found this one."""
    join._park_all_misfits()


def _replay_whatever_shape(join: JoinPartition, record: Record) -> None:
    fact, event = read_event(record)
    mark = join._restored_marks.get(trigger_digest(fact.trigger))
    if mark is None or record.offset < mark.offset:
        return
    trigger = join._plan.triggers.get(fact.trigger)
    parked_before = trigger is not None and trigger.shape == mark.shape
    names = sensors.join._fitting(fact, trigger) if parked_before else fact.dependencies
    join._hold(fact.trigger, names, event, fact.own)


def _spill_nothing_foreign(join: JoinPartition) -> list[Output]:
    join._foreign.clear()
    return _spill(join)


_spill = JoinPartition._spill

# The simulator has found this one, too.
mutants(
    "what one spec has parked the next one parks again",
    lambda: patch.object(JoinPartition, "_replay", _replay_whatever_shape),
    lambda: patch.object(JoinPartition, "_spill", _spill_nothing_foreign),
)


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


@mutant(Outcomes, "given_up")
def what_is_given_up_is_not_acted_upon(original: Any, outcomes: Outcomes, *args: Any) -> Iterable[Output]:
    return [output for output in original(outcomes, *args) if output.topic != outcomes.name.topic(Kind.ACTION)]


@mutant(Invoker, "_is_current")
def an_outcome_counts_for_a_partition_that_is_gone(_original: Any, _invoker: Invoker, _home: object) -> bool:
    return True


@mutant(Invoker, "drop")
def the_epoch_of_an_assignment_is_ignored(_original: Any, _invoker: Invoker, _number: int) -> None:
    """Who keeps one partition goes on to commit another that is somebody else's by now: Kafka does not mind."""
