"""Images of files of this machine, as archives that containerd imports. No registry, no builder.

That of the project has two layers: this Python with what the project depends on, which changes rarely and is kept in
the cache, and the project itself as it is in this checkout. In all that pods notice it is what the Dockerfile makes.
"""

from __future__ import annotations

import io
import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from compileall import compile_dir
from contextlib import suppress
from hashlib import blake2b, sha256
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from importlib.util import cache_from_source
from pathlib import Path
from py_compile import PycInvalidationMode
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, Self

from packaging.requirements import Requirement

PROJECT = "localhost/eventbus:e2e"
PAUSE = "localhost/pause:1"
USER = 65532
PASSWD = f"eventbus:x:{USER}:{USER}::/tmp:/usr/sbin/nologin"
"""Only ``/tmp`` can be written to in our pods. ssh does not work for users without a name."""
SETTINGS = {"Entrypoint": ["eventbus"], "Cmd": ["--help"], "User": f"{USER}:{USER}"}

_ROOT = Path(__file__).parents[2]
_PACKAGES = ("eventbus", "sensors", "eventsources")
SITE = Path("/opt/eventbus")
SUPERFLUOUS = frozenset({"site-packages", "dist-packages", "test", "idlelib", "tkinter", "ensurepip", "turtledemo"})
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
_OCI = "application/vnd.oci.image"


class Blob(NamedTuple):
    content: bytes | Path
    digest: str
    size: int

    @classmethod
    def of(cls, content: bytes | Path) -> Blob:
        if isinstance(content, bytes):
            return cls(content, sha256(content).hexdigest(), len(content))
        with content.open("rb") as file:
            digest = sha256()
            while chunk := file.read(1 << 20):
                digest.update(chunk)
        return cls(content, digest.hexdigest(), content.stat().st_size)

    def described(self, kind: str) -> dict[str, Any]:
        return {"mediaType": f"{_OCI}.{kind}", "digest": f"sha256:{self.digest}", "size": self.size}


def pause_image(into: Path, pause: Path) -> None:
    with Layer(into.with_suffix(".layer")) as layer:
        layer.add(pause, Path("/pause"))
    write_archive(into, PAUSE, [layer.path], {"Entrypoint": ["/pause"]})


def project_image(into: Path, cache: Path) -> None:
    write_archive(into, PROJECT, project_layers(into, cache), {**SETTINGS, "Env": environment()})


def environment(*programs: str) -> list[str]:
    path = ":".join(["/usr/local/bin", str(Path(sys.executable).resolve().parent), *programs])
    return [f"PATH={path}", f"PYTHONPATH={SITE}", "PYTHONUNBUFFERED=1"]


def project_layers(into: Path, cache: Path) -> list[Path]:
    """`cache` keeps the lower layer."""
    own = into.with_suffix(".layer")
    python = Path(sys.executable).resolve()
    with TemporaryDirectory() as directory, Layer(own) as layer:
        for package in _PACKAGES:
            layer.add(_compiled(_ROOT / package, Path(directory) / package), SITE / package)
        for file in distribution("kafka-eventbus").files or ():
            if file.parts[0].endswith(".dist-info") and file.name != "RECORD":
                layer.add(Path(str(file.locate())), SITE / file)
        command = f"#!{python}\nimport sys\n\nfrom eventbus.cli.main import main\n\nsys.exit(main())\n"
        layer.write(Path("/usr/local/bin/eventbus"), command, 0o755)
    return [_python_layer(cache), own]


def _compiled(package: Path, into: Path) -> Path:
    """A copy with bytecode, as in the Dockerfile: pods cannot write it."""
    shutil.copytree(package, into, ignore=shutil.ignore_patterns("__pycache__"))
    compile_dir(into, quiet=1, invalidation_mode=PycInvalidationMode.UNCHECKED_HASH)
    return into


