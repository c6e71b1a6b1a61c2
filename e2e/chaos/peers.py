"""Which process is at the other end of a TCP connection on this machine? Linux only."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

_SOCKETS = Path("/proc/net/tcp")


def owner_of(port: int, connected_to: int, processes: Mapping[int, str]) -> str | None:
    """The name of that one of `processes` (by process id) whose socket is bound to `port`; None if it is gone."""
    inode = _inode(port, connected_to)
    if inode is None:
        return None
    wanted = f"socket:[{inode}]"
    return next((name for pid, name in processes.items() if _has_open(pid, wanted)), None)


def _inode(port: int, connected_to: int) -> str | None:
    ends = f":{port:04X}", f":{connected_to:04X}"
    for line in _SOCKETS.read_text().splitlines()[1:]:
        fields = line.split(maxsplit=10)
        if fields[1].endswith(ends[0]) and fields[2].endswith(ends[1]):
            return fields[9]
    return None


def _has_open(pid: int, target: str) -> bool:
    try:
        with os.scandir(f"/proc/{pid}/fd") as descriptors:
            return any(_link(Path(descriptor.path)) == target for descriptor in descriptors)
    except OSError:
        return False


def _link(path: Path) -> str:
    try:
        return str(path.readlink())
    except OSError:
        return ""
