"""Events in a text file, one JSON document per line: for `eventbus send`, for `eventbus explain`, and for tests.

A line that has a `specversion` is a complete CloudEvent and is read strictly. A line without one is the short form,
for files that people write by hand:

    {"source": "shop", "name": "order", "data": {"id": 17}}

There `name` stands for `subject` (what a dependency calls `eventName`), a missing `type` becomes the default type, a
missing `id` a random one, and data is JSON unless `datacontenttype` says otherwise. Empty lines are skipped.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from uuid import uuid4

import msgspec

from eventbus.cloudevents import from_json
from eventbus.errors import ConfigError, InvalidEvent
from eventbus.events import DEFAULT_TYPE, Event

STDIN = "-"

_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode


class Line(msgspec.Struct, frozen=True):
    """One event, and where it is written."""

    event: Event
    place: str
    """`file:line`"""


def read_events(path: str | Path) -> Iterator[Event]:
    """The events in a file, in order. Raises `ConfigError`, naming the file and the line."""
    for line in read_lines(path):
        yield line.event


def read_lines(path: str | Path) -> Iterator[Line]:
    """As `read_events`, with the place of each event. The path `-` is the standard input."""
    if str(path) == STDIN:
        yield from parse_lines(sys.stdin.buffer, "<stdin>")
        return
    try:
        with Path(path).open("rb") as stream:
            yield from parse_lines(stream, str(path))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None


def parse_lines(lines: Iterable[bytes], file: str) -> Iterator[Line]:
    for number, line in enumerate(lines, start=1):
        document = line.strip()
        if document:
            place = f"{file}:{number}"
            try:
                yield Line(_parse(document), place)
            except InvalidEvent as error:
                raise ConfigError(f"{place}: {error}") from None


def _parse(document: bytes) -> Event:
    try:
        document.decode()
    except UnicodeDecodeError as error:
        raise InvalidEvent(f"not UTF-8: see byte {error.start + 1} of the line") from None
    try:
        members = _decode_members(document)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidEvent(f"not a JSON object: {error}") from None
    return from_json(document if "specversion" in members else _encode(_completed(members)))


def _completed(members: dict[str, msgspec.Raw]) -> dict[str, object]:
    """The structured CloudEvent that the short form stands for."""
    completed: dict[str, object] = {"specversion": "1.0", "id": uuid4().hex, "type": DEFAULT_TYPE, **members}
    if "name" in members:
        if "subject" in members:
            raise InvalidEvent("`name` and `subject` mean the same: leave one out")
        completed["subject"] = completed.pop("name")
    if "data" in members:
        completed.setdefault("datacontenttype", "application/json")
    return completed
