"""Generated pages are those that the code of today generates."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.generate import generated

FILES = generated()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_generated_files_are_fresh(path: Path) -> None:
    assert path.read_text() == FILES[path], "run `make docs`"