def bare_python_image(into: Path) -> None:
    """What the Dockerfile needs of its base: this Python, without bytecode as in Docker's own, a shell."""
    python, library = Path(sys.executable).resolve(), Path(os.__file__).parent
    programs = [python.with_name("python"), Path("/bin/sh"), Path("/bin/rm")]
    packaged = (file for each in dependencies() for _, file in files_of(each))
    compiled = [*programs, *library.rglob("*.so"), *(each for each in packaged if ".so" in each.suffixes)]
    with Layer(into.with_suffix(".layer"), SUPERFLUOUS | {"__pycache__"}) as layer:
        _write_system(layer)
        for program in programs:
            layer.add(program, program)
        layer.add(library, library)
        layer.add(library / "ensurepip", library / "ensurepip")
        for each in sorted(libraries(compiled)):
            layer.add(each, each)
    write_archive(into, "localhost/python:bare", [layer.path], {"Env": [f"PATH={python.parent}:/bin"]})


# --- a layer --------------------------------------------------------------------------------------------------------


class Layer:
    """Files as they are to be in an image, all of them root's."""

    def __init__(self, path: Path, without: frozenset[str] = SUPERFLUOUS) -> None:
        self.path = path
        self._without = without
        self._tar = tarfile.open(path, "w", format=tarfile.PAX_FORMAT, dereference=True)  # noqa: SIM115 - see __exit__
        self._made: set[Path] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._tar.close()

    def directory(self, path: Path, mode: int = 0o755) -> None:
        if path in self._made or path == Path("/"):
            return
        self.directory(path.parent)
        self._made.add(path)
        info = tarfile.TarInfo(str(path).lstrip("/"))
        info.type, info.mode = tarfile.DIRTYPE, mode
        self._tar.addfile(info)

    def write(self, path: Path, text: str, mode: int = 0o644) -> None:
        self.directory(path.parent)
        info = tarfile.TarInfo(str(path).lstrip("/"))
        info.size, info.mode = len(text.encode()), mode
        self._tar.addfile(info, io.BytesIO(text.encode()))

    def add(self, source: Path, path: Path) -> None:
        """A file, or all that is below a directory, without what only developers of Python need."""
        if source.is_dir():
            for each in sorted(source.iterdir()):
                if each.name not in self._without and not each.name.startswith("config-"):
                    self.add(each, path / each.name)
            return
        if path in self._made:
            return
        self._made.add(path)
        self.directory(path.parent)
        info = self._tar.gettarinfo(source, str(path).lstrip("/"))
        info.uid = info.gid = 0
        info.uname = info.gname = ""
        info.mode |= 0o444
        with source.open("rb") as file:
            self._tar.addfile(info, file)


def _python_layer(cache: Path) -> Path:
    needed = sorted(dependencies(), key=lambda each: each.name)
    stated = [sys.version, sys.executable, *(f"{each.name} {each.version}" for each in needed)]
    sources = [Path(__file__).read_bytes(), *(each.encode() for each in stated)]
    layer = cache / f"python-{blake2b(b' '.join(sources), digest_size=8).hexdigest()}.layer"
    if not layer.exists():
        unfinished = layer.with_suffix(f".{os.getpid()}")
        _write_python(unfinished, needed)
        unfinished.rename(layer)
    return layer


def _write_python(into: Path, needed: Sequence[Distribution]) -> None:
    python, library = Path(sys.executable).resolve(), Path(os.__file__).parent
    files = files_in_image(needed)
    with Layer(into) as layer:
        _write_system(layer, PASSWD)
        layer.add(python, python)
        layer.add(library, library)
        for source, path in files.items():
            layer.add(source, path)
        compiled = [python, *library.rglob("*.so"), *(each for each in files if ".so" in each.suffixes)]
        for each in sorted(libraries(compiled)):
            layer.add(each, each)


def _write_system(layer: Layer, *people: str) -> None:
    for directory in ("proc", "sys", "dev", "run", "var"):
        layer.directory(Path("/") / directory)
    layer.directory(Path("/tmp"), 0o1777)  # noqa: S108 - of the image
    everybody = ("root:x:0:0:root:/root:/bin/sh", *people)
    layer.write(Path("/etc/passwd"), "".join(f"{each}\n" for each in everybody))
    layer.write(Path("/etc/group"), "".join("{0}:x:{3}:\n".format(*each.split(":")) for each in everybody))
    layer.write(Path("/etc/nsswitch.conf"), "hosts: files dns\n")
    for each in (Path("/etc/ld.so.cache"), Path("/etc/ssl/certs/ca-certificates.crt")):
        if each.exists():
            layer.add(each, each)


