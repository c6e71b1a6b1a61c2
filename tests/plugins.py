"""Packages that bring something along by an entry point, and a Python that has them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

InstallPlugin = Callable[..., Path]


def put_package(folder: Path, group: str, entry_points: str, code: str, name: str) -> Path:
    """Where Python finds it once the folder is on its path, as an installer would."""
    info = folder / f"{name}-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(f"[{group}]\n{entry_points}\n")
    (folder / f"{name}.py").write_text(dedent(code))
    return folder


def run_python(folder: Path, code: str) -> str:
    """In a Python of its own: plugins are loaded once, when it starts. Returns all that it says."""
    done = subprocess.run(
        [sys.executable, "-c", dedent(code)],
        cwd=folder,
        env={"PYTHONPATH": f"{folder}:{Path.cwd()}"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


def validate(file: str) -> str:
    return f"from eventbus.cli.main import main; import sys; sys.argv = ['eventbus', 'validate', '{file}']; main()"
