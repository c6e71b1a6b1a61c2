"""The definitions are what Kubernetes takes, and what they fill in changes nothing about a manifest."""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from eventbus.controller.crds import definitions
from eventbus.controller.structural import structural
from eventsources.spec import MANIFESTS
from sensors.spec.problems import ManifestError
from tests.cli.conftest import Command

ROOT = Path(__file__).parents[2]
CORPUS = ROOT.parent / "shared" / "corpus" / "argo-examples"
MOST_OF_AN_ANNOTATION = 262_144
"""In which `kubectl apply` keeps the whole object."""
ALL = {each["spec"]["names"]["kind"]: each for each in definitions()}


def _schema(kind: str) -> dict[str, Any]:
    schema: dict[str, Any] = ALL[kind]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


@pytest.mark.parametrize("kind", ALL)
def test_kubectl_apply_can_keep_it(kind: str) -> None:
    assert len(json.dumps(ALL[kind])) < MOST_OF_AN_ANNOTATION


@pytest.mark.parametrize("kind", ALL)
def test_every_part_of_the_schema_is_structural(kind: str) -> None:
    """As the API server checks it: a type everywhere, and none of the words that OpenAPI 3.0 does not have."""

    def check(schema: dict[str, Any], path: str) -> None:
        assert not {"$ref", "const", "oneOf", "anyOf", "allOf", "patternProperties", "$defs"} & schema.keys(), path
        loose = schema.get("x-kubernetes-preserve-unknown-fields") or schema.get("x-kubernetes-int-or-string")
        assert isinstance(schema.get("type", ""), str), path
        assert "type" in schema or loose, path
        assert isinstance(schema.get("additionalProperties", {}), dict), path
        assert isinstance(schema.get("exclusiveMinimum", True), bool), path
        for name, each in schema.get("properties", {}).items():
            check(each, f"{path}.{name}")
        for name in ("items", "additionalProperties"):
            if name in schema:
                check(schema[name], f"{path}.{name}")

    check(_schema(kind), kind)


def _filled(schema: dict[str, Any], value: Any) -> Any:
    """What the API server makes of a value: defaults are put in."""
    if isinstance(value, dict):
        for name, each in schema.get("properties", {}).items():
            if name not in value and "default" in each:
                value[name] = deepcopy(each["default"])
            if name in value:
                value[name] = _filled(each, value[name])
        if "additionalProperties" in schema:
            value = {name: _filled(schema["additionalProperties"], each) for name, each in value.items()}
    elif isinstance(value, list) and "items" in schema:
        value = [_filled(schema["items"], each) for each in value]
    return value


def _manifests() -> Iterator[Any]:
    for file in sorted([*ROOT.glob("examples/*/*.yaml"), *CORPUS.glob("*.y*ml")]):
        for number, data in enumerate(yaml.safe_load_all(file.read_text())):
            if isinstance(data, dict) and data.get("kind") in ("Sensor", "EventSource") and _loads(data):
                yield pytest.param(data, id=f"{file.parent.name}/{file.name}:{number}")


def _loads(data: Any) -> bool:
    try:
        MANIFESTS.make(data)
    except ManifestError:
        return False
    return True


@pytest.mark.parametrize("data", list(_manifests()))
def test_what_the_api_server_fills_in_changes_nothing(data: Any) -> None:
    plain = MANIFESTS.make(data)
    filled = MANIFESTS.make(_filled(_schema(data["kind"]), deepcopy(data)))
    assert filled.model_dump() == plain.model_dump()
    assert [str(each) for each in filled.warnings] == [str(each) for each in plain.warnings]


def test_what_kubernetes_has_no_words_for_is_left_to_our_own_checks() -> None:
    lookahead = structural({"type": "string", "pattern": "^(?!a)"})
    assert lookahead == {"type": "string"}
    assert structural({"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "null"}]}) == {
        "x-kubernetes-int-or-string": True,
        "nullable": True,
    }
    assert structural({"exclusiveMinimum": 0, "type": "number"}) == {
        "type": "number",
        "minimum": 0,
        "exclusiveMinimum": True,
    }
    assert structural({}) == {"x-kubernetes-preserve-unknown-fields": True}


def test_a_schema_that_contains_itself_is_told() -> None:
    tree = {
        "$ref": "#/$defs/Tree",
        "$defs": {"Tree": {"type": "object", "properties": {"t": {"$ref": "#/$defs/Tree"}}}},
    }
    with pytest.raises(ValueError, match="`Tree` contains itself"):
        structural(tree)


def test_the_command_prints_them_all(cli: Command) -> None:
    answer = cli("crds")
    assert answer.code == 0
    names = [each["metadata"]["name"] for each in yaml.safe_load_all(answer.out)]
    assert names == ["sensors.eventbus.dev", "eventsources.eventbus.dev", "eventbuses.eventbus.dev"]
