"""`eventbus schema`: what a manifest may say, for editors."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated

import typer


class Kind(StrEnum):
    """What a manifest describes."""

    SENSOR = "Sensor"
    EVENT_SOURCE = "EventSource"
    EVENT_BUS = "EventBus"


def schema(
    kind: Annotated[Kind, typer.Argument(help="What the manifest describes.", case_sensitive=False)] = Kind.SENSOR,
) -> None:
    """Print the JSON Schema (2020-12) of a manifest, with which an editor completes and checks it."""
    from eventsources.kinds import KINDS
    from sensors.spec.schema import manifest_schema

    typer.echo(json.dumps(manifest_schema(KINDS[kind]), indent=2, ensure_ascii=False))
