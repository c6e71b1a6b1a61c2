"""Scripts run in another process, because nothing else can bound them.

Neither libjq nor the functions of Lua's library can be interrupted from Python, and one jq program of eight characters
loops for ever, another one doubles its output with every second character. So a *worker* runs them: the kernel limits
its memory and the processor time of every request, and kills it when that is exceeded; the event is then rejected and
the next one gets a new worker. Processor time, not wall-clock time: a busy machine does not change what a sensor does.

A worker has an empty environment, and scripts neither files nor time nor anything random, so that a replay of the log
gives the same. It is started with the first event that needs it and ends with its host, or when its host dies.
"""

from __future__ import annotations

import re
import struct
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from functools import lru_cache, partial
from importlib.util import find_spec
from pathlib import Path
from signal import SIGPROF
from typing import IO

import msgspec

from sensors.filters.candidate import ScriptError

CPU_SECONDS = 1.0
MAX_SOURCE = 16_384
_WORKER = Path(__file__).with_name("worker.py")
_LENGTH = struct.Struct(">I")
_PACKAGES = {"lua": "lupa", "jq": "jq"}
_PLACE = re.compile(r" in line (?P<line>\d+)(?:, column (?P<column>\d+))?")


class Complaint(msgspec.Struct, frozen=True):
    """Why a script cannot be used, and which of its characters is to blame, if that is known."""

    message: str
    index: int | None = None


@lru_cache(maxsize=256)
def check_script(language: str, source: str) -> Complaint | None:
    """What is wrong with a script of a manifest."""
    package = _PACKAGES[language]
    if find_spec(package) is None:
        return Complaint(f"this needs the package `{package}`: install `kafka-eventbus[scripts]`")
    if len(source) > MAX_SOURCE:
        return Complaint(f"must not be longer than {MAX_SOURCE:,} characters")
    host = ScriptHost()
    try:
        host.ask(f"check-{language}", source, b"")
    except ScriptError as error:
        return _complaint(str(error), source)
    finally:
        host.close()
    return None


def _complaint(message: str, source: str) -> Complaint:
    """Lua knows the line, jq also the column."""
    place = _PLACE.search(message)
    if place is None:
        return Complaint(message)
    before = source.splitlines(keepends=True)[: int(place["line"]) - 1]
    column = int(place["column"] or 1)
    index = sum(map(len, before)) + column - 1
    return Complaint(message[: place.start()], index if index < len(source) else None)


class ScriptHost:
    """Runs scripts, one at a time."""

    def __init__(self, cpu_seconds: float = CPU_SECONDS) -> None:
        self._cpu_seconds = cpu_seconds
        self._workers: list[_Worker] = []
        """The worker, if there is one. A list, so that the finalizer finds the one of that moment."""
        self._lock = threading.Lock()
        self._finalizer = weakref.finalize(self, _stop_all, self._workers)

    def close(self) -> None:
        self._finalizer()

    def lua_filter(self, source: str) -> Callable[[bytes], bool]:
        return lambda data: self.ask("lua-filter", source, data) == b"true"

    def lua_transform(self, source: str) -> Callable[[bytes], bytes]:
        return partial(self.ask, "lua-transform", source)

    def jq_transform(self, source: str) -> Callable[[bytes], bytes]:
        return partial(self.ask, "jq-transform", source)

    def ask(self, task: str, source: str, data: bytes) -> bytes:
        """Raises `ScriptError`."""
        with self._lock:
            if not self._workers:
                self._workers.append(_Worker(self._cpu_seconds))
            [worker] = self._workers
            try:
                succeeded, answer = worker.ask(task.encode(), source.encode(), data)
            except (OSError, EOFError):
                _stop_all(self._workers)
                raise ScriptError(self._obituary(worker)) from None
        if succeeded:
            return answer
        raise ScriptError(answer.decode("utf-8", "replace"))

    def _obituary(self, worker: _Worker) -> str:
        if worker.returncode == -SIGPROF:
            return f"the script took more than {self._cpu_seconds:g} s of processor time"
        return "the script needed too much memory, or crashed"


def _stop_all(workers: list[_Worker]) -> None:
    while workers:
        workers.pop().stop()


class _Worker:
    """The process, and how to talk to it: every message is preceded by its length."""

    def __init__(self, cpu_seconds: float) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", str(_WORKER), str(cpu_seconds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={},
            start_new_session=True,  # Ctrl-C is for the sensor, which finishes what is under way
        )

    @property
    def returncode(self) -> int | None:
        return self._process.returncode

    def ask(self, *parts: bytes) -> tuple[bool, bytes]:
        to, back = self._process.stdin, self._process.stdout
        if to is None or back is None:
            raise EOFError
        to.write(b"".join(_LENGTH.pack(len(part)) + part for part in parts))
        to.flush()
        [length] = _LENGTH.unpack(_exactly(back, _LENGTH.size))
        answer = _exactly(back, length)
        return answer[:1] == b"+", answer[1:]

    def stop(self) -> None:
        self._process.kill()
        self._process.communicate()  # closes the pipes, too


def _exactly(stream: IO[bytes], length: int) -> bytes:
    content = stream.read(length)
    if len(content) < length:
        raise EOFError
    return content
