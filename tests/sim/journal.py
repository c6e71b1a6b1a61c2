"""What is written down while a simulation runs: its trace, every commit, and what retention has removed."""

from __future__ import annotations

from collections import defaultdict
from zlib import crc32

from eventbus.clock import ManualClock
from eventbus.memory.groups import Group
from eventbus.memory.topics import Partition
from eventbus.names import Stage
from eventbus.ports import Committed, Record
from sensors.audit.commits import SeenCommit
from sensors.audit.violations import Breach, Violation


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
        self.commits: list[SeenCommit] = []
        self.violations: list[Violation] = []
        """What is wrong at first sight."""
        self._removed: dict[Partition, list[Record]] = defaultdict(list)

    def note(self, line: str) -> None:
        self.trace = crc32(line.encode(), self.trace)
        if self.lines is not None:
            self.lines.append(f"{self._clock.monotonic():9.3f} {'  ' * self.nesting}{line}")

    def complain(self, what: str, replica: str = "") -> None:
        """Something that must not be has happened, and everybody can see it."""
        self.violations.append(Violation(invariant="I9", breach=Breach.UNEXPLAINED, what=what, replica=replica))

    def committed(self, group: Group, staged: dict[tuple[str, int], Committed], replica: str) -> None:
        """A commit has become visible."""
        stage = Stage(group.name.rpartition("-")[2])
        for (_, partition), commit in staged.items():
            self.note(f"commit {stage} {partition} {commit.offset} {commit.metadata}")
            self.commits.append(SeenCommit(stage, partition, commit.offset, commit.metadata, replica))

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
