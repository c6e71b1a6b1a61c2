"""Servers that Debian has packages of: where they are installed, or else from packages in the user's cache directory.

Nothing is installed and nobody has to be root: apt says what is lacking, fetches and checks it, and it is unpacked into
a directory of its own, once. Tests that need it are skipped where that is not possible, and say why.
"""

from __future__ import annotations

import fcntl
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from eventbus.jvm.places import cache_directory, make_directory

_LACKING = re.compile(r"^Inst (\S+) \(", re.MULTILINE)
_FETCH_SECONDS = 90


class _Unavailable(Exception):
    """It cannot be had; the message says why."""


def tree_with(package: str, program: str) -> Path:
    """The directory below which `program` is, and whatever it needs that the system has not. Skips the test."""
    if (Path("/") / program).exists():
        return Path("/")
    try:
        return _unpacked(package, program)
    except (_Unavailable, subprocess.SubprocessError) as error:
        pytest.skip(f"{Path(program).name} is not there: install Debian's `{package}` ({error})")


def libraries(tree: Path) -> dict[str, str]:
    """What the environment of its programs needs."""
    if tree == Path("/"):
        return {}
    found = [str(each) for each in (*tree.glob("usr/lib/*-linux-*"), *tree.glob("lib/*-linux-*"))]
    return {"LD_LIBRARY_PATH": ":".join(found)}


def _unpacked(package: str, program: str) -> Path:
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise _Unavailable("there is no apt-get to fetch it with")
    release = platform.freedesktop_os_release()
    cache = cache_directory() / "debian"
    place = cache / f"{release.get('VERSION_CODENAME', release['ID'])}-{platform.machine()}-{package}"
    make_directory(cache)
    with _alone(cache / "lock"):
        if not (place / program).exists():
            _fetch(package, place)
    return place


@contextmanager
def _alone(file: Path) -> Iterator[None]:
    with file.open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def _fetch(package: str, place: Path) -> None:
    with tempfile.TemporaryDirectory(dir=place.parent, prefix="fetching-") as name:
        folder = Path(name)
        try:
            _download(package, folder, [])
        except _Unavailable:  # the system's lists of packages are missing or old, and only root may renew them
            own = _own_lists(folder)
            _apt(folder, *own, "update")
            _download(package, folder, own)
        for archive in folder.glob("*.deb"):
            _run(folder, "dpkg-deb", "-x", str(archive), str(folder / "tree"))
        shutil.rmtree(place, ignore_errors=True)
        (folder / "tree").rename(place)


def _download(package: str, folder: Path, options: list[str]) -> None:
    simulated = _apt(folder, *options, "install", "--simulate", "--no-install-recommends", package)
    _apt(folder, *options, "download", *_LACKING.findall(simulated))


def _own_lists(folder: Path) -> list[str]:
    (folder / "lists" / "partial").mkdir(parents=True)
    (folder / "cache").mkdir()
    return ["-o", f"Dir::State::Lists={folder / 'lists'}", "-o", f"Dir::Cache={folder / 'cache'}"]


def _apt(folder: Path, *arguments: str) -> str:
    return _run(folder, "apt-get", "-q", *arguments)


def _run(folder: Path, *command: str) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_FETCH_SECONDS, check=False)
    if done.returncode != 0:
        raise _Unavailable(f"{command[0]}: {' '.join(done.stderr.split())[-200:]}")
    return done.stdout
