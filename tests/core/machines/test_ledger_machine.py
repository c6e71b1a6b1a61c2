"""The ledger against plain sets of offsets."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from eventbus import metadata
from eventbus.metadata import InvokeCommit, decode_invoke, encode_invoke
from sensors.ledger import Ledger
from tests.core.builders import OWNER
from tests.core.machines.common import GAPS, INVOKE_HEAD, TightMachine, as_test

some = st.lists(st.integers(0, 5), max_size=4)
"""Which of those that are eligible. Every rule draws some, and opens records first: without them nothing happens."""
records = st.lists(st.sampled_from(GAPS), max_size=6)
"""How far each of the next records is from the one before."""


class LedgerMachine(TightMachine):
    """One partition of the action topic, and the ledgers that its owners keep one after the other."""

    @initialize(room=st.sampled_from([4000, 24, 12]))
    def begin(self, room: int) -> None:
        self.limit_metadata(INVOKE_HEAD, room)
        self.log: list[int] = []
        self.committed = (0, encode_invoke(InvokeCommit(OWNER, 0, ())))
        self.durably_finished: set[int] = set()
        self.restart()

    # --- what happens -----------------------------------------------------------------------------------------------

    @rule(records=records, some=some)
    def actions_finish(self, records: list[int], some: list[int]) -> None:
        self.open(records)
        for offset in self.chosen(self.unfinished | self.taken, some):
            self.ledger.finish(offset)
            self.unfinished.discard(offset)
            self.taken.discard(offset)

    @rule(records=records, some=some)
    def actions_are_taken(self, records: list[int], some: list[int]) -> None:
        self.open(records)
        for offset in self.chosen(self.unfinished, some):
            self.ledger.take(offset)
            self.unfinished.discard(offset)
            self.taken.add(offset)

    @rule(records=records, some=some)
    def what_was_taken_is_handed_back(self, records: list[int], some: list[int]) -> None:
        self.open(records)
        for offset in self.chosen(self.taken, some):
            self.ledger.reopen(offset)
            self.taken.discard(offset)
            self.unfinished.add(offset)

    @rule(records=records)
    def the_ledger_is_committed(self, records: list[int]) -> None:
        self.open(records)
        self.committed = (self.ledger.commit().offset, encode_invoke(self.ledger.commit()))
        self.durably_finished = self.finished()

    @rule(records=records)
    def the_owner_changes(self, records: list[int]) -> None:
        self.open(records)
        self.restart()

    # --- what follows from it ---------------------------------------------------------------------------------------

    def open(self, records: list[int]) -> None:
        """Records that are in the log already come first; more are appended only when there are none left."""
        for gap in records:
            if not self.ledger.has_room():
                return
            offset = next((offset for offset in self.log if offset >= self.ledger.position), None)
            if offset is None:
                offset = (self.log[-1] + 1 if self.log else 0) + gap
                self.log.append(offset)
            opened = self.ledger.open(offset)
            assert opened == (offset not in self.durably_finished)
            if opened:
                self.unfinished.add(offset)

    def restart(self) -> None:
        self.ledger = Ledger(OWNER, decode_invoke(*self.committed))
        self.unfinished: set[int] = set()
        self.taken: set[int] = set()

    def chosen(self, eligible: set[int], which: list[int]) -> list[int]:
        offsets = sorted(eligible)
        return [offsets[number] for number in sorted(set(which)) if number < len(offsets)]

    def finished(self) -> set[int]:
        """Of the records in the log. What no owner has come to yet is as the last commit has it."""
        position = self.ledger.position
        seen = {offset for offset in self.log if offset < position} - self.unfinished
        return seen | {offset for offset in self.durably_finished if offset >= position}

    # --- what has to be true ----------------------------------------------------------------------------------------

    @invariant()
    def a_commit_tells_what_is_finished(self) -> None:
        commit = self.ledger.commit()
        encoded = encode_invoke(commit)
        assert len(encoded) <= metadata.LIMIT
        assert decode_invoke(commit.offset, encoded) == commit
        runs = [range(commit.offset), *(range(start, end) for start, end in commit.finished)]
        assert {offset for offset in self.log if any(offset in run for run in runs)} == self.finished()

    @invariant()
    def there_is_room_as_long_as_nothing_is_open(self) -> None:
        assert self.ledger.has_room() or self.unfinished or self.taken

    @invariant()
    def whatever_was_taken_can_be_handed_back(self) -> None:
        for offset in self.taken:
            self.ledger.reopen(offset)
        encode_invoke(self.ledger.commit())
        for offset in self.taken:
            self.ledger.take(offset)


TestLedger = as_test(LedgerMachine)
