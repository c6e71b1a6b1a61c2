"""`eventbus graph`: a picture of a sensor."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from eventbus.cli.options import Manifest


class Format(StrEnum):
    """What the picture is written in."""

    MERMAID = "mermaid"
    SVG = "svg"


def graph(
    sensor: Manifest,
    *,
    to: Annotated[Format, typer.Option("--format", help="`mermaid` is for Markdown, `svg` for everything else.")] = (
        Format.MERMAID
    ),
) -> None:
    """Draw which dependencies lead, by which condition, to which trigger. Works offline."""
    from sensors.graph import Graph, mermaid, svg
    from sensors.spec.loader import load_manifest

    picture = Graph.of(load_manifest(sensor))
    typer.echo(svg(picture) if to is Format.SVG else mermaid(picture), nl=False)
