"""What a cluster is made of, and how it comes to this machine: into the cache, never into the work tree."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, NamedTuple

from eventbus.errors import MachineError
from eventbus.jvm.places import cache_directory, make_directory, require_free

_SOURCES = Path(__file__).parent / "go"
_PACKAGES = ("containerd", "runc", "libseccomp2", "containernetworking-plugins")
_NEEDED_MEBIBYTES = 6000
"""Mostly Go's own caches."""
_VERSION = "k8s.io/kubernetes v"


class Parts(NamedTuple):
    """Programs, by where they are."""

    kubernetes: Path
    pause: Path
    containerd: Path
    """Its directory: the programs beside it are found there."""
    runc: Path
    plugins: Path
    """The directory of those that connect pods."""
    libraries: Path
    """What of Debian's packages this machine may not have."""


def place() -> Path:
    return cache_directory() / "kubernetes"


def lacking() -> str | None:
    """Why this machine can have no cluster of its own, in one line."""
    if sys.platform != "linux":
        return "a Kubernetes of our own needs Linux"
    if os.geteuid() != 0:
        return "a Kubernetes of our own needs root: name another one in KUBECONFIG"
    for program in ("unshare", "nsenter", "mount", "ldd", "ip"):
        if shutil.which(program) is None:
            return f"a Kubernetes of our own needs the program `{program}`"
    return None


def not_built() -> str | None:
    """What has to be done before one can be started, in one line."""
    if _parts() is None:
        return "the Kubernetes of our own is not built yet: python -m e2e.cluster build"
    return None


def parts() -> Parts:
    """Raises `MachineError` where something has to be built or fetched first."""
    found = _parts()
    if found is None:
        raise MachineError(str(not_built()))
    return found


def build() -> Parts:
    """Fetch and compile what is not there yet. Raises `MachineError`."""
    reason = lacking()
    if reason is not None:
        raise MachineError(reason)
    make_directory(place())
    with locked("building"):  # several checkouts share the cache
        _fetch_containerd()
        if not _binaries().is_dir():
            _compile()
    return parts()


def locked(what: str) -> IO[bytes]:
    """Waits until nobody else does it. Whoever closes the file lets the next one in."""
    lock = (place() / f"{what}.lock").open("ab")
    fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


def _parts() -> Parts | None:
    binaries, containerd, runc = _binaries(), _program("containerd"), _program("runc")
    plugins = _plugins()
    if containerd is None or runc is None or plugins is None or not binaries.is_dir():
        return None
    libraries = next((_debian() / "usr" / "lib").glob("*-linux-*"), place())
    return Parts(binaries / "kubernetes", binaries / "pause", containerd.parent, runc, plugins, libraries)


# --- compiled -------------------------------------------------------------------------------------------------------


def _binaries() -> Path:
    """Another directory for every change of the sources."""
    digest = blake2b(digest_size=8)
    for file in sorted(each for each in _SOURCES.rglob("*") if each.is_file()):
        digest.update(f"{file.relative_to(_SOURCES)} {file.stat().st_size} ".encode() + file.read_bytes())
    return place() / f"bin-{digest.hexdigest()}"


def _compile() -> None:
    if shutil.which("go") is None:
        raise MachineError("a Kubernetes of our own needs Go 1.24 or newer, to be built: install it, or set KUBECONFIG")
    require_free(place(), _NEEDED_MEBIBYTES, "building Kubernetes")
    caches = {"GOMODCACHE": str(place() / "gomod"), "GOCACHE": str(place() / "gocache"), "GOFLAGS": "-buildvcs=false"}
    in_haste = {"CGO_ENABLED": "0", "GOGC": "400"}  # a compiler lives for seconds: let it collect little
    with TemporaryDirectory(dir=place()) as directory:
        made = Path(directory) / "bin"
        made.mkdir()
        no_symbols = ["-gcflags=all=-dwarf=false", "-ldflags", f"-s -w {_version_flags()}"]
        command = ["go", "build", *no_symbols, "-o", str(made), "./kubernetes", "./pause"]
        _call(command, _SOURCES, caches | in_haste)
        made.rename(_binaries())


def _version_flags() -> str:
    """Without them the servers say that they are 0.0.0, and kubelet and API server do not trust each other."""
    line = next(each for each in (_SOURCES / "go.mod").read_text().splitlines() if _VERSION in each)
    version = line.partition(_VERSION)[2].strip()
    major, minor, _ = version.split(".")
    stamps = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": minor}
    return " ".join(f"-X k8s.io/component-base/version.{name}={value}" for name, value in stamps.items())


# --- from Debian ----------------------------------------------------------------------------------------------------


def _debian() -> Path:
    """Another directory for every other list of packages."""
    return place() / f"debian-{blake2b(' '.join(_PACKAGES).encode(), digest_size=4).hexdigest()}"


def _plugins() -> Path | None:
    found = (_debian() / "usr/lib/cni", Path("/usr/lib/cni"), Path("/opt/cni/bin"))
    return next((each for each in found if (each / "bridge").exists()), None)


def _program(name: str) -> Path | None:
    unpacked = [_debian() / directory / name for directory in ("usr/bin", "usr/sbin")]
    installed = shutil.which(name)
    return next((each for each in unpacked if each.exists()), None if installed is None else Path(installed))


def _fetch_containerd() -> None:
    if _program("containerd") is not None and _program("runc") is not None and _plugins() is not None:
        return
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise MachineError(
            "a Kubernetes of our own needs containerd, runc and the CNI plugins: install them, or set KUBECONFIG"
        )
    with TemporaryDirectory(dir=place()) as directory:
        work = Path(directory)
        for each in ("lists/partial", "archives/partial", "debs", "root"):
            (work / each).mkdir(parents=True)
        own = ["-o", f"Dir::State::Lists={work}/lists", "-o", f"Dir::Cache={work}", "-o", "APT::Sandbox::User=root"]
        _call(["apt-get", "-qq", *own, "update"], work)
        _call(["apt-get", "-qq", *own, "download", *_PACKAGES], work / "debs")
        for package in sorted((work / "debs").glob("*.deb")):
            _call(["dpkg-deb", "-x", str(package), str(work / "root")], work)
        (work / "root").rename(_debian())


def _call(command: Sequence[str], directory: Path, environment: Mapping[str, str] | None = None) -> None:
    """Raises `MachineError` with the last thing that was said."""
    done = subprocess.run(
        command, cwd=directory, env={**os.environ, **(environment or {})}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines() or ["it does not say why"]
        raise MachineError(f"`{' '.join(command[:2])}` failed in {directory}: {said[-1]}")
