"""The peak memory of this process and all that it has started: Java, and Spark's Python workers."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Self

_LOOK_SECONDS = 0.5
_KIBIBYTES = 1024


class PeakMemory:
    """Looks now and then, while the block runs."""

    def __init__(self) -> None:
        self.peak_mebibytes = 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._stopped.wait(_LOOK_SECONDS):
            spark = [each for each in _descendants(os.getpid()) if not _is_broker(each)]
            self.peak_mebibytes = max(self.peak_mebibytes, sum(map(_resident, spark)) // _KIBIBYTES)


def _descendants(root: int) -> list[int]:
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            parents.setdefault(_field(int(entry.name), "PPid"), []).append(int(entry.name))
    found, waiting = [], [root]
    while waiting:
        pid = waiting.pop()
        found.append(pid)
        waiting += parents.get(pid, [])
    return found


def _is_broker(pid: int) -> bool:
    try:
        return b"kafka.Kafka" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _resident(pid: int) -> int:
    return _field(pid, "VmRSS")


def _field(pid: int, name: str) -> int:
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1])
    except OSError:
        pass
    return 0
