"""Events of a directory: files that appear, change, and go.

It looks at the directory again and again, on any file system, and compares what is there with what was there before.
So what is made and gone between two looks is not seen, and of several changes between two looks there is one event.
What was seen is kept until its events are delivered: should that fail, they are found again, with the same ids.
"""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from pydantic import AfterValidator

from eventbus.events import Event
from eventsources.base import Context, SourceError, SourceSpec, Stop
from sensors.patterns import check_pattern, compile_patterns
from sensors.spec.base import Flaw, SpecModel, get
from sensors.spec.fields import Bool, Text

MOST_AT_ONCE = 500
"""Events that are delivered in one go."""
_PAUSE = 0.1
_LEISURE = 10
"""A look is followed by a pause that is so many times as long, so that a large directory does not keep a core busy."""

Operation: TypeAlias = Literal["CREATE", "WRITE", "REMOVE", "RENAME", "CHMOD"]


def _pattern(text: str) -> str:
    check_pattern(text)
    return text


def _directory(text: str) -> str:
    if not text.startswith("/"):
        raise ValueError(f"must be an absolute path such as `/data`, not `{text}`")
    return text


def _name(text: str) -> str:
    if not text or "/" in text:
        raise ValueError(f"must be the name of a file in `directory`, not `{text}`: what is below is not looked at")
    return text


class WatchPathConfig(SpecModel):
    """Which files."""

    directory: Annotated[Text, AfterValidator(_directory)]
    """What is directly in it."""
    path: Annotated[Text, AfterValidator(_name)] | None = None
    """The name of one file in it."""
    pathRegexp: Annotated[Text, AfterValidator(_pattern)] | None = None
    """Files in whose name this regular expression is found."""

    @classmethod
    def flaws(cls, data: Any) -> Iterator[Flaw]:
        if isinstance(data, Mapping) and (get(data, "path") is None) == (get(data, "pathRegexp") is None):
            yield Flaw((), "must have either a `path` or a `pathRegexp`")


class FileSpec(SourceSpec):
    """Something happens to a file."""

    watchPathConfig: WatchPathConfig
    eventType: Operation
    """`RENAME` is told of the old name, and `CREATE` of the new one."""
    polling: Bool = False
    """argo-events looks at the directory again and again with it, and asks the kernel without. Here it is always so."""


class Entry(msgspec.Struct, frozen=True):
    """A file as it was when it was looked at."""

    inode: int
    written: int
    changed: int
    size: int
    rights: tuple[int, int, int]
    is_directory: bool

    @classmethod
    def of(cls, status: os.stat_result) -> Entry:
        rights = (stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid)
        is_directory = stat.S_ISDIR(status.st_mode)
        return cls(status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size, rights, is_directory)


class Look(msgspec.Struct, frozen=True):
    """A directory as it was at one time."""

    entries: dict[str, Entry]
    """By name, as far as they are of interest."""
    names: Counter[int]
    """How many everything in it has, by its inode."""


def changes(before: Look, after: Look) -> Iterator[tuple[Operation, str, Entry]]:
    """What must have happened between two looks, as the kernel would tell it."""
    for name, old in before.entries.items():
        new = after.entries.get(name)
        if new is not None and new.inode == old.inode:
            yield from _altered(name, old, new)
        elif after.names[old.inode] >= before.names[old.inode]:
            yield "RENAME", name, old
        elif new is None:
            yield "REMOVE", name, old
    for name, new in after.entries.items():
        known = before.entries.get(name)
        if known is None or known.inode != new.inode:
            yield "CREATE", name, new
            if new.size and not new.is_directory:
                yield "WRITE", name, new


def _altered(name: str, old: Entry, new: Entry) -> Iterator[tuple[Operation, str, Entry]]:
    if (new.written, new.size) != (old.written, old.size) and not new.is_directory:
        yield "WRITE", name, new
    if new.rights != old.rights:
        yield "CHMOD", name, new


class FileSource:
    """Looks, compares, tells."""

    def __init__(self, spec: FileSpec) -> None:
        self._spec = spec
        self._directory = Path(spec.watchPathConfig.directory)
        self._wanted = _wanted(spec.watchPathConfig)
        self._told: Look | None = None
        """All up to here is delivered."""

    def run(self, context: Context, stop: Stop) -> None:
        if self._told is None:
            self._told = self._look()
        while not stop.is_set():
            began = context.clock.monotonic()
            now = self._look()
            events = [
                self._event(context, name, entry)
                for operation, name, entry in changes(self._told, now)
                if operation == self._spec.eventType
            ]
            for first in range(0, len(events), MOST_AT_ONCE):
                context.deliver(events[first : first + MOST_AT_ONCE])
            self._told = now
            stop.wait(max(_PAUSE, _LEISURE * (context.clock.monotonic() - began)))

    def _look(self) -> Look:
        entries: dict[str, Entry] = {}
        names: Counter[int] = Counter()
        try:
            with os.scandir(self._directory) as found:
                for each in found:
                    name = os.fsencode(each.name).decode(errors="replace")
                    if not self._wanted(name):
                        names[each.inode()] += 1
                    elif (entry := _entry(each)) is not None:
                        names[entry.inode] += 1
                        entries[name] = entry
        except OSError as error:
            raise SourceError(f"the directory `{self._directory}` cannot be read: {error.strerror}") from None
        return Look(entries, names)

    def _event(self, context: Context, name: str, entry: Entry) -> Event:
        path, operation = str(self._directory / name), self._spec.eventType
        data = {"name": path, "op": operation}
        return context.identity.event(
            f"{path} {operation} {entry.inode} {entry.written} {entry.changed}", self._spec.described(data)
        )


def _entry(found: os.DirEntry[str]) -> Entry | None:
    """None where it has gone meanwhile: the next look tells."""
    try:
        return Entry.of(found.stat(follow_symlinks=False))
    except OSError:
        return None


def _wanted(config: WatchPathConfig) -> Callable[[str], bool]:
    if config.pathRegexp is not None:
        return compile_patterns([config.pathRegexp])
    return lambda name: name == config.path
