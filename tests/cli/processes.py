"""`eventbus` as a process of its own, for tests in which signals matter."""

from __future__ import annotations

import subprocess
import sys
import threading
from types import TracebackType
from typing import IO, Self

_SECONDS = 60


class Program:
    """A running command. Its lines can be waited for; it does not outlive the block."""

    def __init__(self, *arguments: object) -> None:
        command = [sys.executable, "-m", "eventbus", *map(str, arguments)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.out: list[str] = []
        self.err: list[str] = []
        self._changed = threading.Condition()
        self._open = 2
        self._readers = [
            threading.Thread(target=self._collect, args=(stream, lines))
            for stream, lines in ((self.process.stdout, self.out), (self.process.stderr, self.err))
        ]
        for reader in self._readers:
            reader.start()

    def wait_for(self, text: str, seconds: float = _SECONDS) -> str:
        """The first line, of either stream, that contains this text."""
        with self._changed:
            found = self._changed.wait_for(lambda: self._find(text) or not self._open, seconds)
        line = self._find(text)
        assert found, f"no {text!r} within {seconds} s: {self.out} {self.err}"
        assert line is not None, f"ended without {text!r}: {self.out} {self.err}"
        return line

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def end(self, seconds: float = _SECONDS) -> int:
        """Wait for the end; returns the exit code."""
        code = self.process.wait(seconds)
        for reader in self._readers:
            reader.join()
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.end()

    def _find(self, text: str) -> str | None:
        return next((line for line in [*self.out, *self.err] if text in line), None)

    def _collect(self, stream: IO[str], lines: list[str]) -> None:
        with stream:
            for line in stream:
                with self._changed:
                    lines.append(line.rstrip("\n"))
                    self._changed.notify_all()
        with self._changed:
            self._open -= 1
            self._changed.notify_all()
