"""Records that the log will never take. In the place of each, a dead letter is written."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from eventbus.ports import Output
from sensors.deadletters import DeadLetters


class Refusals:
    """What was refused in a transaction that is to be repeated, and why."""

    def __init__(self, dead_letters: DeadLetters) -> None:
        self._dead_letters = dead_letters
        self._refused: list[tuple[Output, str]] = []

    def note(self, output: Output, reason: str) -> None:
        self._refused.append((output, reason))

    def settle(self, outputs: Collection[Output]) -> None:
        """These are dealt with, as they were or by their dead letters."""
        self._refused = [entry for entry in self._refused if entry[0] not in outputs]

    def producible(self, outputs: Sequence[Output]) -> Sequence[Output]:
        """The outputs, with a dead letter for every record that was refused or is too large."""
        limit = self._dead_letters.most_bytes
        if not self._refused and all(len(output.value or b"") <= limit for output in outputs):
            return outputs
        checked = []
        for output in outputs:
            reason = next((reason for refused, reason in self._refused if refused == output), None)
            if reason is None and len(output.value or b"") > limit:
                reason = f"the record's value has {len(output.value or b'')} bytes and {limit} are allowed"
            checked.append(output if reason is None else self._dead_letters.of_refused(output, reason))
        return checked
