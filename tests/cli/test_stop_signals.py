"""Whoever is told to stop does, whatever it is in the middle of."""

from __future__ import annotations

import subprocess
import sys

_INTERRUPTED = """
import signal
from sensors.sensor import stop_signals

with stop_signals() as stopped:
    with stopped._cond:  # as in the middle of `wait`
        signal.raise_signal(signal.SIGTERM)
    assert stopped.wait(30)
    signal.raise_signal(signal.SIGINT)  # of which nobody wants to hear any more
with stop_signals() as stopped:
    assert not stopped.is_set()
"""


def test_a_signal_that_interrupts_the_wait_for_it_ends_the_wait() -> None:
    program = [sys.executable, "-c", _INTERRUPTED]
    done = subprocess.run(program, timeout=60, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
