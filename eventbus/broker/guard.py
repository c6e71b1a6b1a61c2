"""Runs one command and ends it when the process that asked for it is gone, however that one ended.

Started as a program by `node.py`, one per node; imports nothing but the standard library, so that it is small. Its
owner holds the other end of its standard input: when that closes (even by SIGKILL), or the parent changes, the command
is killed. Should the guard itself be killed, Linux kills the command (`PR_SET_PDEATHSIG`).

    guard.py REMOVE COMMAND...

REMOVE is a directory to remove when the owner is gone, or empty. The only line of standard output is the command's
process id; all that the command prints goes to standard error. SIGTERM is passed on.
"""

from __future__ import annotations

import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

PR_SET_PDEATHSIG = 1
LOOK_SECONDS = 1.0


def main(remove: str, *command: str) -> int:
    """Run the command until it ends or the owner is gone."""
    owner = os.getppid()
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None

    def die_with_guard() -> None:
        if libc:
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        preexec_fn=die_with_guard,  # noqa: PLW1509 -- safe: this process has but one thread
    )
    signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    orphaned = threading.Event()

    def watch_owner() -> None:
        while os.getppid() == owner:
            if select.select([sys.stdin], [], [], LOOK_SECONDS)[0]:
                break
        orphaned.set()
        child.kill()

    threading.Thread(target=watch_owner, daemon=True).start()
    os.write(sys.stdout.fileno(), b"%d\n" % child.pid)
    code = child.wait()
    if orphaned.is_set() and remove:
        _remove(Path(remove))
    return code


def _remove(directory: Path) -> None:
    """Remove one node's directory, and everything around it if this was the last node."""
    shutil.rmtree(directory, ignore_errors=True)
    if not any(directory.parent.glob("node-*")):
        shutil.rmtree(directory.parent, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
