"""The controller, as a process of this machine that can be killed and started again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Self

from e2e.chaos.fleet import ROOT
from e2e.cluster.image import PROJECT


class ControllerProcess:
    """Looks after one namespace, in which its lease is, too."""

    def __init__(self, kubeconfig: Path, namespace: str, log: Path) -> None:
        self._command = [sys.executable, "-m", "eventbus", "controller", "--image", PROJECT, "--only", namespace]
        self._environment = {"KUBECONFIG": str(kubeconfig), "EVENTBUS_NAMESPACE": namespace, "PYTHONPATH": str(ROOT)}
        self._log = log
        self._process = self._start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def kill_and_start_again(self) -> None:
        self.kill()
        self._process = self._start()

    def kill(self) -> None:
        """SIGKILL, in the middle of whatever it was doing."""
        self._process.kill()
        self._process.wait()

    def _start(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [*self._command, "--log-format", "json"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=ROOT,
                env={**os.environ, **self._environment},
            )
