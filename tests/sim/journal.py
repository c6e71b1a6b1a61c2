"""What is written down while a simulation runs: its trace, every commit, and what retention has removed."""

from __future__ import annotations

from collections import defaultdict
from zlib import crc32

from eventbus.clock import ManualClock
from eventbus.memory.groups import Group
from eventbus.memory.topics import Partition
from eventbus.metadata import Owner, decode_invoke, decode_join, decode_match
from eventbus.names import Stage
from eventbus.ports import Committed, Record
from tests.sim.reference import Span
from tests.sim.verdict import Findings


class Journal:
    """Of one simulation."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.trace = 0
        """A checksum of everything that happened."""
        self.lines: list[str] | None = None
        """Everything that happened, if somebody wants to read it."""
        self.nesting = 0
        """How many processes are suspended in the middle of a call."""
        self.spans: dict[tuple[Stage, int], list[Span]] = defaultdict(list)
        self.findings = Findings()
        self.longest_replay = 0
        self._removed: dict[Partition, list[Record]] = defaultdict(list)

    def note(self, line: str) -> None:
        self.trace = crc32(line.encode(), self.trace)
        if self.lines is not None:
            self.lines.append(f"{self._clock.monotonic():9.3f} {'  ' * self.nesting}{line}")

    def committed(self, group: Group, staged: dict[tuple[str, int], Committed]) -> None:
        """A commit has become visible."""
        stage = Stage(group.name.rpartition("-")[2])
        for (_, partition), commit in staged.items():
            self.note(f"commit {stage} {partition} {commit.offset} {commit.metadata}")
            spans = self.spans[stage, partition]
            owner, end = _position(stage, commit)
            if stage is Stage.JOIN:
                self.longest_replay = max(self.longest_replay, end - commit.offset)
            if spans and (end < spans[-1].end or owner.generation < spans[-1].generation):
                self.findings.went_back.append(f"{stage}[{partition}] from {spans[-1]} to {end}")
            spans.append(Span(owner.generation, end))

    def remove(self, log: Partition, before_offset: int) -> None:
        """Retention removes the oldest records of a partition; the judge wants to see them all the same."""
        self._removed[log] += [
            entry.record
            for entry in log._entries
            if entry.offset < before_offset and entry.record is not None and entry.visible
        ]
        log.truncate(before_offset)

    def records(self, log: Partition) -> list[Record]:
        """All committed records of a partition, those included that retention has removed."""
        there = [entry.record for entry in log._entries if entry.record is not None and entry.visible]
        return self._removed.get(log, []) + there


def _position(stage: Stage, commit: Committed) -> tuple[Owner, int]:
    """Whose commit it is, and how far the stage has got."""
    if stage is Stage.MATCH:
        return decode_match(commit.metadata), commit.offset
    if stage is Stage.JOIN:
        join = decode_join(commit.offset, commit.metadata)
        return join.owner, join.position
    return decode_invoke(commit.offset, commit.metadata).owner, 0
