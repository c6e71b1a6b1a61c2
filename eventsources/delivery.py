"""The two ways of a source that fetches to the log: through the sink of its process, or through its own journal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

import msgspec

from eventbus.errors import EventBusError, UnproducibleError
from eventbus.ports import Output
from eventsources.base import SourceError, Told
from eventsources.drafts import Draft, Drafts
from eventsources.election.ports import Election
from eventsources.journal import Journal
from eventsources.metrics import Outcome
from eventsources.sink import Sink

Count: TypeAlias = Callable[[Outcome, int], None]


class ThroughSink(msgspec.Struct, frozen=True):
    """`Deliver` for sources that run in all replicas."""

    drafts: Drafts
    count: Count
    sink: Sink

    def __call__(self, told: Sequence[Told], /, remember: bytes | None = None) -> None:
        if remember is not None:
            raise SourceError("only a source that runs once can remember something")
        pending = self.drafts.of(told)
        settled = [draft for draft in pending if draft.output is None]
        while records := _records(pending):
            pending = []
            for (draft, output), error in zip(records, self._written(records), strict=True):
                if error is None:
                    settled.append(draft)
                else:
                    pending.append(_instead(self.drafts, draft, output, error))
        _tally(self.count, settled)

    def _written(self, records: Sequence[tuple[Draft, Output]]) -> list[UnproducibleError | None]:
        """Why each of them was refused, if it was. Raises `SourceError` where one of them may still be written."""
        try:
            errors = self.sink.deliver([output for _, output in records])
        except EventBusError as error:
            raise SourceError(str(error)) from None
        for each in errors:
            if each is not None and not isinstance(each, UnproducibleError):
                raise SourceError(str(each))
        return [each if isinstance(each, UnproducibleError) else None for each in errors]


class ThroughJournal(msgspec.Struct, frozen=True):
    """`Deliver` for sources that run once."""

    drafts: Drafts
    count: Count
    journal: Journal
    election: Election

    def __call__(self, told: Sequence[Told], /, remember: bytes | None = None) -> None:
        if not self.election.leading:
            raise SourceError("another replica leads now")
        drafts = self.drafts.of(told)
        records = _records(drafts)
        while (refused := self._written(records, remember)) is not None:
            draft, output = records[refused.index]
            instead = _instead(self.drafts, draft, output, refused)
            drafts[drafts.index(draft)] = instead
            records = _records(drafts)
        _tally(self.count, drafts)

    def _written(self, records: Sequence[tuple[Draft, Output]], remember: bytes | None) -> UnproducibleError | None:
        """Which of them was refused, if one was: then nothing is written."""
        try:
            self.journal.write([output for _, output in records], remember)
        except UnproducibleError as error:
            if error.index >= len(records):
                raise SourceError(f"what it has to remember is refused: {error}") from None
            return error
        return None


def _records(drafts: Iterable[Draft]) -> list[tuple[Draft, Output]]:
    return [(draft, draft.output) for draft in drafts if draft.output is not None]


def _instead(drafts: Drafts, draft: Draft, output: Output, error: UnproducibleError) -> Draft:
    if draft.outcome is Outcome.DEAD_LETTERED:
        raise SourceError(f"not even its dead letter is taken: {error}")
    return drafts.refused(draft, output, str(error))


def _tally(count: Count, drafts: Iterable[Draft]) -> None:
    for outcome, number in Counter(draft.outcome for draft in drafts).items():
        count(outcome, number)
