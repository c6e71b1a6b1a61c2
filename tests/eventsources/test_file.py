"""What happens in a directory becomes events, and what was there before does not."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event as Flag
from typing import Any

import pytest

from eventbus import Bus
from eventbus.clock import ManualClock
from eventsources.base import Context, Identity, SourceError, Told
from eventsources.journal import Journal
from eventsources.sources import file
from eventsources.sources.file import FileSource, FileSpec
from sensors.spec.problems import ManifestError
from tests.eventsources.serving import events_on, manifest, through_journal

IDENTITY = Identity("inbox", "file", "file")
OPERATIONS = ("CREATE", "WRITE", "REMOVE", "RENAME", "CHMOD")
Step = Callable[[], object]


class Steps(Flag):
    """Something happens whenever the source waits, and when nothing is left, it stops."""

    def __init__(self, steps: Sequence[Step]) -> None:
        super().__init__()
        self._steps = list(steps)

    def wait(self, timeout: float | None = None) -> bool:
        if self._steps:
            self._steps.pop(0)()
        else:
            self.set()
        return self.is_set()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "inbox"
    made.mkdir()
    return made


def source(folder: Path, operation: str, **spec: Any) -> FileSource:
    paths = {"directory": f"{folder}/", **spec.pop("paths", {"pathRegexp": r"\.txt$"})}
    return FileSource(FileSpec.model_validate({"watchPathConfig": paths, "eventType": operation, **spec}))


def run(bus: Bus, made: FileSource, *steps: Step) -> None:
    journal = Journal(bus, IDENTITY)
    try:
        made.run(Context(IDENTITY, ManualClock(), through_journal(bus, IDENTITY, journal)), Steps(steps))
    finally:
        journal.close()


def seen(folder: Path, operation: str, *steps: Step, **spec: Any) -> list[str]:
    """The names of the files in the events of one kind."""
    with Bus.memory() as bus:
        bus.ensure(1)
        run(bus, source(folder, operation, **spec), *steps)
        events = events_on(bus)
    assert all(event.json()["op"] == operation for event in events)
    return [Path(event.json()["name"]).name for event in events]


def test_a_file_that_appears(bus: Bus, folder: Path) -> None:
    (folder / "old.txt").write_text("old")
    made = source(folder, "CREATE", metadata={"shop": "eu"}, polling=True)
    run(bus, made, (folder / "new.txt").touch, (folder / "new.csv").touch)
    [event] = events_on(bus)
    assert event.json() == {"name": f"{folder}/new.txt", "op": "CREATE", "metadata": {"shop": "eu"}}
    status = (folder / "new.txt").stat()
    assert event.id == f"{folder}/new.txt CREATE {status.st_ino} {status.st_mtime_ns} {status.st_ctime_ns}"


@pytest.mark.parametrize(
    ("happens", "told"),
    [
        (lambda a: (a.parent / "b.txt").write_text("b"), {"CREATE": ["b.txt"], "WRITE": ["b.txt"]}),
        (lambda a: a.write_text("longer"), {"WRITE": ["a.txt"]}),
        (lambda a: a.unlink(), {"REMOVE": ["a.txt"]}),
        (lambda a: a.rename(a.parent / "c"), {"RENAME": ["a.txt"]}),
        (lambda a: a.rename(a.parent / "c.txt"), {"RENAME": ["a.txt"], "CREATE": ["c.txt"], "WRITE": ["c.txt"]}),
        (lambda a: a.rename(a.parent.parent / "c.txt"), {"REMOVE": ["a.txt"]}),
        (lambda a: a.chmod(0o700), {"CHMOD": ["a.txt"]}),
        (lambda a: (a.parent / "d.txt").mkdir(), {"CREATE": ["d.txt"]}),
        (lambda a: (a.parent / "linked").hardlink_to(a), {}),
        (lambda a: a.touch(), {"WRITE": ["a.txt"]}),
    ],
)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_what_happens_is_told_as_the_kernel_tells_it(
    folder: Path, happens: Callable[[Path], object], told: dict[str, list[str]], operation: str
) -> None:
    path = folder / "a.txt"
    path.write_text("a")
    os.utime(path, (1, 1))  # a touch is then a change on any clock
    assert seen(folder, operation, lambda: happens(path)) == told.get(operation, [])


def test_a_file_that_replaces_another_is_a_new_one(folder: Path) -> None:
    (folder / "a.txt").write_text("a")
    (folder / "a.new").write_text("a")
    steps = [lambda: (folder / "a.new").rename(folder / "a.txt")]
    assert seen(folder, "CREATE", *steps) == ["a.txt"]


def test_one_name_of_two_is_removed_and_not_renamed(folder: Path) -> None:
    (folder / "a.txt").touch()
    (folder / "b.txt").hardlink_to(folder / "a.txt")
    assert seen(folder, "REMOVE", (folder / "a.txt").unlink) == ["a.txt"]


def test_only_the_file_that_is_named(folder: Path) -> None:
    steps = [(folder / "xxtxt").touch, (folder / "x.txt").touch]
    assert seen(folder, "CREATE", *steps, paths={"path": "x.txt"}) == ["x.txt"]


def test_a_file_that_goes_while_it_is_looked_at(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at = file._entry

    def gone(found: os.DirEntry[str]) -> Any:
        if found.name == "fleeting.txt":
            Path(found.path).unlink()
        return looked_at(found)

    monkeypatch.setattr(file, "_entry", gone)
    steps = [(folder / "fleeting.txt").touch, (folder / "lasting.txt").touch]
    assert seen(folder, "CREATE", *steps) == ["lasting.txt"]
    assert seen(folder, "RENAME", (folder / "fleeting.txt").touch) == []


def test_names_that_are_not_utf8(folder: Path) -> None:
    assert seen(folder, "CREATE", lambda: Path(os.fsdecode(os.fsencode(folder) + b"/\xff.txt")).touch()) == [
        "\ufffd.txt"
    ]


def test_a_directory_that_is_not_there_is_told_and_tried_again(bus: Bus, folder: Path) -> None:
    folder.rmdir()
    made = source(folder, "CREATE")
    with pytest.raises(SourceError) as error:
        run(bus, made)
    assert str(error.value) == f"the directory `{folder}` cannot be read: No such file or directory"
    folder.mkdir()
    run(bus, made, (folder / "a.txt").touch)
    assert len(events_on(bus)) == 1


def test_what_could_not_be_delivered_is_found_again_with_the_same_id(bus: Bus, folder: Path) -> None:
    made = source(folder, "CREATE")
    tried: list[Told] = []

    def fails(told: Sequence[Told], /, remember: bytes | None = None) -> None:
        tried.extend(told)
        if told:
            raise SourceError("no broker")

    with pytest.raises(SourceError):
        made.run(Context(IDENTITY, ManualClock(), fails), Steps([(folder / "a.txt").touch]))
    run(bus, made)
    assert [event.id for event in events_on(bus)] == [event.id for event in tried]


def test_many_at_once_come_in_portions(folder: Path) -> None:
    portions: list[int] = []

    def deliver(told: Sequence[Told], /, remember: bytes | None = None) -> None:
        portions.append(len(told))

    def many() -> None:
        for number in range(file.MOST_AT_ONCE + 1):
            (folder / f"{number}.txt").touch()

    source(folder, "CREATE").run(Context(IDENTITY, ManualClock(), deliver), Steps([many]))
    assert portions == [file.MOST_AT_ONCE, 1]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            {"watchPathConfig": {"directory": "/d"}, "eventType": "CREATE"},
            "must have either a `path` or a `pathRegexp`",
        ),
        ({"watchPathConfig": {"directory": "d", "path": "a"}, "eventType": "CREATE"}, "must be an absolute path"),
        ({"watchPathConfig": {"directory": "/d", "path": "a/b"}, "eventType": "CREATE"}, "must be the name of a file"),
        (
            {"watchPathConfig": {"directory": "/d", "pathRegexp": "("}, "eventType": "CREATE"},
            "is not a regular expression",
        ),
        ({"watchPathConfig": {"directory": "/d", "path": "a"}, "eventType": "OPEN"}, "eventType"),
        ({"watchPathConfig": {"directory": "/d", "path": "a"}, "eventType": "CREATE", "poling": True}, "polling"),
    ],
)
def test_what_is_wrong_is_told(spec: dict[str, Any], message: str) -> None:
    with pytest.raises(ManifestError) as error:
        manifest("file", inbox=spec)
    assert message in str(error.value)
