"""`python -m e2e.cluster build|up|down|run COMMAND…`."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from signal import SIGTERM

from e2e.cluster import Cluster
from e2e.cluster.building import build, place
from eventbus.errors import EventBusError, MachineError
from eventbus.jvm.places import make_directory
from sensors.sensor import stop_signals

_USAGE = """python -m e2e.cluster …
  build          fetch and compile what is not there yet
  up             start a cluster in the background, and say where its kubeconfig is
  down           stop it
  run COMMAND…   run a command with KUBECONFIG of a cluster that is there for it alone"""
_PATIENCE = 120.0
_KEEP = "keep"
"""How the process is called that keeps the cluster in the background."""


def main(arguments: list[str]) -> int:
    match arguments:
        case ["build"]:
            print(f"built: {build().kubernetes}")
        case ["up"]:
            print(f"export KUBECONFIG={_up()}")
        case ["down"]:
            _down()
        case ["run", *command] if command:
            return _run(command)
        case [keep] if keep == _KEEP:
            _keep()
        case _:
            print(_USAGE, file=sys.stderr)
            return 2
    return 0


def _run(command: list[str]) -> int:
    build()
    with Cluster() as cluster:
        environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}
        return subprocess.run(command, env=environment, check=False).returncode


# --- in the background ----------------------------------------------------------------------------------------------


def _up() -> str:
    build()
    if _keeper() is not None:
        raise MachineError("a cluster is running already: python -m e2e.cluster down")
    _kubeconfig_file().unlink(missing_ok=True)
    log = place() / "keeper.log"
    with log.open("wb") as file:
        keeper = subprocess.Popen(
            [sys.executable, "-m", "e2e.cluster", _KEEP],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    end = time.monotonic() + _PATIENCE
    while not _kubeconfig_file().exists():
        if keeper.poll() is not None or time.monotonic() > end:
            raise MachineError(f"the cluster did not start: {log.read_text().strip()[-500:]}")
        time.sleep(0.1)
    return _kubeconfig_file().read_text()


def _down() -> None:
    keeper = _keeper()
    if keeper is None:
        raise MachineError("no cluster is running")
    os.kill(keeper, SIGTERM)
    end = time.monotonic() + _PATIENCE
    while _keeper() is not None:
        if time.monotonic() > end:
            raise MachineError(f"the cluster does not stop; its process is {keeper}")
        time.sleep(0.1)


def _keep() -> None:
    make_directory(place())
    with stop_signals() as stop, _lock_file().open("a+b") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        lock.truncate(0)
        lock.write(str(os.getpid()).encode())
        lock.flush()
        with Cluster() as cluster:
            unfinished = _kubeconfig_file().with_suffix(".new")
            unfinished.write_text(str(cluster.kubeconfig))
            unfinished.rename(_kubeconfig_file())
            stop.wait()
        _kubeconfig_file().unlink()


def _keeper() -> int | None:
    """The process that holds the lock."""
    with suppress(FileNotFoundError), _lock_file().open("rb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return int(lock.read())
    return None


def _lock_file() -> Path:
    return place() / "keeper.lock"


def _kubeconfig_file() -> Path:
    return place() / "keeper.kubeconfig-path"


if __name__ == "__main__":
    try:
        code = main(sys.argv[1:])
    except EventBusError as error:
        print(error, file=sys.stderr)
        code = error.exit_code
    sys.exit(code)