def asked_for(extra: str = "pods") -> list[Requirement]:
    """By what the checkout says of itself and this extra."""
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]
    waiting = [*project["dependencies"], f"{project['name']}[{extra}]"]
    found: list[Requirement] = []
    while waiting:
        wanted = Requirement(waiting.pop())
        if wanted.name == project["name"]:
            waiting += [line for extra in wanted.extras for line in project["optional-dependencies"][extra]]
        else:
            found.append(wanted)
    return found


def dependencies(find: Callable[[str], Distribution] = distribution, *, extra: str = "pods") -> Iterable[Distribution]:
    """What is installed of it, and of what that needs. `find` raises `PackageNotFoundError`."""
    waiting = asked_for(extra)
    found: dict[str, Distribution] = {}
    followed: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        wanted = waiting.pop()
        with suppress(PackageNotFoundError):
            each = found.setdefault(wanted.name, find(wanted.name))
            if (wanted.name, frozenset(wanted.extras)) not in followed:
                followed.add((wanted.name, frozenset(wanted.extras)))
                waiting += _required(each, wanted.extras)
    return found.values()


def _required(each: Distribution, extras: Iterable[str]) -> Iterator[Requirement]:
    for requirement in map(Requirement, each.requires or ()):
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            yield requirement


def files_in_image(installed: Iterable[Distribution]) -> dict[Path, Path]:
    """Files of this machine, and where they are in an image."""
    return {file: SITE / name for each in installed for name, file in files_of(each)}


def files_of(each: Distribution) -> Iterator[tuple[Path, Path]]:
    """Also what Python has compiled of them: pods start faster with it."""
    for name in each.files or ():
        file = Path(str(name.locate()))
        if ".." in name.parts or name.suffix in {".pth", ".pyc"} or not file.exists():
            continue
        yield Path(name), file
        if name.suffix == ".py":
            compiled = Path(cache_from_source(str(file)))
            if compiled.exists():
                yield Path(cache_from_source(str(name))), compiled


def libraries(compiled: Sequence[Path]) -> set[Path]:
    """What the dynamic linker takes from elsewhere than the packages themselves."""
    told = subprocess.run(["ldd", *map(str, compiled)], capture_output=True, text=True, check=False).stdout
    words = [word for line in told.splitlines() for word in line.split()]
    found = {Path(os.path.normpath(each)) for each in words if each.startswith("/") and not each.endswith(":")}
    return found - set(compiled)


# --- an archive -----------------------------------------------------------------------------------------------------


def write_archive(into: Path, name: str, layers: Sequence[Path], configuration: dict[str, Any]) -> None:
    """As the OCI image layout wants it."""
    system = {"architecture": _MACHINES.get(platform.machine(), platform.machine()), "os": "linux"}
    blobs = [Blob.of(layer) for layer in layers]
    root = {"type": "layers", "diff_ids": [f"sha256:{each.digest}" for each in blobs]}
    settings = Blob.of(json.dumps({**system, "config": configuration, "rootfs": root}).encode())
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{_OCI}.manifest.v1+json",
        "config": settings.described("config.v1+json"),
        "layers": [each.described("layer.v1.tar") for each in blobs],
    }
    entry = Blob.of(json.dumps(manifest).encode())
    names = {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name.rpartition(":")[2]}
    index = {"schemaVersion": 2, "manifests": [{**entry.described("manifest.v1+json"), "annotations": names}]}
    with tarfile.open(into, "w") as archive:
        _put(archive, "oci-layout", b'{"imageLayoutVersion": "1.0.0"}')
        _put(archive, "index.json", json.dumps(index).encode())
        for each in (*blobs, settings, entry):
            _put(archive, f"blobs/sha256/{each.digest}", each.content)


def _put(archive: tarfile.TarFile, name: str, content: bytes | Path) -> None:
    info = tarfile.TarInfo(name)
    if isinstance(content, bytes):
        info.size = len(content)
        archive.addfile(info, io.BytesIO(content))
        return
    info.size = content.stat().st_size
    with content.open("rb") as file:
        archive.addfile(info, file)
