"""What the state machines share: how long they run, a log with gaps, and metadata with hardly any room."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import TypeVar
from unittest import TestCase
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine

from eventbus import metadata
from eventbus.ports import Record
from tests.core.builders import EXAMPLES, OWNER

settings.register_profile(
    "machines",
    deadline=None,
    max_examples=2 * EXAMPLES,
    print_blob=True,
    stateful_step_count=20,
    suppress_health_check=[HealthCheck.too_slow],  # the machine may be busy
)
T = TypeVar("T")
MACHINES = settings.get_profile("machines")
SHRINKING_SECONDS = 900
"""A machine runs for some seconds; one that fails needs time until its history is short."""

INVOKE_HEAD = len(f"i1;{OWNER.generation};{OWNER.digest};")
GAPS = [0, 1, 2]
"""Offsets before a record that hold none: transaction markers take offsets too."""


def one_of_many(options: Sequence[T]) -> st.SearchStrategy[T]:
    """As `sampled_from`, for so many that hypothesis would rather not print them all.

    One draw, whatever an option is made of: hypothesis shrinks short sequences of choices far better than long ones.
    It deletes up to five at a time, and so every rule of ours takes five when it does next to nothing.
    """

    @st.composite
    def option(draw: st.DrawFn) -> T:
        return options[draw(st.integers(0, len(options) - 1))]

    return option()


class Log:
    """One partition of a topic."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.start = 0
        self.end = 0

    def next_offset(self, gap: int) -> int:
        return self.end + gap

    def append(self, record: Record) -> None:
        self.records.append(record)
        self.end = record.offset + 1

    def read(self, offset: int, count: int | None = None) -> list[Record]:
        assert offset >= self.start, "what is still needed was given up to retention"
        return [record for record in self.records if record.offset >= offset][:count]

    def truncate(self, before: int) -> None:
        self.records = [record for record in self.records if record.offset >= before]
        self.start = before


class TightMachine(RuleBasedStateMachine):
    """A machine in which the metadata of a commit may have to be much shorter than Kafka allows."""

    def __init__(self) -> None:
        super().__init__()
        self._patches = ExitStack()

    def limit_metadata(self, head: int, room: int) -> None:
        """`head`: how long what is always there can get in so short a history; `room`: for everything else."""
        self._patches.enter_context(patch.object(metadata, "_HEAD_LENGTH", head))
        self._patches.enter_context(patch.object(metadata, "LIMIT", head + room))

    def teardown(self) -> None:
        self._patches.close()


def as_test(machine: type[RuleBasedStateMachine]) -> type[TestCase]:
    """What pytest collects."""
    case = machine.TestCase
    case.settings = MACHINES
    return pytest.mark.timeout(SHRINKING_SECONDS)(case)
