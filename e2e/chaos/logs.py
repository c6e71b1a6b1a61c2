"""What the replicas say about themselves in their logs: what they had to forget, and how much they read again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path

import msgspec

from eventbus.names import Stage
from sensors.audit.invocations import Mishap

_FORGOTTEN = ("transaction aborted, restoring", "could not commit on revoke", "partitions lost")
"""After these the invoke stage no longer knows what it has invoked. (One that is `to be repeated` forgets nothing.)"""


class _Line(msgspec.Struct):
    time: str
    message: str
    replay: int = 0


_decoder = msgspec.json.Decoder(_Line)


def own_mishaps(slot: int, log: Path) -> Iterator[Mishap]:
    for line in _lines(log):
        who, _, what = line.message.partition(": ")
        if who.endswith(f"-{Stage.INVOKE}-{slot}") and what.startswith(_FORGOTTEN):
            moment = round(datetime.fromisoformat(line.time).timestamp() * 1000)
            yield Mishap(str(slot), moment, moment, what.partition(": ")[0])


def longest_replay(logs: Iterable[Path]) -> int:
    return max((line.replay for log in logs for line in _lines(log)), default=0)


def _lines(log: Path) -> Iterator[_Line]:
    with log.open("rb") as lines:
        for line in lines:
            try:
                yield _decoder.decode(line)
            except msgspec.DecodeError:
                continue  # cut short by a kill, or the last words of the command line
