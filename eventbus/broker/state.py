"""Which broker this user runs, so that every other command finds it, and whether that is still true.

    broker.lock     locked by the process that runs the broker, for as long as it lives
    broker.json     where the broker is; written when it is ready, removed when it stops

The lock is what tells a running broker from a stale file: unlike a process id it cannot outlive its process, and no
other process can come to have it by chance.
"""

from __future__ import annotations

import fcntl
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import msgspec

from eventbus.broker.errors import BrokerError
from eventbus.broker.places import home_directory
from eventbus.jvm.places import explained, make_directory

BUSY = "a broker is just being started or stopped: try again in a moment"
CLAIM_SECONDS = 1.0
LOOK_SECONDS = 0.05

_log = logging.getLogger(__name__)


class NodeState(msgspec.Struct, frozen=True):
    """One node of the running broker."""

    number: int
    port: int
    pid: int | None
    """None when it has ended."""
    log: str


class Instance(msgspec.Struct, frozen=True):
    """The running broker."""

    pid: int
    started: str
    bootstrap_servers: str
    data: str
    ephemeral: bool
    nodes: tuple[NodeState, ...]


@contextmanager
def claimed() -> Iterator[None]:
    """Be the one process that runs this user's broker; whatever a predecessor published is void."""
    home = home_directory()
    make_directory(home)
    with explained(home):
        lock = _lock_file().open("w")
    with lock:
        _claim(lock)
        _state_file().unlink(missing_ok=True)
        try:
            yield
        finally:
            _state_file().unlink(missing_ok=True)


def publish(instance: Instance) -> None:
    """Let others find the broker. Only for who has claimed it."""
    draft = _state_file().with_suffix(".tmp")
    with explained(draft.parent):
        draft.write_bytes(msgspec.json.encode(instance))
        draft.replace(_state_file())


def running_instance(warn: Callable[[str], None] = _log.warning) -> Instance | None:
    """Return the broker that runs, if one does. A stale file is removed, and `warn` told about it."""
    file = _state_file()
    try:
        instance = msgspec.json.decode(file.read_bytes(), type=Instance)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        reason = f"it cannot be read: {error}"
    else:
        if is_claimed():
            return instance
        reason = f"its broker, process {instance.pid}, ended without cleaning up"
    file.unlink(missing_ok=True)
    warn(f"removed the stale state file {file}: {reason}")
    return None


def default_bootstrap_servers() -> str | None:
    """Return the address of the broker that `eventbus broker start` or `run` has running, None if there is none."""
    instance = running_instance()
    return instance.bootstrap_servers if instance else None


def is_claimed() -> bool:
    """Tell whether some process runs, starts or stops this user's broker."""
    try:
        with _lock_file().open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def wait_until_free(seconds: float) -> bool:
    """Wait until no process has the broker any more; False if the time is up before."""
    deadline = time.monotonic() + seconds
    while is_claimed():
        if time.monotonic() > deadline:
            return False
        time.sleep(LOOK_SECONDS)
    return True


def _claim(lock: IO[str]) -> None:
    deadline = time.monotonic() + CLAIM_SECONDS
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:  # not just someone who looks
                raise BrokerError(_already()) from None
            time.sleep(LOOK_SECONDS)
        else:
            return


def _already() -> str:
    if instance := running_instance():
        return (
            f"a broker already runs at {instance.bootstrap_servers} (process {instance.pid}, data in {instance.data}): "
            "use that one, or end it with `eventbus broker stop`"
        )
    return BUSY


def _lock_file() -> Path:
    return home_directory() / "broker.lock"


def _state_file() -> Path:
    return home_directory() / "broker.json"
