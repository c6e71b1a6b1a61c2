"""A guarded command ends when whoever asked for it is gone, however that one ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eventbus.broker.node import GUARD

SLEEPER = ["sleep", "1000"]


class Guarded:
    """A command under a guard. Its output stays open for as long as the guard or the command lives."""

    def __init__(self, owner: list[str], remove: Path | None) -> None:
        receiver, sender = os.pipe()
        self.process = subprocess.Popen(
            [*owner, sys.executable, "-I", "-S", GUARD, str(remove or ""), *SLEEPER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=sender,
        )
        os.close(sender)
        self.output = os.fdopen(receiver, "rb")
        assert self.process.stdout
        self.pid = int(self.process.stdout.readline())

    def wait_for_the_end_of_all(self) -> None:
        assert self.output.read() == b""


@pytest.fixture
def guarded() -> Iterator[Callable[..., Guarded]]:
    made: list[Guarded] = []

    def make(owner: list[str] | None = None, remove: Path | None = None) -> Guarded:
        made.append(Guarded(owner or [], remove))
        return made[-1]

    yield make
    for each in made:
        each.output.close()
        with each.process as process:
            process.kill()


def test_the_command_dies_when_the_owner_closes_the_pipe(guarded: Callable[..., Guarded]) -> None:
    command = guarded()
    assert command.process.stdin
    command.process.stdin.close()
    command.wait_for_the_end_of_all()


def test_the_command_dies_when_its_owner_is_killed_though_a_child_of_the_owner_keeps_the_pipe(
    guarded: Callable[..., Guarded],
) -> None:
    """A process that the owner forked inherits its end of the pipe; the guard also watches its parent."""
    owner = [sys.executable, "-c", "import subprocess, sys; sys.exit(subprocess.call(sys.argv[1:]))"]
    command = guarded(owner)  # this test holds the pipe
    command.process.kill()
    command.wait_for_the_end_of_all()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process with its parent")
def test_the_command_dies_when_its_guard_is_killed(guarded: Callable[..., Guarded]) -> None:
    command = guarded()
    command.process.kill()
    command.wait_for_the_end_of_all()


def test_a_termination_is_passed_on(guarded: Callable[..., Guarded]) -> None:
    command = guarded()
    command.process.terminate()
    assert command.process.wait() != 0
    command.wait_for_the_end_of_all()


def test_the_last_guard_removes_what_was_only_for_its_owner(guarded: Callable[..., Guarded], tmp_path: Path) -> None:
    data = tmp_path / "data"
    for number in (1, 2):
        (data / f"node-{number}" / "data").mkdir(parents=True)
    (data / "kafka.json").touch()
    first, second = guarded(remove=data / "node-1"), guarded(remove=data / "node-2")

    assert first.process.stdin
    first.process.stdin.close()
    first.wait_for_the_end_of_all()
    assert not (data / "node-1").exists()
    assert (data / "kafka.json").exists()

    assert second.process.stdin
    second.process.stdin.close()
    second.wait_for_the_end_of_all()
    assert not data.exists()


def test_a_command_that_is_killed_leaves_its_data(guarded: Callable[..., Guarded], tmp_path: Path) -> None:
    node = tmp_path / "data" / "node-1"
    node.mkdir(parents=True)
    command = guarded(remove=node)
    os.kill(command.pid, signal.SIGKILL)
    command.wait_for_the_end_of_all()
    assert node.exists()
