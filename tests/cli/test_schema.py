"""`eventbus schema`: what an editor needs, and nothing else on stdout."""

from __future__ import annotations

import json

import pytest

from eventsources.kinds import KINDS
from sensors.spec.schema import manifest_schema, sensor_schema
from tests.cli.conftest import Command


def test_the_schema_is_printed_as_json(cli: Command) -> None:
    answer = cli("schema")
    assert (answer.code, answer.err) == (0, "")
    assert json.loads(answer.out) == sensor_schema()


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_one(cli: Command, kind: str) -> None:
    answer = cli("schema", kind)
    assert json.loads(answer.out) == manifest_schema(KINDS[kind])
    assert cli("schema", kind.lower()) == answer


def test_another_kind_has_none(cli: Command) -> None:
    answer = cli("schema", "Pod")
    assert answer.code == 2
    assert "'Pod' is not one of" in answer.err
