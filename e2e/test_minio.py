"""Listeners of a real MinIO, which is in no package index: it is made from its sources, once."""

from __future__ import annotations

import shutil

import pytest

from tests.eventsources import minio_server
from tests.eventsources.conftest import bus, certificate, secret
from tests.eventsources.minio_contract import MinioContract, minio

__all__ = ["bus", "certificate", "minio", "secret"]


@pytest.fixture(scope="module")
def program() -> str:
    return minio_server.installed() or minio_server.make()


@pytest.mark.skipif(
    minio_server.installed() is None and shutil.which("go") is None,
    reason="there is no `minio` on the PATH, and no `go` to make one",
)
@pytest.mark.timeout(3600)  # the first time
class TestRealMinio(MinioContract):
    """The server that is installed, or else one that is made here."""
