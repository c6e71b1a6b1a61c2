"""What a stage writes into the metadata of its offset commits.

The metadata is the only thing that Kafka commits together with an offset, so it carries whatever must agree with it:
who committed (generation and digest of the sensor's spec) and, per stage, how to go on from there.

- match: nothing more; the offset says it all.
- join: the position, the partition's clock and a low-water mark per trigger. The committed offset is the oldest event
  that is still held in the log; records between it and the position are replayed after a restart, without firing,
  and only those at or above their trigger's mark.
- invoke: the offsets above the committed one that are finished already, run-length encoded.

Kafka limits it to 4,096 bytes less a NUL that some clients append. We stay within `LIMIT` ASCII characters, always.
Metadata that cannot be decoded stops the replica: taking it for empty would repeat or lose actions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from eventbus.errors import FormatError

LIMIT = 4000
TRIGGER_CHARACTERS = 6
"""Characters of a trigger's digest: enough to tell the triggers of one sensor apart (checked at load)."""
SHAPE_CHARACTERS = 4
"""Characters of a join shape's digest: enough to tell versions of one trigger apart."""
DIGEST_CHARACTERS = 8
_ID = r"[A-Za-z0-9_-]"
_HEAD = rf"(\d{{1,19}});({_ID}{{{DIGEST_CHARACTERS}}})"
_MATCH = re.compile(rf"m1;{_HEAD}", re.ASCII)
_JOIN = re.compile(rf"j1;{_HEAD};(\d{{1,19}});(\d{{1,19}});([A-Za-z0-9_,-]*)", re.ASCII)
_MARK = re.compile(rf"({_ID}{{{TRIGGER_CHARACTERS}}})({_ID}{{{SHAPE_CHARACTERS}}})(\d{{1,19}})", re.ASCII)
_INVOKE = re.compile(rf"i1;{_HEAD};((?:\d{{1,19}}(?:\.\d{{1,19}})*)?)", re.ASCII)
_HEAD_LENGTH = len("j1;") + 19 + 1 + DIGEST_CHARACTERS + 1 + 19 + 1 + 19 + 1


class Owner(msgspec.Struct, frozen=True):
    """Which version of a sensor committed."""

    generation: int
    digest: str


class Mark(msgspec.Struct, frozen=True):
    """The oldest offset that a trigger holds in the log, and the trigger's join shape."""

    shape: str
    offset: int


class JoinCommit(msgspec.Struct, frozen=True):
    owner: Owner
    position: int
    clock: int
    marks: Mapping[str, Mark]
    """By the trigger's digest. A trigger without a mark holds nothing in the log."""

    @property
    def offset(self) -> int:
        """What to commit: everything before it may be forgotten."""
        return min((mark.offset for mark in self.marks.values()), default=self.position)


class InvokeCommit(msgspec.Struct, frozen=True):
    owner: Owner
    offset: int
    finished: Sequence[tuple[int, int]]
    """Ranges [start, end) of finished offsets above `offset`, ascending, not touching each other."""


def encode_match(owner: Owner) -> str:
    return f"m1;{_head(owner)}"


def decode_match(metadata: str) -> Owner:
    matched = _matched(_MATCH, metadata)
    return _owner(matched)


def encode_join(commit: JoinCommit) -> str:
    base = commit.offset
    marks = ",".join(f"{trigger}{mark.shape}{mark.offset - base}" for trigger, mark in commit.marks.items())
    return _bounded(f"j1;{_head(commit.owner)};{commit.position};{commit.clock};{marks}")


def decode_join(offset: int, metadata: str) -> JoinCommit:
    matched = _matched(_JOIN, metadata)
    marks = {}
    for entry in filter(None, matched[5].split(",")):
        mark = _matched(_MARK, entry)
        marks[mark[1]] = Mark(mark[2], offset + int(mark[3]))
    commit = JoinCommit(_owner(matched), int(matched[3]), int(matched[4]), marks)
    if commit.offset != offset:
        raise FormatError(f"the commit's metadata belongs to offset {commit.offset}, not {offset}: {metadata!r}")
    return commit


def marks_that_fit(span: int) -> int:
    """How many marks always fit, when the oldest lies `span` offsets before the position."""
    entry = TRIGGER_CHARACTERS + SHAPE_CHARACTERS + len(str(span)) + 1
    return (LIMIT - _HEAD_LENGTH) // entry


def encode_invoke(commit: InvokeCommit) -> str:
    return _bounded(f"i1;{_head(commit.owner)};{_runs(commit)}")


def decode_invoke(offset: int, metadata: str) -> InvokeCommit:
    matched = _matched(_INVOKE, metadata)
    numbers = [int(number) for number in matched[3].split(".")] if matched[3] else []
    if len(numbers) % 2:
        raise _undecodable(metadata)
    finished, at = [], offset
    for gap, run in zip(numbers[::2], numbers[1::2], strict=True):
        start = at + gap
        at = start + run
        finished.append((start, at))
    return InvokeCommit(_owner(matched), offset, finished)


def open_that_fit(span: int) -> int:
    """How many unfinished offsets may lie among finished ones, when all of them lie within `span` offsets.

    Each costs one range at most. Where more would be needed, no further work is begun until some is finished.
    """
    return (LIMIT - _HEAD_LENGTH) // (2 * (len(str(span)) + 1))


def _runs(commit: InvokeCommit) -> str:
    """Alternately how far to skip and how many are finished, from the committed offset on."""
    numbers, at = [], commit.offset
    for start, end in commit.finished:
        numbers += [start - at, end - start]
        at = end
    return ".".join(map(str, numbers))


def _head(owner: Owner) -> str:
    return f"{owner.generation};{owner.digest}"


def _owner(matched: re.Match[str]) -> Owner:
    return Owner(int(matched[1]), matched[2])


def _bounded(metadata: str) -> str:
    if len(metadata) > LIMIT:
        raise FormatError(f"the commit's metadata is {len(metadata)} characters long and {LIMIT} are allowed")
    return metadata


def _matched(pattern: re.Pattern[str], text: str) -> re.Match[str]:
    matched = pattern.fullmatch(text)
    if matched is None:
        raise _undecodable(text)
    return matched


def _undecodable(metadata: str) -> FormatError:
    return FormatError(
        f"the commit's metadata cannot be read: {metadata[:80]!r}; it was written by a newer release, or another "
        "program committed to this sensor's consumer group. Run the release that wrote it; do not delete the commit"
    )
