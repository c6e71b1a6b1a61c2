"""Processes that see only each other, and of which none outlives the first one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from eventbus.errors import MachineError

_FIRST = Path(__file__).with_name("first.py")
_PATIENCE = 20.0


class Namespaces:
    """A pid and a mount namespace. Its processes end with `close`, or with the process that has made it."""

    def __init__(self, mounts: Mapping[Path, Path], log: Path) -> None:
        """`mounts` says by source which directories are put in the place of others."""
        command = ["unshare", "--pid", "--mount", "--fork", "--kill-child", "--mount-proc", sys.executable, str(_FIRST)]
        self._started: list[Process] = []
        command += [f"{source}:{target}" for source, target in mounts.items()]
        with log.open("ab") as file:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file, start_new_session=True
            )
        assert self._process.stdout is not None
        if self._process.stdout.readline() != b"ready\n":
            self.close()
            raise MachineError(f"this machine lets us make no namespaces: {log.read_text().strip()[-300:]}")

    def start(self, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None) -> Process:
        started = Process(self._process.pid, command, log, {**os.environ, **(environment or {})})
        self._started.append(started)
        return started

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        for each in self._started:
            each.wait()


class Process:
    """In the namespaces of another process; seen from outside."""

    def __init__(self, owner: int, command: Sequence[str], log: Path, environment: Mapping[str, str]) -> None:
        entered = [f"--mount=/proc/{owner}/ns/mnt", f"--pid=/proc/{owner}/ns/pid_for_children"]
        with log.open("ab") as file:
            self._process = subprocess.Popen(
                ["nsenter", *entered, "--", *command],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )

    def ended(self) -> bool:
        return self._process.poll() is not None

    def wait(self) -> int:
        return self._process.wait()

    def end(self, number: signal.Signals) -> None:
        """The process that we have started is its parent, and passes no signals on."""
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        for child in children.read_text().split():
            os.kill(int(child), number)
        self._process.wait()
