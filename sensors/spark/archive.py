"""An archive on disk: what lies where, how far it reaches, and which of its records are known to be lost.

=============================================================== =======================================================
`archive.json`                                                  whose archive it is; losses that were accepted
`records/topic=…/date=…/source=…/type=…/*.parquet`              the records
`records/topic=…/_spark_metadata/`                              which of those files count: Spark's exactly once
`checkpoints/TOPIC/`                                            how far Spark has got
`commits/SENSOR.json`                                           how far a sensor had got just before
=============================================================== =======================================================

Every topic has a query, a list of files and a checkpoint of its own, so that topics can be added at any time.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias, TypeVar

import msgspec

from eventbus.errors import ConfigError, FormatError, NewerFormatError
from eventbus.names import BusName, SensorName, Stage
from eventbus.ports import Committed

FORMAT = 1
PARTITIONED_BY = "date", "source", "type"
"""The folders below a topic's: the day (UTC) of the append time, and what the record is about."""

_SINK_LOG = "_spark_metadata"
_SOURCE_START = Path("sources", "0", "0")

Ranges: TypeAlias = Sequence[tuple[int, int]]
"""From which offset to which (exclusive), ascending."""
RawCommits: TypeAlias = Mapping[Stage, Mapping[int, Committed]]
"""What each stage has committed, by partition, as Kafka keeps it."""

T = TypeVar("T")


class Gap(msgspec.Struct, frozen=True):
    """Offsets that Kafka's retention had removed before they were archived, and somebody has accepted that."""

    topic: str
    partition: int
    start: int
    end: int


class About(msgspec.Struct, frozen=True):
    """What an archive says of itself."""

    namespace: str
    bus: str
    place: str
    """Spark's lists of files have absolute paths, so an archive cannot be moved."""
    format: int = FORMAT
    topics: Mapping[str, str] = {}
    """The ids of the archived topics: one that was deleted and made anew counts its records from 0 again."""
    gaps: Sequence[Gap] = ()


class _Commits(msgspec.Struct, frozen=True):
    taken: int
    stages: RawCommits
    format: int = FORMAT


class Reach(msgspec.Struct, frozen=True):
    """How far a topic has been archived."""

    starts: Mapping[int, int]
    """Where the archive begins, by partition; one that was added to the topic later is there from 0 on."""
    ends: Mapping[int, int]
    """What is before them is archived."""
    pending: bool
    """Whether a batch was begun that is not finished."""


