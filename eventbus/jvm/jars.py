"""Fetches what runs on Java, once: every jar by its Maven coordinate, none used that is not exactly the pinned one.

A `jars.lock` has one line per jar: `group:artifact:version sha256`.

A jar is downloaded into a directory of its own, checked, and only then renamed to its place: an interrupted or
altered download is never used. Processes that fetch at the same time wait for each other.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from types import ModuleType

import msgspec
from rich.console import Console
from rich.progress import Progress

from eventbus.errors import MachineError
from eventbus.jvm.places import cache_directory, explained, make_directory, require_free

PARALLEL_DOWNLOADS = 8
ANSWER_SECONDS = 60
STAGING_PREFIX = "fetching-"


class Jar(msgspec.Struct, frozen=True):
    """One line of the lock file."""

    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def filename(self) -> str:
        """Its name in the cache."""
        return f"{self.artifact}-{self.version}.jar"

    @property
    def coordinate(self) -> str:
        """Its name in Maven."""
        return f"{self.group}:{self.artifact}:{self.version}"


class Software(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is made of jars."""

    title: str
    folder: str
    """Where its jars are in the cache."""
    package: str
    """Where its `jars.lock` is."""
    extra: str
    """Which of our extras brings what it takes to fetch it."""
    mebibytes: int
    """Room that it needs."""

    def jars(self) -> list[Jar]:
        """Everything that it needs on its class path."""
        lines = resources.files(self.package).joinpath("jars.lock").read_text("ascii").splitlines()
        return [Jar(*line.replace(":", " ").split()) for line in lines]

    def directory(self) -> Path:
        return cache_directory() / self.folder


def ensure_jars(software: Software, jars: Sequence[Jar] | None = None, directory: Path | None = None) -> list[Path]:
    """Return the class path; fetch first what is missing or damaged."""
    jars = software.jars() if jars is None else jars
    directory = directory or software.directory()
    if _missing(jars, directory):
        make_directory(directory)
        with explained(directory), _only_one_at_a_time(directory):
            _remove_leftovers(directory)
            _fetch(software, _missing(jars, directory), directory)
    return [directory / jar.filename for jar in jars]


def _missing(jars: Sequence[Jar], directory: Path) -> list[Jar]:
    return [jar for jar in jars if _sha256(directory / jar.filename) != jar.sha256]


def _sha256(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return None


@contextmanager
def _only_one_at_a_time(directory: Path) -> Iterator[None]:
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _remove_leftovers(directory: Path) -> None:
    """Clean up after a fetch that was killed. We hold the lock, so nobody else is fetching."""
    for leftover in directory.glob(STAGING_PREFIX + "*"):
        shutil.rmtree(leftover, ignore_errors=True)


def _fetch(software: Software, jars: Sequence[Jar], directory: Path) -> None:
    if not jars:  # whoever held the lock before us has fetched them
        return
    maven = _maven(software)
    require_free(directory, software.mebibytes, software.title)
    console = Console(stderr=True)
    title = f"Fetching {software.title}, {len(jars)} jars, once"
    if not console.is_terminal:
        console.print(f"{title}, into {directory} ...", soft_wrap=True, highlight=False)
    with (
        Progress(console=console, disable=not console.is_terminal, transient=True) as progress,
        ThreadPoolExecutor(PARALLEL_DOWNLOADS) as downloads,
    ):
        task = progress.add_task(title, total=len(jars))
        try:
            for _ in downloads.map(lambda jar: _download(maven, jar, directory), jars):
                progress.advance(task)
        except BaseException:
            downloads.shutdown(wait=False, cancel_futures=True)
            raise


def _maven(software: Software) -> ModuleType:
    try:
        return importlib.import_module("jgo.maven")
    except ImportError as error:
        raise MachineError(
            f"fetching {software.title} needs the `jgo` package: pip install 'kafka-eventbus[{software.extra}]'"
        ) from error


def _download(maven: ModuleType, jar: Jar, directory: Path) -> None:
    with tempfile.TemporaryDirectory(prefix=STAGING_PREFIX, dir=directory) as staging:
        fetched = _resolve(maven, jar, Path(staging))
        if (actual := _sha256(fetched)) != jar.sha256:
            raise MachineError(
                f"{jar.coordinate} was refused: its sha256 is {actual}, expected {jar.sha256}. "
                "Something between here and the Maven repository changed it; nothing of it was kept."
            )
        fetched.replace(directory / jar.filename)


def _resolve(maven: ModuleType, jar: Jar, staging: Path) -> Path:
    mirror = os.environ.get("EVENTBUS_MAVEN_REPOSITORY")
    context = maven.MavenContext(
        repo_cache=staging, remote_repos={"mirror": mirror} if mirror else None, timeout=ANSWER_SECONDS
    )
    artifact = context.project(jar.group, jar.artifact).at_version(jar.version).artifact("", "jar")
    try:
        return Path(artifact.resolve())
    except (OSError, RuntimeError) as error:
        if isinstance(getattr(error, "errno", None), int):  # the file system's answer, not the network's
            raise
        raise MachineError(
            f"{jar.coordinate} cannot be fetched from {mirror or 'Maven Central'} ({str(error).splitlines()[0]}). "
            "Connect to the network (HTTPS_PROXY is honoured), name a mirror with EVENTBUS_MAVEN_REPOSITORY, or copy "
            f"{staging.parent} from a machine that has it; after that no network is needed."
        ) from error
