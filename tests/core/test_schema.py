"""The JSON Schema accepts what loads, and refuses what anybody can see is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from eventsources.kinds import ANY_KIND, KINDS
from eventsources.sources import SOURCES
from sensors.actions import ACTIONS
from sensors.spec.manifest import Manifest
from sensors.spec.models import Dependency, RetryStrategy
from sensors.spec.problems import ManifestError
from sensors.spec.schema import manifest_schema, sensor_schema
from sensors.spec.yamltree import plain, read_tree

ROOT = Path(__file__).parents[2]
CORPUS = ROOT.parent / "shared" / "corpus" / "argo-examples"
SCHEMA = sensor_schema()
VALIDATOR = Draft202012Validator(SCHEMA)


VALIDATORS = {kind: Draft202012Validator(manifest_schema(model)) for kind, model in KINDS.items()}


def _documents() -> Iterator[Any]:
    for file in sorted([*ROOT.glob("examples/*/*.yaml"), *CORPUS.glob("*.y*ml")]):
        for number, node in enumerate(read_tree(file.read_text(), file.name).documents):
            data = plain(node)
            if isinstance(data, dict) and data.get("kind") in KINDS:
                yield pytest.param(data, id=f"{file.parent.name}/{file.name}:{number}")


def _loads(data: Any) -> bool:
    try:
        ANY_KIND.make(data)
    except ManifestError:
        return False
    return True


def _data() -> Any:
    return {
        "apiVersion": "eventbus.dev/v1alpha1",
        "kind": "Sensor",
        "metadata": {"name": "orders"},
        "spec": {
            "dependencies": [{"name": "a", "eventSourceName": "shop", "eventName": "paid"}],
            "triggers": [{"template": {"name": "t", "log": {}}, "retryStrategy": {}}],
        },
    }


@pytest.mark.parametrize("model", KINDS.values(), ids=list(KINDS))
def test_it_is_a_schema(model: type[Manifest]) -> None:
    schema = manifest_schema(model)
    Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == Draft202012Validator.META_SCHEMA["$id"]


@pytest.mark.parametrize("data", list(_documents()))
def test_what_loads_is_accepted(data: Any) -> None:
    if _loads(data):
        VALIDATORS[data["kind"]].validate(data)


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        ("EventSource", {"webhook": {"a": {"endpoint": "/a", "prot": 1}}}),
        ("EventSource", {"calender": {"a": {"interval": "1m"}}}),
        ("EventSource", {"calendar": {"a": {"interval": 5.5}}}),
        ("EventBus", {"kafka": {}}),
        ("EventBus", {"kafka": {"url": "h:1", "sasl": {"mechanism": "MD5"}}}),
        ("EventBus", {"jetstream": {}}),
    ],
)
def test_obvious_mistakes_of_other_kinds_are_refused(kind: str, spec: Any) -> None:
    data = {"apiVersion": "eventbus.dev/v1alpha1", "kind": kind, "metadata": {"name": "a"}, "spec": spec}
    assert not _loads(data)
    assert not VALIDATORS[kind].is_valid(data)


def test_every_kind_of_source_is_there() -> None:
    properties = manifest_schema(KINDS["EventSource"])["$defs"]["EventSourceSpec"]["properties"]
    assert SOURCES.keys() <= properties.keys()


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data["metadata"].update(uid="1", creationTimestamp=None, managedFields=[{}], resourceVersion="7"),
        lambda data: data.update(status={"conditions": []}),
        lambda data: _dependency(data).update(filtersLogicalOperator="", filters={"dataLogicalOperator": ""}),
        lambda data: _dependency(data).update(filters={"context": {"type": "x", "n": 1, "b": True, "id": None}}),
        lambda data: _dependency(data).update(filters=None, transform=None),
        lambda data: _template(data).update(http=None),
    ],
)
def test_what_a_cluster_or_a_careless_person_writes_is_accepted(change: Callable[[Any], None]) -> None:
    data = _data()
    change(data)
    assert _loads(data)
    VALIDATOR.validate(data)


DURATIONS = ["500ms", "1m30s", "1.5h", "0", 0, 10**9, "+3s", "3", "1d", "", "s", None, 1.5, True, "1s ", [1]]
AMOUNTS = [0, 1, 2.5, 1000, "1", "2.5e1", ".5", "", "one", -1, 1001, True, None, [], "1 "]


@pytest.mark.parametrize(("field", "value"), [*(("duration", x) for x in DURATIONS), *(("factor", x) for x in AMOUNTS)])
def test_durations_and_amounts_are_what_users_may_write(field: str, value: Any) -> None:
    data = _data()
    data["spec"]["triggers"][0]["retryStrategy"][field] = value
    assert VALIDATOR.is_valid(data) == _loads(data)


def _template(data: Any) -> Any:
    return data["spec"]["triggers"][0]["template"]


def _dependency(data: Any) -> Any:
    return data["spec"]["dependencies"][0]


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.update(kind="sensor"),
        lambda data: data.update(apiVersion="v1"),
        lambda data: data.pop("metadata"),
        lambda data: data["metadata"].update(name="Orders"),
        lambda data: data["metadata"].update(generateName="orders-"),
        lambda data: data["spec"].update(dependencies=[]),
        lambda data: data["spec"].update(replicas=0),
        lambda data: data["spec"].update(replicas="1"),
        lambda data: data["spec"].update(trigers=[]),
        lambda data: _dependency(data).update(event_name="x"),
        lambda data: _dependency(data).pop("eventName"),
        lambda data: _dependency(data).update(name="a b"),
        lambda data: _dependency(data).update(filters={"data": [{"path": "a", "type": "int", "value": ["1"]}]}),
        lambda data: _dependency(data).update(filters={"data": [{"path": "a", "type": "number", "value": [1]}]}),
        lambda data: _template(data).pop("log"),
        lambda data: _template(data).update(log=None),
        lambda data: _template(data).update(http={"url": "http://h"}),
        lambda data: _template(data).update(conditions=True),
        lambda data: data["spec"]["triggers"][0].update(atLeastOnce="yes"),
    ],
)
def test_obvious_mistakes_are_refused(change: Callable[[Any], None]) -> None:
    data = _data()
    VALIDATOR.validate(data)
    change(data)
    assert not _loads(data)
    assert not VALIDATOR.is_valid(data)


def test_fields_are_described_by_their_docstrings() -> None:
    definitions = SCHEMA["$defs"]
    assert definitions["RetryStrategy"]["description"] == RetryStrategy.__doc__
    assert definitions["RetryStrategy"]["properties"]["steps"]["description"] == "Attempts in all, the first included."
    assert definitions["Dependency"]["description"] == Dependency.__doc__


def test_every_action_that_a_manifest_can_have_is_there() -> None:
    properties = SCHEMA["$defs"]["TriggerTemplate"]["properties"]
    for kind, action in ACTIONS.items():
        assert (kind in properties) == action.in_manifests
