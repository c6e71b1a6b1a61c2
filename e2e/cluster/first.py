"""The first process of a cluster's namespaces: it buries the dead, and ends with whoever has made it.

Called as a file and not as a module: it needs nothing but Python. Its arguments are directories to be mounted, as
`source:target`. Bytes on its standard input are not read for what they say: that the input ends is what it waits for.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path


def main(mounts: list[str]) -> None:
    subprocess.run(["mount", "--make-rshared", "/"], check=True)  # what kubelet mounts, containers have to see
    for mount in mounts:
        source, _, target = mount.partition(":")
        for directory in (source, target):
            Path(directory).mkdir(parents=True, exist_ok=True)
        subprocess.run(["mount", "--bind", source, target], check=True)
    signal.signal(signal.SIGCHLD, _bury)
    _bury()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while os.read(sys.stdin.fileno(), 1024):
        pass


def _bury(*_: object) -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


if __name__ == "__main__":
    main(sys.argv[1:])
