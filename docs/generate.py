"""Writes the pages and pictures that are made from the code, so that they cannot tell something else than it does."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from docs.diagram import stages_svg
from docs.functions import templates_page
from docs.reference import configuration_page

HERE = Path(__file__).parent


def generated() -> Mapping[Path, str]:
    """Every generated file with what should be in it."""
    return {
        HERE / "configuration.md": configuration_page(),
        HERE / "stages.svg": stages_svg(),
        HERE / "templates.md": templates_page(),
    }


if __name__ == "__main__":
    for path, text in generated().items():
        path.write_text(text, encoding="utf-8")
