"""Where the embedded broker keeps things on this machine, and what happens when there is no room.

=================== ======================== =================================================================
what                set by                   default
=================== ======================== =================================================================
jars                `EVENTBUS_CACHE_DIR`     the user's cache directory, `kafka-eventbus`; may be deleted any time
data, state, log    `EVENTBUS_DATA_DIR`      the user's data directory, `kafka-eventbus`; survives restarts
=================== ======================== =================================================================
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from platformdirs import user_cache_path, user_data_path

from eventbus.broker.errors import BrokerError

KAFKA_VERSION = "4.3.1"
MIB = 1024 * 1024


def jar_directory() -> Path:
    """The directory that holds the jars of the Kafka version we run."""
    return _from_environment("EVENTBUS_CACHE_DIR", user_cache_path("kafka-eventbus")) / f"kafka-{KAFKA_VERSION}"


def home_directory() -> Path:
    """The directory that holds everything about this user's own broker."""
    return _from_environment("EVENTBUS_DATA_DIR", user_data_path("kafka-eventbus")) / "broker"


def _from_environment(variable: str, default: Path) -> Path:
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
        raise BrokerError(
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
            raise BrokerError(f"disk full while writing to {directory}: free some space and try again") from error
        raise BrokerError(f"cannot write to {directory}: {error.strerror or error}") from error
