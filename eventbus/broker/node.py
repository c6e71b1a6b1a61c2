"""One Kafka node: a Java process under a guard that ends it when we are gone.

node-1/
    server.properties, controller.properties
                        written at every start: ports may change
    formatted           present when Kafka has prepared `data`
    data/               Kafka's own
    server.log          what Kafka logs, rolled at 10 MB
    controller.log      what it has logged when its controller ran alone last
    console.log         what Java itself printed since the last start
    tmp/                native libraries that Java unpacks
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, cast

import msgspec

from eventbus.broker.config import (
    Further,
    NodeAddress,
    controller_properties,
    nothing_further,
    server_properties,
)
from eventbus.broker.errors import BrokerError
from eventbus.jvm.places import explained

JVM_FLAGS = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-Djava.awt.headless=true")
GUARD = Path(__file__).with_name("guard.py")
LOG4J = Path(__file__).with_name("log4j2.properties")
LAST_LINES = 12
LINE_LENGTH = 300
_ACTIVE = "Becoming the active controller"
_REGISTRATION = re.compile(r"Replayed .*brokerId=(\d+), .*\bfenced=(true|false|1|-1)\b")
"""What a controller logs of every broker when it reads its own log, and of every change."""
_FENCED = frozenset(("true", "1"))


class Runtime(msgspec.Struct, frozen=True):
    """What runs a node: a Java and Kafka's jars."""

    java: Path
    jars: Sequence[Path]

    def command(self, node: Path, log: Path, main_class: str, *arguments: str | Path) -> list[str]:
        """Return the command line that runs one of Kafka's programs for the node in this directory."""
        return [
            str(self.java),
            *JVM_FLAGS,
            f"-Djava.io.tmpdir={node / 'tmp'}",
            f"-Deventbus.log={log}",
            f"-Dlog4j2.configurationFile={LOG4J.as_uri()}",
            "-cp",
            os.pathsep.join(map(str, self.jars)),
            main_class,
            *map(str, arguments),
        ]


