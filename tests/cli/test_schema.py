"""`eventbus schema`: what an editor needs, and nothing else on stdout."""

from __future__ import annotations

import json

from sensors.spec.schema import sensor_schema
from tests.cli.conftest import Command


def test_the_schema_is_printed_as_json(cli: Command) -> None:
    answer = cli("schema")
    assert (answer.code, answer.err) == (0, "")
    assert json.loads(answer.out) == sensor_schema()
