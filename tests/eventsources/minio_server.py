"""A real MinIO in a process of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

import urllib3
from minio import Minio
from minio.commonconfig import ENABLED
from minio.error import S3Error
from minio.versioningconfig import VersioningConfig

from eventbus.jvm.places import cache_directory
from tests.actions.conftest import Certificate, unused_port
from tests.eventsources.fetching import until

MODULE = "github.com/minio/minio@v0.0.0-20260212201848-7aac2a2c5b7c"
"""MinIO is in no package index as a program, and this is the only version that Go's proxy has."""
_FLUSH = """package cmd

import "net/http"

func (w *trackingResponseWriter) Flush() {
	_ = http.NewResponseController(w.ResponseWriter).Flush()
}
"""
"""Without this, MinIO keeps back what it has to tell until there are 4 KiB of it: a known fault of versions since
October 2025."""
ACCESS, SECRET = "reader-1a", "right-5b1c"


def _made() -> Path:
    return cache_directory() / "minio" / f"{MODULE.rpartition('-')[2]}-flushing" / "minio"


def installed() -> str | None:
    """Where it is, if it is on the PATH or was made before."""
    return shutil.which("minio") or (str(_made()) if _made().exists() else None)


def make() -> str:
    """From its sources, with `go`: about eight minutes of one core, and 1.5 GiB of memory."""
    fetched = subprocess.run(["go", "mod", "download", "-json", MODULE], check=True, capture_output=True, cwd="/")
    with TemporaryDirectory() as scratch:
        source = Path(shutil.copytree(json.loads(fetched.stdout)["Dir"], f"{scratch}/minio", copy_function=shutil.copy))
        for folder in (source, source / "cmd"):
            folder.chmod(0o755)  # Go lets nobody write there
        (source / "cmd" / "flushing.go").write_text(_FLUSH)
        command = ["go", "build", "-buildvcs=false", "-ldflags", "-s -w", "-o", str(_made()), "."]
        subprocess.run(command, check=True, cwd=source, env={**os.environ, "CGO_ENABLED": "0", "GOGC": "400"})
    return str(_made())


class MinioServer:
    """Keeps what it has got in `folder`."""

    def __init__(self, program: str, folder: Path, certificate: Certificate | None = None, region: str = "") -> None:
        self.address = f"localhost:{unused_port()}"
        certificates = folder / "certificates"
        certificates.mkdir()
        if certificate is not None:
            shutil.copy(certificate.cert, certificates / "public.crt")
            shutil.copy(certificate.key, certificates / "private.key")
        self._command = [program, "server", str(folder / "data"), "--address", self.address]
        self._command += ["--certs-dir", str(certificates), "--quiet"]
        self._environment = {"MINIO_ROOT_USER": ACCESS, "MINIO_ROOT_PASSWORD": SECRET, "HOME": str(folder)}
        self._environment |= {"MINIO_BROWSER": "off", "MINIO_UPDATE": "off", "MINIO_REGION": region, "CI": "true"}
        authorities = None if certificate is None else str(certificate.cert)
        self._pool = urllib3.PoolManager(ca_certs=authorities, retries=False, timeout=10)
        secure = certificate is not None
        self.client = Minio(self.address, ACCESS, SECRET, secure=secure, region=region or None, http_client=self._pool)
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(
            self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=self._environment
        )
        until(self._is_ready)

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        self._pool.clear()
        self.stop()

    def make_bucket(self, name: str, versioned: bool = False) -> None:
        self.client.make_bucket(name)
        if versioned:
            self.client.set_bucket_versioning(name, VersioningConfig(ENABLED))

    def put(self, bucket: str, key: str) -> None:
        self.client.put_object(bucket, key, BytesIO(b"abc"), 3)

    def _is_ready(self) -> bool:
        assert self._process.poll() is None, "minio does not start"
        try:
            self.client.list_buckets()
        except (urllib3.exceptions.HTTPError, S3Error):
            return False
        return True
