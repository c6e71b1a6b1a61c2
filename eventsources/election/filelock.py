"""An election on one machine without Kubernetes: who holds the lock on a file leads.

The kernel keeps the lock and takes it from a process that dies, however it dies. A paused process keeps it, so a term
ends with `close` or with the process and in no other way; a child that was forked while it led keeps it too. The file
counts the terms; it is never deleted, and it is kept among the user's state because a directory that is cleared at
logout would leave running processes without it.
"""

from __future__ import annotations

import fcntl
import logging
import os
import threading
from contextlib import suppress
from pathlib import Path

from platformdirs import user_state_path

from eventbus.errors import MachineError
from eventbus.names import check_name
from eventsources.election.ports import Stop

log = logging.getLogger("eventbus.election")

_RETRY_SECONDS = 0.5
_SIZE = 64
"""Of what the file holds. Always the same, so that one write replaces all of it."""


class FileElection:
    """An `Election` by lock file, among all processes of this user that name the same directory. Thread-safe."""

    def __init__(self, name: str, namespace: str, directory: Path | None = None) -> None:
        check_name("event source", name)
        check_name("namespace", namespace)
        self._name = f"{namespace}/eventsource-{name}"
        folder = (directory or user_state_path("kafka-eventbus") / "elections") / namespace
        self._path = folder / f"eventsource-{name}.lock"
        self._guard = threading.Lock()
        self._lock: int | None = None
        self._term: int | None = None
        self._closed = False

    def wait_until_leading(self, stop: Stop) -> int | None:
        """The term that has begun, or that is under way; None when `stop` was set or the election was closed.

        Raises `MachineError` when the lock file cannot be used.
        """
        told = ""
        while not (stop.is_set() or self._closed):
            holder = self._attempt()
            if self._term is not None:
                return self._term
            if holder not in ("", told):
                log.info("%s: led by process %s", self._name, holder)
                told = holder
            stop.wait(_RETRY_SECONDS)
        return None

    @property
    def leading(self) -> bool:
        """Whether we hold the lock."""
        return self._term is not None

    @property
    def term(self) -> int | None:
        """The number of our term while we lead, greater than that of every leader before."""
        return self._term

    def close(self) -> None:
        """Leave the lock to the next process."""
        with self._guard:
            self._closed = True
            term, self._term = self._term, None
            if self._lock is not None:
                os.close(self._lock)
                self._lock = None
                log.info("%s: term %d given up by process %d", self._name, term, os.getpid())

    def _attempt(self) -> str:
        """Take the lock if it is free; return the process that holds it."""
        with self._guard:
            if self._closed or self._lock is not None:
                return str(os.getpid())
            try:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
            except OSError as error:
                raise MachineError(f"the lock file {self._path} cannot be opened: {error.strerror}") from None
            with suppress(BlockingIOError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._begin_term(descriptor)
                return str(os.getpid())
            holder = _read(descriptor)[1]
            os.close(descriptor)
            return holder

    def _begin_term(self, descriptor: int) -> None:
        try:
            term = int(_read(descriptor)[0]) + 1
        except ValueError:
            os.close(descriptor)
            raise MachineError(f"the lock file {self._path} is damaged: delete it while nothing uses it") from None
        os.pwrite(descriptor, f"{term} {os.getpid()}".ljust(_SIZE).encode(), 0)
        os.fsync(descriptor)
        self._lock, self._term = descriptor, term
        log.info("%s: led by process %d (this one) in term %d", self._name, os.getpid(), term)


def _read(descriptor: int) -> tuple[str, str]:
    """The last term, and the process that led it."""
    term, _, process = os.pread(descriptor, _SIZE, 0).decode(errors="replace").strip().partition(" ")
    return term or "0", process
