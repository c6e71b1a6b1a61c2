"""Where what is fetched is kept on this machine, and what happens when there is no room."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from platformdirs import user_cache_path

from eventbus.errors import MachineError

MIB = 1024 * 1024


def cache_directory() -> Path:
    """What is there can be fetched again, and may be deleted at any time. Set by `EVENTBUS_CACHE_DIR`."""
    return from_environment("EVENTBUS_CACHE_DIR", user_cache_path("kafka-eventbus"))


def from_environment(variable: str, default: Path) -> Path:
    value = os.environ.get(variable)
    return Path(value).expanduser().absolute() if value else default


def make_directory(directory: Path) -> None:
    """Create a directory, or say in one line why that is not possible."""
    with explained(directory):
        directory.mkdir(parents=True, exist_ok=True)


def require_free(directory: Path, mebibytes: int, purpose: str) -> None:
    """Refuse to begin what would fill the disk half-way."""
    free = shutil.disk_usage(directory).free // MIB
    if free < mebibytes:
        raise MachineError(
            f"not enough disk space: {purpose} needs {mebibytes} MB in {directory}, {free} MB are free. "
            "Free some space or choose another directory."
        )


@contextmanager
def explained(directory: Path) -> Iterator[None]:
    """Turn what the file system answers into one line that names the directory."""
    try:
        yield
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise MachineError(f"disk full while writing to {directory}: free some space and try again") from error
        raise MachineError(f"cannot write to {directory}: {error.strerror or error}") from error