class Archive:
    """A directory that holds the records of one bus."""

    def __init__(self, directory: str | Path) -> None:
        self.directory = Path(directory).resolve()

    @classmethod
    def open(cls, directory: str | Path, bus: BusName) -> Archive:
        """One that is there, and that this release can read."""
        archive = cls(directory)
        if archive.about() is None:
            raise ConfigError(f"{directory}: there is no archive here; `eventbus archive {directory}` makes one")
        archive.check(bus)
        return archive

    # --- what lies where ----------------------------------------------------------------------------------------------

    def records(self, topic: str) -> Path:
        return self.directory / "records" / f"topic={topic}"

    def checkpoint(self, topic: str) -> Path:
        return self.directory / "checkpoints" / topic

    @property
    def _about(self) -> Path:
        return self.directory / "archive.json"

    def _commits(self, name: SensorName) -> Path:
        return self.directory / "commits" / f"{name.sensor}.json"

    # --- whose it is --------------------------------------------------------------------------------------------------

    def about(self) -> About | None:
        return _read(self._about, About)

    def check(self, bus: BusName) -> None:
        about = self.about()
        if about is None:
            return
        if (about.namespace, about.bus) != (bus.namespace, bus.bus):
            raise ConfigError(
                f"{self.directory} is the archive of the bus {about.namespace}/{about.bus}, "
                f"not of {bus.namespace}/{bus.bus}: name another directory"
            )
        if about.place != str(self.directory):
            raise ConfigError(
                f"{self.directory} was moved here from {about.place}, and Spark's lists of its files have absolute "
                "paths: move it back, mount it there, or begin a new archive"
            )

    def check_topic(self, topic: str, topic_id: str) -> None:
        about = self.about()
        if about is not None and topic_id and about.topics.get(topic, topic_id) != topic_id:
            raise ConfigError(
                f"the topic `{topic}` was deleted and made anew since it was archived in {self.directory}, and its "
                "offsets mean other records now: begin a new archive in another directory"
            )

    def introduce(self, bus: BusName, topics: Mapping[str, str]) -> None:
        """Write down whose archive this is, and that it has these topics (by name; with their ids)."""
        about = self.about() or About(bus.namespace, bus.bus, str(self.directory))
        now = msgspec.structs.replace(about, topics={**about.topics, **topics})
        if now != self.about():
            _write(self._about, now)

    def accept(self, gaps: Sequence[Gap]) -> None:
        """Write down what is lost for good."""
        about = self.about()
        if about is None or not gaps:
            return
        known = {(gap.topic, gap.partition, gap.start): gap for gap in (*about.gaps, *gaps)}
        _write(self._about, msgspec.structs.replace(about, gaps=list(known.values())))

    # --- how far it reaches -------------------------------------------------------------------------------------------

    def reach(self, topic: str) -> Reach | None:
        """None where nothing was ever begun.

        A batch is archived once its files are listed, be it marked as done in the checkpoint or not: Spark looks there
        before it writes a batch again.
        """
        checkpoint = self.checkpoint(topic)
        starts = _offsets(checkpoint / _SOURCE_START, topic)
        if starts is None:
            return None
        planned = max(_batches(checkpoint / "offsets"), default=-1)
        done = max(_batches(checkpoint / "commits"), default=-1)
        listed = max(_batches(self.records(topic) / _SINK_LOG), default=-1)
        archived = max(done, listed)
        ends = starts if archived < 0 else _offsets(checkpoint / "offsets" / str(archived), topic)
        if ends is None:
            raise FormatError(f"{checkpoint}: the checkpoint is damaged: batch {archived} has no offsets")
        return Reach({partition: starts.get(partition, 0) for partition in ends}, ends, planned > done)

    def covered(self, topic: str) -> Mapping[int, Ranges]:
        """Which offsets of a topic are archived, by partition. What is no record (any more) counts as archived."""
        reach = self.reach(topic)
        about = self.about()
        if reach is None or about is None:
            return {}
        gaps: dict[int, list[tuple[int, int]]] = {}
        for gap in about.gaps:
            if gap.topic == topic:
                gaps.setdefault(gap.partition, []).append((gap.start, gap.end))
        return {
            partition: without((reach.starts[partition], end), gaps.get(partition, ()))
            for partition, end in reach.ends.items()
        }

    def has_records(self, topic: str) -> bool:
        return max(_batches(self.records(topic) / _SINK_LOG), default=-1) >= 0

    def files(self, topic: str) -> int:
        """How many files hold a topic's records."""
        folder = self.records(topic) / _SINK_LOG
        names = {batch: each for each in _listing(folder) if (batch := _batch(each)) is not None}
        compacted = max((batch for batch, name in names.items() if name.endswith(".compact")), default=-1)
        lists = [folder / name for batch, name in names.items() if batch >= compacted]
        return sum(line.startswith("{") for each in lists for line in each.read_text().splitlines())

    # --- commits ------------------------------------------------------------------------------------------------------

    def keep_commits(self, name: SensorName, commits: RawCommits, taken: int) -> None:
        """Kafka forgets those of a sensor that has gone: then the last that were known stay."""
        before = self.commits(name) or {}
        known = {stage: each or before.get(stage, {}) for stage, each in commits.items()}
        _write(self._commits(name), _Commits(taken, known))

    def commits(self, name: SensorName) -> RawCommits | None:
        kept = _read(self._commits(name), _Commits)
        return None if kept is None else kept.stages

    # --- one at a time ------------------------------------------------------------------------------------------------

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Two archivers would write the same batches. Makes the directory, and thereby finds out whether it can."""
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.directory / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise ConfigError(f"{self.directory}: cannot be written to: {error.strerror}") from None
        try:
            self._take(descriptor)
            yield
        finally:
            os.close(descriptor)

    def _take(self, lock: int) -> None:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(lock, 20).decode() or "?"
            raise ConfigError(
                f"{self.directory} is being archived to already, by process {holder}: one archiver at a time"
            ) from None
        os.ftruncate(lock, 0)
        os.write(lock, str(os.getpid()).encode())


def without(span: tuple[int, int], holes: Ranges) -> Ranges:
    """What is left of a range."""
    left, (start, end) = [], span
    for low, high in sorted(hole for hole in holes if hole[0] < hole[1]):
        if start < min(low, end):
            left.append((start, min(low, end)))
        start = max(start, high)
    return [*left, (start, end)] if start < end else left


def _offsets(file: Path, topic: str) -> dict[int, int] | None:
    """The last line of a file of Spark's, which is what a Kafka source calls an offset."""
    try:
        last = file.read_text(errors="replace").splitlines()[-1]
        return msgspec.json.decode(last, type=dict[str, dict[int, int]])[topic]
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (IndexError, KeyError, msgspec.MsgspecError) as error:
        raise FormatError(f"{file}: the checkpoint is damaged: {error}") from None


def _batches(folder: Path) -> Iterator[int]:
    return (batch for name in _listing(folder) if (batch := _batch(name)) is not None)


def _batch(name: str) -> int | None:
    number = name.removesuffix(".compact")
    return int(number) if number.isdecimal() else None


def _listing(folder: Path) -> list[str]:
    try:
        return [each.name for each in folder.iterdir()]
    except FileNotFoundError:
        return []


def _read(file: Path, kind: type[T]) -> T | None:
    try:
        content = file.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}") from None
    try:
        if msgspec.json.decode(content)["format"] > FORMAT:
            raise NewerFormatError(f"{file} was written by a newer release of eventbus: use that one")
        return msgspec.json.decode(content, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, KeyError, TypeError) as error:
        raise FormatError(f"{file} is damaged: {error}") from None


def _write(file: Path, value: object) -> None:
    """All of it or nothing, whatever happens."""
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_name(f".{file.name}.draft")
    with draft.open("wb") as target:
        target.write(msgspec.json.format(msgspec.json.encode(value)) + b"\n")
        target.flush()
        os.fsync(target.fileno())
    draft.replace(file)
