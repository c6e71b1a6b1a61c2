"""I5, I6, I9 and I10: what the stages have committed, as far as it was seen."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from eventbus import metadata
from eventbus.formats import Invocation
from eventbus.metadata import (
    InvokeCommit,
    Owner,
    decode_invoke,
    decode_join,
    decode_match,
    encode_invoke,
    encode_join,
    encode_match,
)
from eventbus.names import SensorName, Stage
from eventbus.ports import Record
from sensors.audit.reference import Span
from sensors.audit.violations import Breach, Violation, place
from sensors.outcomes import RELEASED


class SeenCommit(msgspec.Struct, frozen=True):
    """An offset that a stage has committed, and who it was, where that is known."""

    stage: Stage
    partition: int
    offset: int
    metadata: str
    replica: str = ""


class _Read(msgspec.Struct, frozen=True):
    """A commit with its metadata decoded."""

    seen: SeenCommit
    owner: Owner
    position: int
    """Everything before it was dealt with, but for what `unfinished` names."""
    unfinished: Sequence[tuple[int, int]] = ()
    replay: int = 0

    @classmethod
    def of(cls, seen: SeenCommit) -> _Read:
        match seen.stage:
            case Stage.MATCH:
                return cls(seen, decode_match(seen.metadata), seen.offset)
            case Stage.JOIN:
                join = decode_join(seen.offset, seen.metadata)
                return cls(seen, join.owner, join.position, replay=join.position - join.offset)
            case Stage.INVOKE:
                invoke = decode_invoke(seen.offset, seen.metadata)
                return cls(seen, invoke.owner, *_gaps(invoke))


def check_commits(
    name: SensorName, commits: Iterable[SeenCommit], invocations: Iterable[Invocation], actions: Iterable[Record]
) -> Iterator[Violation]:
    """I5 and I6, over all commits that were seen, in their order."""
    released = {(note.partition, note.offset) for note in invocations if note.outcome == RELEASED}
    offsets: defaultdict[int, list[int]] = defaultdict(list)
    for record in actions:
        offsets[record.partition].append(record.offset)
    before: dict[tuple[Stage, int], _Read] = {}
    for seen in commits:
        if problem := _metadata_problem(seen):
            yield _about(name, seen, "I5", problem)
            continue
        commit = _Read.of(seen)
        last = before.get((seen.stage, seen.partition))
        if last is not None and last.owner.generation > commit.owner.generation:
            yield _about(name, seen, "I6", f"generation {commit.owner.generation} comes after {last.owner.generation}")
        elif last is not None and seen.stage is not Stage.INVOKE and commit.position < last.position:
            yield _about(name, seen, "I6", f"the position goes back from {last.position} to {commit.position}")
        elif last is not None and seen.stage is Stage.INVOKE:
            for offset in _undone(last, commit, offsets[seen.partition]):
                if (seen.partition, offset) not in released:
                    yield _about(name, seen, "I6", f"the action at {offset} was finished and is not any more")
        before[seen.stage, seen.partition] = commit


def check_replay(name: SensorName, commits: Iterable[SeenCommit], horizon: int) -> Iterator[Violation]:
    """I10: how much of the trigger topic a restart would read again."""
    for seen in commits:
        if seen.stage is Stage.JOIN and (replay := replayed_by(seen)) > horizon:
            yield _about(name, seen, "I10", f"a restart would replay {replay} records, more than {horizon}")


def replayed_by(seen: SeenCommit) -> int:
    """How many offsets a restart from this commit of the join reads again."""
    return _Read.of(seen).replay


def check_at_rest(name: SensorName, commits: Iterable[SeenCommit], records: Iterable[Record]) -> Iterator[Violation]:
    """I9: the last commits are past the last records. `records` are those of all three stages' input topics."""
    ends: dict[tuple[str, int], int] = {}
    for record in records:
        key = record.topic, record.partition
        ends[key] = max(ends.get(key, 0), record.offset + 1)
    last = {(seen.stage, seen.partition): seen for seen in commits}
    for stage in Stage:
        topic = name.input_topic(stage)
        for (found, partition), end in ends.items():
            seen = last.get((stage, partition))
            if found == topic and (seen is None or _done_before(seen) < end):
                what = f"the {stage} stage has not reached the end, {end}"
                missing = SeenCommit(stage, partition, 0, "") if seen is None else seen
                yield _about(name, missing, "I9", what)


def spans_of(commits: Iterable[SeenCommit]) -> Mapping[tuple[Stage, int], list[Span]]:
    """Which generation of the spec has dealt with which part of each partition."""
    spans: defaultdict[tuple[Stage, int], list[Span]] = defaultdict(list)
    for seen in commits:
        if seen.stage is not Stage.INVOKE:
            commit = _Read.of(seen)
            spans[seen.stage, seen.partition].append(Span(commit.owner.generation, commit.position))
    return spans


def _done_before(seen: SeenCommit) -> int:
    commit = _Read.of(seen)
    return seen.offset if seen.stage is Stage.INVOKE else commit.position


def _metadata_problem(seen: SeenCommit) -> str:
    if len(seen.metadata) > metadata.LIMIT:
        return f"the metadata has {len(seen.metadata)} characters"
    again = _encoded_again(seen)
    return "" if again == seen.metadata else f"the metadata {seen.metadata!r} is written again as {again!r}"


def _encoded_again(seen: SeenCommit) -> str:
    match seen.stage:
        case Stage.MATCH:
            return encode_match(decode_match(seen.metadata))
        case Stage.JOIN:
            return encode_join(decode_join(seen.offset, seen.metadata))
        case Stage.INVOKE:
            return encode_invoke(decode_invoke(seen.offset, seen.metadata))


def _gaps(commit: InvokeCommit) -> tuple[int, list[tuple[int, int]]]:
    """Where the last finished range ends, and what is unfinished before that."""
    gaps, at = [], commit.offset
    for start, end in commit.finished:
        gaps.append((at, start))
        at = end
    return at, gaps


def _undone(before: _Read, after: _Read, offsets: Sequence[int]) -> Iterator[int]:
    """Which of these offsets, in ascending order, were finished and are not any more."""
    for start, end in (*after.unfinished, (after.position, before.position)):
        first, last = bisect_left(offsets, start), bisect_left(offsets, min(end, before.position))
        for offset in offsets[first:last]:
            if not any(start <= offset < end for start, end in before.unfinished):
                yield offset


def _about(name: SensorName, seen: SeenCommit, invariant: str, what: str) -> Violation:
    return Violation(
        invariant=invariant,
        breach=Breach.UNEXPLAINED,
        what=f"{seen.stage}: {what}",
        place=place(name.input_topic(seen.stage), seen.partition, seen.offset),
        replica=seen.replica,
    )
