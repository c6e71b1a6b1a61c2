"""How much memory a process uses; small enough not to be a dependency."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path


def resident_bytes(pid: int) -> int | None:
    """Return what a process holds in memory, None if it is gone or nobody can tell."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return _asked_of_ps(pid)


def _asked_of_ps(pid: int) -> int | None:
    """What systems without /proc offer."""
    if not shutil.which("ps"):
        return None
    answer = subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return int(answer.stdout) * 1024 if answer.stdout.strip() else None
