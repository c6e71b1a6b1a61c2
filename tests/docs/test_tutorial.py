"""The tutorial, as a reader works through it: an empty folder, two terminals, an embedded broker."""

from __future__ import annotations

import doctest
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from eventbus.clock import Deadline, SystemClock
from tests.docs.pages import ROOT, Block, blocks

PAGE = ROOT / "docs/tutorial.md"
PATIENCE = 40.0
LOOKS = ("eventbus state", "eventbus dlq list")
"""Commands that change nothing. A reader who is faster than the sensor repeats them."""


class SecondTerminal:
    """Where the sensor runs, one at a time. What it prints is read as it comes."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._folder = folder
        self._environment = environment
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self._lines: list[str] = []
        self._changed = threading.Condition()

    def run(self, command: str) -> None:
        """Stop the sensor that runs, if any, and start another; returns when that is ready."""
        self.stop()
        self._lines.clear()
        self._process = subprocess.Popen(
            ["bash", "-c", f"exec {command}"],
            cwd=self._folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, args=(self._process,))
        self._reader.start()
        self.wait_for_line("... is ready, slot 0")

    def stop(self) -> None:
        """Ctrl-C; a sensor then ends in order."""
        if self._process is None or self._reader is None:
            return
        self._process.send_signal(signal.SIGINT)
        self._reader.join(PATIENCE)
        assert self._process.wait(PATIENCE) == 0, self._lines
        self._process = None

    def close(self) -> None:
        """Leave nothing behind, whatever happened."""
        if self._process is not None and self._reader is not None:
            self._process.kill()
            self._process.wait()
            self._reader.join()

    def wait_for_line(self, expected: str) -> None:
        with self._changed:
            seen = self._changed.wait_for(lambda: any(_matches(expected, line) for line in self._lines), PATIENCE)
        assert seen, "".join(self._lines)

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout as output:
            for line in output:
                with self._changed:
                    self._lines.append(line)
                    self._changed.notify_all()


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    """As in a new shell on a machine where no broker runs; afterwards none runs either."""
    unwanted = ("KAFKA_BOOTSTRAP_SERVERS", "EVENTBUS_NAMESPACE", "EVENTBUS_BUS")
    names = {name: value for name, value in os.environ.items() if name not in unwanted}
    names["PATH"] = f"{Path(sys.executable).parent}:{names['PATH']}"
    names["EVENTBUS_DATA_DIR"] = str(tmp_path / "data")
    names["EVENTBUS_SLOT_DIR"] = str(tmp_path / "slots")
    yield names
    subprocess.run(["eventbus", "broker", "stop"], env=names, capture_output=True, check=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "reader"
    path.mkdir()
    return path


@pytest.fixture
def second_terminal(folder: Path, environment: dict[str, str]) -> Iterator[SecondTerminal]:
    terminal = SecondTerminal(folder, environment)
    yield terminal
    terminal.close()


@pytest.mark.kafka
@pytest.mark.timeout(300)
def test_the_tutorial_works_as_written(
    folder: Path, environment: dict[str, str], second_terminal: SecondTerminal
) -> None:
    steps = blocks(PAGE)
    for step, following in zip(steps, [*steps[1:], None], strict=True):
        match step.info.split():
            case ["yaml" | "json", file]:
                (folder / file).write_text(step.text)
            case ["sh"]:
                if step.text.startswith("eventbus broker stop"):
                    second_terminal.stop()
                expected = following.text if following is not None and following.info == "text" else None
                _run(step, expected, folder, environment)
            case ["sh", "terminal", "2"]:
                second_terminal.run(step.text)
            case ["text", "terminal", "2"]:
                second_terminal.wait_for_line(step.text)
            case ["text"]:
                pass  # it was compared when the command before it ran
            case _:
                pytest.fail(f"line {step.line}: the test does not know what to do with a `{step.info}` block")


def _run(step: Block, expected: str | None, folder: Path, environment: dict[str, str]) -> None:
    deadline = Deadline(SystemClock(), PATIENCE)
    while True:
        ran = subprocess.run(
            ["bash", "-ec", step.text], cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        assert ran.returncode == 0, f"line {step.line}: {ran.stdout}{ran.stderr}"
        if expected is None or _matches(expected, ran.stdout):
            return
        if not step.text.startswith(LOOKS) or deadline.over():
            pytest.fail(f"line {step.line}: `{step.text.strip()}` printed\n{ran.stdout}{ran.stderr}")


def _matches(expected: str, actual: str) -> bool:
    """`...` stands for anything; how wide a column is does not matter."""
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    return doctest.OutputChecker().check_output(expected.strip(), actual.strip(), flags)
