"""Where actions run: worker threads beside the loop, which only ever sees their outcomes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from queue import Empty, SimpleQueue
from threading import Semaphore, Thread
from typing import Protocol, TypeAlias

Completion: TypeAlias = Callable[[], None]


class Executor(Protocol):
    """Runs work elsewhere and hands its completion back to the loop's own thread."""

    def submit(self, work: Callable[[], Completion]) -> None:
        """Run `work` elsewhere; what it returns is returned by a later `completions`."""

    def completions(self, timeout: float) -> list[Completion]:
        """What has been completed; waits up to `timeout` seconds for the first."""

    def close(self) -> None:
        """Accept no more work. What still runs is left to itself."""


class ThreadExecutor:
    """The real one.

    Not the standard library's pool, which lets no process end before its threads have: an action that hangs would
    keep a stopped replica alive. These are daemons, and die with the process.
    """

    def __init__(self, workers: int, name: str) -> None:
        self._workers = workers
        self._name = name
        self._started = 0
        self._idle = Semaphore(0)
        self._work: SimpleQueue[Callable[[], Completion] | None] = SimpleQueue()
        self._done: SimpleQueue[Completion] = SimpleQueue()

    def submit(self, work: Callable[[], Completion]) -> None:
        self._work.put(work)
        if not self._idle.acquire(blocking=False) and self._started < self._workers:
            self._started += 1
            serve = partial(copy_context().run, self._serve)  # what the loop's log lines carry, ours carry, too
            Thread(target=serve, name=f"{self._name}-{self._started}", daemon=True).start()

    def completions(self, timeout: float) -> list[Completion]:
        found: list[Completion] = []
        try:
            if timeout > 0:
                found.append(self._done.get(timeout=timeout))
            while True:
                found.append(self._done.get_nowait())
        except Empty:
            return found

    def close(self) -> None:
        with suppress(Empty):
            while True:
                self._work.get_nowait()
        for _ in range(self._started):
            self._work.put(None)

    def _serve(self) -> None:
        while (work := self._work.get()) is not None:
            self._done.put(work())
            self._idle.release()
