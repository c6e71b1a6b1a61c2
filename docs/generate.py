"""Writes the pages and pictures that are made from the code, so that they cannot tell something else than it does."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from docs.compatibility import compatibility_page, example_results, examples_section
from docs.configuration import EVENT_BUS, EVENT_SOURCE, SENSOR
from docs.diagram import stages_svg
from docs.functions import templates_page

HERE = Path(__file__).parent


def generated(examples: str | None = None) -> Mapping[Path, str]:
    """Every generated file with what should be in it; `examples` are new results of argo-events' examples."""
    return {
        HERE / "compatibility.md": compatibility_page(examples),
        HERE / "configuration.md": SENSOR.text(),
        HERE / "configuration-eventsource.md": EVENT_SOURCE.text(),
        HERE / "configuration-eventbus.md": EVENT_BUS.text(),
        HERE / "stages.svg": stages_svg(),
        HERE / "templates.md": templates_page(),
    }


if __name__ == "__main__":
    results = example_results()
    for path, text in generated(examples_section(results) if results else None).items():
        path.write_text(text, encoding="utf-8")
