"""What the replicas say about themselves in their logs: aborted transactions, and how much they read again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path

import msgspec

from e2e.chaos.evidence import Mishap

_OWN_MISHAPS = ("transaction aborted", "could not commit on revoke", "could not abort", "partitions lost")


class _Line(msgspec.Struct):
    time: str
    message: str
    replay: int = 0


_decoder = msgspec.json.Decoder(_Line)


def own_mishaps(slot: int, log: Path) -> Iterator[Mishap]:
    for line in _lines(log):
        if any(words in line.message for words in _OWN_MISHAPS):
            moment = round(datetime.fromisoformat(line.time).timestamp() * 1000)
            yield Mishap(str(slot), moment, moment, _short(line.message))


def _short(message: str) -> str:
    """A message is `{transactional id}: {what}: {why}`, and the id ends with the stage and the slot."""
    who, what, *_why = message.split(": ")
    return f"{who.split('-')[-2]}: {what}"


def longest_replay(logs: Iterable[Path]) -> int:
    return max((line.replay for log in logs for line in _lines(log)), default=0)


def _lines(log: Path) -> Iterator[_Line]:
    with log.open("rb") as lines:
        for line in lines:
            try:
                yield _decoder.decode(line)
            except msgspec.DecodeError:
                continue  # cut short by a kill, or the last words of the command line
