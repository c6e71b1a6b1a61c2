"""`eventbus schema`: what a manifest may say, for editors."""

from __future__ import annotations

import json

import typer


def schema() -> None:
    """Print the JSON Schema (2020-12) of a Sensor, with which an editor completes and checks manifests."""
    from sensors.spec.schema import sensor_schema

    typer.echo(json.dumps(sensor_schema(), indent=2, ensure_ascii=False))
