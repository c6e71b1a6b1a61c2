"""What replicas say about themselves in their logs (`--log-format json`), for those who judge them from outside.

A replica that goes on without what it knew says so. Nobody else can tell: the log of events has no trace of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TypeVar

import msgspec

from eventbus.names import Stage
from sensors.audit.invocations import Mishap

_FORGOTTEN = ("transaction aborted, restoring", "could not commit on revoke", "partitions lost")
"""After these the invoke stage no longer knows what it has invoked. (One that is `to be repeated` forgets nothing.)"""

Line = TypeVar("Line")


class _Said(msgspec.Struct):
    time: str
    message: str
    forgotten_seconds: float = 0.0


def own_mishaps(slot: int, log: Path) -> Iterator[Mishap]:
    """When the replica of a slot forgot what it had invoked: from the beginning of the turn that was in vain."""
    for line in log_lines(log, _Said):
        who, _, what = line.message.partition(": ")
        if who.endswith(f"-{Stage.INVOKE}-{slot}") and what.startswith(_FORGOTTEN):
            moment = round(datetime.fromisoformat(line.time).timestamp() * 1000)
            began = moment - round(line.forgotten_seconds * 1000)
            yield Mishap(str(slot), began, moment, what.partition(": ")[0])


def last_words(log: Path) -> str:
    """The last line, without its wrapping where it has one."""
    lines = log.read_text(errors="replace").strip().splitlines()
    if not lines:
        return "no output"
    try:
        return msgspec.json.decode(lines[-1], type=_Said).message
    except msgspec.DecodeError:
        return lines[-1]


def log_lines(log: Path, of: type[Line]) -> Iterator[Line]:
    """Every line that has the members of that type."""
    decoder = msgspec.json.Decoder(of)
    with log.open("rb") as lines:
        for line in lines:
            try:
                yield decoder.decode(line)
            except msgspec.DecodeError:
                continue  # cut short by a kill, or the last words of the command line
