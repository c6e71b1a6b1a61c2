"""A machine that cannot have a cluster of its own says why, in one line."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from e2e.cluster import Cluster, building
from eventbus.errors import MachineError


@pytest.fixture(autouse=True)
def _empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVENTBUS_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 0)


def without(monkeypatch: pytest.MonkeyPatch, *programs: str) -> None:
    found = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name: None if name in programs else found(name) or f"/usr/bin/{name}")


def _fetched() -> None:
    """What comes from Debian is there already."""
    for each in ("usr/bin/containerd", "usr/sbin/runc", "usr/lib/cni/bridge"):
        file = building._debian() / each
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()


def test_without_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(MachineError, match=r"^a Kubernetes of our own needs root: name another one in KUBECONFIG$"):
        building.build()


def test_without_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "nsenter")
    with pytest.raises(MachineError, match=r"^a Kubernetes of our own needs the program `nsenter`$"):
        building.build()


def test_without_go(monkeypatch: pytest.MonkeyPatch) -> None:
    _fetched()
    without(monkeypatch, "go")
    with pytest.raises(MachineError, match=r"^a Kubernetes of our own needs Go 1.24 or newer, to be built: install it"):
        building.build()


def test_without_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "containerd", "runc", "apt-get")
    with pytest.raises(MachineError, match=r"^a Kubernetes of our own needs containerd, runc and the CNI plugins: "):
        building.build()


def test_a_tool_that_fails_is_quoted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tool = tmp_path / "bin" / "go"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\necho first >&2\necho 'no route to the proxy' >&2\nexit 1\n")
    tool.chmod(0o755)
    _fetched()
    without(monkeypatch)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    with pytest.raises(MachineError, match=r"^`go build` failed in .*: no route to the proxy$"):
        building.build()


def test_one_that_is_not_built_cannot_be_started() -> None:
    with pytest.raises(MachineError, match=r"is not built yet: python -m e2e\.cluster build$"):
        Cluster()