class Node:
    """One node and, while it runs, its process."""

    def __init__(self, address: NodeAddress, directory: Path, runtime: Runtime, *, temporary: bool) -> None:
        """Describe the node; the other methods bring it to life. A temporary one is removed even if we are killed."""
        self.address = address
        self.directory = directory
        self.log_file = directory / "server.log"
        self.console_file = directory / "console.log"
        self.pid = 0
        """The Java process that runs or ran last; 0 before there was one."""
        self._runtime = runtime
        self._temporary = temporary
        self._properties = directory / "server.properties"
        self._controller_properties = directory / "controller.properties"
        self._data = directory / "data"
        self._formatted = directory / "formatted"
        self._controller_log = directory / "controller.log"
        self._log, self._log_start = self.log_file, 0
        self._guard: subprocess.Popen[bytes] | None = None

    def prepare(self, cluster: Sequence[NodeAddress], further: Further = nothing_further) -> None:
        """Write what the node reads at its start."""
        described = self.address, cluster, self._data, further
        with explained(self.directory):
            self.directory.mkdir(exist_ok=True)
            shutil.rmtree(self.directory / "tmp", ignore_errors=True)
            (self.directory / "tmp").mkdir()
            self._properties.write_text(server_properties(*described), "ascii")
            self._controller_properties.write_text(controller_properties(*described), "ascii")

    def format(self, cluster_id: str) -> None:
        """Let Kafka prepare the data of a new node. What an interrupted attempt left is dropped: it held nothing."""
        if self._formatted.exists():
            return
        shutil.rmtree(self._data, ignore_errors=True)
        arguments = ("kafka.tools.StorageTool", "format", "--cluster-id", cluster_id, "--config", self._properties)
        with explained(self.directory), self.console_file.open("wb") as console:
            formatted = subprocess.run(
                self._runtime.command(self.directory, self.log_file, *arguments),
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                env=_environment(),
                check=False,
            )
            if formatted.returncode == 0:
                self._formatted.touch()
        if formatted.returncode != 0:
            raise BrokerError(f"Kafka could not prepare its data. {self.last_words()}")

    def start(self, lock: int, *, controller_only: bool = False) -> None:
        """Start the process; its guard keeps the file descriptor `lock` open until the process has ended."""
        self.pid = 0
        if controller_only:
            self._controller_log.unlink(missing_ok=True)  # read as a whole, while it grows: it must not be rolled
        self._log = self._controller_log if controller_only else self.log_file
        self._log_start = _size(self._log)
        remove = self.directory if self._temporary else ""
        properties = self._controller_properties if controller_only else self._properties
        command = self._runtime.command(self.directory, self._log, "kafka.Kafka", properties)
        with explained(self.directory), self.console_file.open("wb") as console:
            self._guard = subprocess.Popen(
                [sys.executable, "-I", "-S", GUARD, remove, *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=console,
                pass_fds=(lock,),
                start_new_session=True,  # Ctrl-C in a terminal is ours to handle: it must not reach the nodes first
                env=_environment(),
            )
        try:
            self.pid = int(cast("IO[bytes]", self._guard.stdout).readline() or 0)
        finally:
            if not self.pid:
                self._abandon(self._guard)
        if not self.pid:
            raise BrokerError(f"{self._runtime.java} could not be started. {self.last_words()}")

    def was_killed(self) -> bool:
        """Tell whether it has run before, and had no time to stop."""
        return (self._data / "__cluster_metadata-0").exists() and not (self._data / ".kafka_cleanshutdown").exists()

    def is_active_controller(self) -> bool:
        """Tell whether it has read all that the controllers know, and leads them."""
        return any(_ACTIVE in line for line in _lines(self._log, self._log_start))

    def brokers(self) -> dict[str, bool]:
        """The brokers that its controller has read of, and whether it takes them for alive."""
        found = filter(None, map(_REGISTRATION.search, _lines(self._log, self._log_start)))
        return {each[1]: each[2] not in _FENCED for each in found}

    def is_alive(self) -> bool:
        """Tell whether the process runs."""
        return self._guard is not None and self._guard.poll() is None

    def terminate(self) -> None:
        """Ask the process to end cleanly."""
        if self._guard and self.is_alive():
            self._guard.terminate()

    def kill(self) -> None:
        """End the process at once, as a power cut would."""
        if self.pid and self.is_alive():
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def wait(self, timeout: float) -> None:
        """Wait until the process has ended; kill it when it takes longer than `timeout` seconds."""
        if self._guard is None:
            return
        with self._guard as guard:
            try:
                guard.wait(timeout)
            except subprocess.TimeoutExpired:
                self.kill()
                guard.wait()
        self._guard = None

    def _abandon(self, guard: subprocess.Popen[bytes]) -> None:
        """Give up on a guard before it told the process id: it ends the process when its pipe closes."""
        with guard:
            self._guard = None

    def last_words(self) -> str:
        """Return how the log ends since the last start, for an error message: complaints if there are any."""
        for file, start in ((self._log, self._log_start), (self.console_file, 0)):
            lines = [line[:LINE_LENGTH] for line in _lines(file, start) if not line.startswith("\t")]
            complaints = [line for line in lines if " INFO " not in line]
            if lines:
                place = "" if self._temporary else f" {file}"
                return "\n    ".join([f"Its log{place} ends with:", *(complaints or lines)[-LAST_LINES:]])
        return "It logged nothing."


def _lines(file: Path, start: int) -> list[str]:
    try:
        return file.read_bytes()[start:].decode("utf-8", "replace").splitlines()
    except FileNotFoundError:
        return []


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def _environment() -> dict[str, str]:
    """Our environment, with a locale in which Java can open any path."""
    return {**os.environ, "LC_ALL": "C.UTF-8"}
