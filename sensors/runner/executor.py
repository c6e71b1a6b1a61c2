"""Where actions run: worker threads beside the loop, which only ever sees their outcomes."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from queue import Empty, SimpleQueue
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
    """The real one."""

    def __init__(self, workers: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix=name)
        self._done: SimpleQueue[Completion] = SimpleQueue()

    def submit(self, work: Callable[[], Completion]) -> None:
        self._pool.submit(lambda: self._done.put(work()))

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
        self._pool.shutdown(wait=False, cancel_futures=True)
