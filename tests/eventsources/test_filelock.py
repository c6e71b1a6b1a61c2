"""An election by lock file, among real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from eventbus.errors import ConfigError, MachineError
from eventsources.election.filelock import FileElection
from eventsources.election.ports import Election

NEVER = threading.Event()
_PROGRAM = """
import sys, threading
from pathlib import Path
from eventsources.election.filelock import FileElection
election = FileElection("calendar", "shop", Path(sys.argv[1]))
print("waiting", flush=True)
print(election.wait_until_leading(threading.Event()), flush=True)
sys.stdin.read()
election.close()
"""

Start = Callable[[], "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a process that contends, says in which term it leads, and leaves when its input ends."""
    with ExitStack() as stack:

        def begin() -> subprocess.Popen[str]:
            command = [sys.executable, "-c", _PROGRAM, str(tmp_path)]
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            stack.enter_context(process)
            stack.callback(process.kill)
            assert said(process) == "waiting"
            return process

        yield begin


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_the_next_takes_over_when_the_leader_is_killed(start: Start) -> None:
    first = start()
    assert said(first) == "1"
    second = start()
    os.kill(first.pid, signal.SIGKILL)
    assert said(second) == "2"


def test_the_next_takes_over_when_the_leader_leaves(start: Start, tmp_path: Path) -> None:
    first = start()
    assert said(first) == "1"
    election: Election = FileElection("calendar", "shop", tmp_path)
    first.communicate()
    assert election.wait_until_leading(NEVER) == 2
    election.close()


def test_who_waits_says_for_whom_and_can_be_stopped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "eventbus.election")
    leader, other = (FileElection("calendar", "shop", tmp_path) for _ in range(2))
    assert leader.wait_until_leading(NEVER) == leader.wait_until_leading(NEVER) == leader.term == 1
    stop = threading.Event()
    threading.Timer(0.05, stop.set).start()
    assert other.wait_until_leading(stop) is None
    assert (leader.leading, other.leading, other.term) == (True, False, None)
    leader.close()
    leader.close()
    assert (leader.leading, leader.wait_until_leading(NEVER)) == (False, None)
    assert other.wait_until_leading(NEVER) == 2
    other.close()
    me = os.getpid()
    assert caplog.messages == [
        f"shop/eventsource-calendar: led by process {me} (this one) in term 1",
        f"shop/eventsource-calendar: led by process {me}",
        f"shop/eventsource-calendar: term 1 given up by process {me}",
        f"shop/eventsource-calendar: led by process {me} (this one) in term 2",
        f"shop/eventsource-calendar: term 2 given up by process {me}",
    ]


def test_event_sources_and_namespaces_have_locks_of_their_own(tmp_path: Path) -> None:
    names = [("calendar", "shop"), ("mail", "shop"), ("calendar", "till")]
    elections = [FileElection(name, namespace, tmp_path) for name, namespace in names]
    assert [each.wait_until_leading(NEVER) for each in elections] == [1, 1, 1]
    for each in elections:
        each.close()


def test_a_directory_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "shop").write_text("a file")
    with pytest.raises(MachineError, match=r"^the lock file .*/shop/eventsource-calendar.lock cannot be opened: "):
        FileElection("calendar", "shop", tmp_path).wait_until_leading(NEVER)


def test_a_damaged_lock_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / "shop" / "eventsource-calendar.lock"
    file.parent.mkdir()
    file.write_bytes(b"\xff or so")
    with pytest.raises(MachineError, match=r"^the lock file .* is damaged: delete it while nothing uses it$"):
        FileElection("calendar", "shop", tmp_path).wait_until_leading(NEVER)


def test_a_name_cannot_lead_elsewhere(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the event source name `/calendar` is not allowed"):
        FileElection("/calendar", "shop", tmp_path)
