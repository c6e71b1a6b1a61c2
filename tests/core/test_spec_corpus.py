"""Manifests that users of argo-events start from load, or are refused by naming the field and its line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from eventsources.sources import REFUSED as REFUSED_KINDS
from eventsources.spec import EVENT_SOURCES
from sensors.parameters import Parameter
from sensors.spec.loader import load_manifests
from sensors.spec.models import Dependency
from sensors.spec.problems import ManifestError, Problem

CORPUS = Path(__file__).parents[2].parent / "shared" / "corpus" / "argo-examples"
SENSORS = sorted(file for file in CORPUS.glob("*.y*ml") if "kind: Sensor\n" in file.read_text())
SOURCES = sorted(file for file in CORPUS.glob("*.y*ml") if "kind: EventSource\n" in file.read_text())
REFUSED = {
    "sensors_azure-event-hubs-sensor.yaml",  # an action that there is not
    "tutorials_09-http-trigger_sensor-02.yaml",  # argo-events refuses it, too: its `url` has another name
}

pytestmark = pytest.mark.skipif(not SENSORS, reason="the corpus ../shared/corpus is not there")


def _parameters(value: Any) -> Iterator[Any]:
    """Everything in a document that looks like a parameter."""
    if isinstance(value, dict) and "dependencyName" in (value.get("src") or {}):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _parameters(inner)


@pytest.mark.parametrize("file", SENSORS, ids=lambda file: file.name)
def test_every_parameter_of_an_example_is_understood(file: Path) -> None:
    for document in yaml.safe_load_all(file.read_text()):
        for parameter in _parameters(document):
            Parameter.model_validate(parameter)


def _problems(file: Path) -> list[Problem]:
    try:
        load_manifests(file)
    except ManifestError as error:
        return error.problems
    return []


@pytest.mark.parametrize("file", SENSORS, ids=lambda file: file.name)
def test_an_example_of_argo_events_loads_or_its_unsupported_fields_are_named(file: Path) -> None:
    problems = _problems(file)
    assert bool(problems) == (file.name in REFUSED)
    lines = file.read_text().splitlines()
    for problem in problems:
        assert problem.line is not None
        assert problem.column is not None
        named = re.match(r"(?:unknown field )?`(\w+)`", problem.message)
        assert named is not None
        if "is missing" not in problem.message:
            assert lines[problem.line - 1][problem.column - 1 :].startswith(f"{named[1]}:")


@pytest.mark.parametrize("file", SOURCES, ids=lambda file: file.name)
def test_an_event_source_of_argo_events_loads_or_what_is_unsupported_is_named(file: Path) -> None:
    """Whatever kinds there are: what is refused is a kind that there is not, or a field that argo-events has not."""
    text = file.read_text()
    found = EVENT_SOURCES.inspect_text(text, file.name)
    kinds = {kind for kind in REFUSED_KINDS if re.search(rf"^  {kind}:", text, re.MULTILINE)}
    unknown = [problem for problem in found.problems if problem.message.startswith("unknown field `type`")]
    assert len(found.problems) == len(kinds) + len(unknown)
    assert len(found.manifests) + bool(found.problems) == 1
    for problem in found.problems:
        named = re.search(r"`(\w+)`", problem.message)
        assert named is not None
        assert problem.line is not None
        assert problem.column is not None
        assert text.splitlines()[problem.line - 1][problem.column - 1 :].startswith(f"{named[1]}:")


def _with_filters() -> list[Path]:
    return [file for file in SENSORS if re.search(r"^ +(filters|transform):", file.read_text(), re.MULTILINE)]


@pytest.mark.parametrize("file", _with_filters(), ids=lambda file: file.name)
def test_filters_of_an_example_of_argo_events_load(file: Path) -> None:
    dependencies = yaml.safe_load(file.read_text())["spec"]["dependencies"]
    filters = [Dependency.model_validate(dependency).filters for dependency in dependencies]
    assert filters
    assert None not in filters
