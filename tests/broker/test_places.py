"""Where things are kept, and what a user reads when there is no room or no permission."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from eventbus.broker.places import KAFKA, home_directory
from eventbus.errors import MachineError
from eventbus.jvm.places import explained, make_directory, require_free


def test_the_environment_decides_where_jars_and_data_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVENTBUS_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("EVENTBUS_DATA_DIR", str(tmp_path / "data"))
    assert KAFKA.directory() == tmp_path / "cache" / "kafka-4.3.1"
    assert home_directory() == tmp_path / "data" / "broker"


def test_too_little_space_is_noticed_before_anything_is_written(tmp_path: Path) -> None:
    a_million_gigabytes = 1_000_000 * 1024
    with pytest.raises(MachineError, match=rf"needs {a_million_gigabytes} MB in {tmp_path}, \d+ MB are free"):
        require_free(tmp_path, a_million_gigabytes, "the broker")
    require_free(tmp_path, 1, "the broker")


@pytest.mark.skipif(sys.platform != "linux", reason="needs /dev/full")
def test_a_full_disk_is_named(tmp_path: Path) -> None:
    with pytest.raises(MachineError, match=rf"disk full while writing to {tmp_path}"), explained(tmp_path):
        Path("/dev/full").write_bytes(b"one byte too many")


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(MachineError, match=rf"cannot write to {tmp_path}/file/data: Not a directory"):
        make_directory(tmp_path / "file" / "data")
