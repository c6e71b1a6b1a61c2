"""A real Mosquitto in a process of its own."""

from __future__ import annotations

import signal
import struct
import subprocess
from contextlib import suppress
from getpass import getuser
from pathlib import Path

from tests.actions.conftest import Certificate, unused_port
from tests.eventsources.debian import libraries, tree_with
from tests.eventsources.fetching import until

USER = "shop"
_DATABASE_HEAD = 15 + 4 + 4
"""The magic number, a checksum and the version."""
_CLIENT_MESSAGE = 3
"""A chunk of the database that is a message for one client."""


class MosquittoServer:
    """Keeps what it has got in `folder`. Has a port of its own for TLS."""

    def __init__(self, folder: Path, certificate: Certificate) -> None:
        self._tree = tree_with("mosquitto", "usr/sbin/mosquitto")
        self._folder = folder
        self.port, self.tls_port = unused_port(), unused_port()
        self.password: str | None = None
        lines = [f"user {getuser()}", "persistence true", f"persistence_location {folder}/", "autosave_interval 0"]
        lines += [f"listener {self.port} 127.0.0.1", f"listener {self.tls_port} 127.0.0.1"]
        self._lines = [*lines, f"certfile {certificate.cert}", f"keyfile {certificate.key}"]
        self.start()

    def start(self) -> None:
        access = ["allow_anonymous true"]
        if self.password is not None:
            passwords = self._folder / "passwords"
            command = [str(self._tree / "usr/bin/mosquitto_passwd"), "-b", "-c", str(passwords), USER, self.password]
            subprocess.run(command, env=libraries(self._tree), check=True, capture_output=True)
            access = ["allow_anonymous false", f"password_file {passwords}"]
        (self._folder / "mosquitto.conf").write_text("\n".join([*self._lines, *access]) + "\n")
        command = [str(self._tree / "usr/sbin/mosquitto"), "-c", str(self._folder / "mosquitto.conf")]
        with (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen(command, env=libraries(self._tree), stderr=log)
        until(self._started)

    def stop(self) -> None:
        """It writes down what it has got. Right after its start it may not hear that it is to stop."""
        while self._process.poll() is None:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(1.0)

    def forget(self) -> None:
        """What it has written down."""
        (self._folder / "mosquitto.db").unlink(missing_ok=True)

    def protect(self, password: str) -> None:
        self.stop()
        self.password = password
        self.start()

    def messages(self) -> int:
        """Those that wait for clients, or for their acknowledgement: it can be made to write them down."""
        self.forget()
        database = self._folder / "mosquitto.db"
        self._process.send_signal(signal.SIGUSR1)
        until(database.exists)
        content = database.read_bytes()
        found, offset = 0, _DATABASE_HEAD
        while offset < len(content):
            kind, length = struct.unpack_from("!II", content, offset)
            found += kind == _CLIENT_MESSAGE
            offset += 8 + length
        return found

    def _started(self) -> bool:
        said = (self._folder / "log").read_text()
        assert self._process.poll() is None, f"mosquitto does not start: {said}"
        return " running" in said
