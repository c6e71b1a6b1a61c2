"""CloudEvents' own scenarios of the HTTP binding, over real HTTP."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import NamedTuple

import pytest

from eventbus import Bus
from tests.eventsources.serving import shop

FEATURE = (
    Path(__file__).parents[2].parent / "shared" / "corpus" / "cloudevents-conformance" / "http-protocol-binding.feature"
)

pytestmark = pytest.mark.skipif(not FEATURE.exists(), reason="the corpus ../shared/corpus is not there")


class Scenario(NamedTuple):
    """One request, and what it must be understood as."""

    name: str
    headers: dict[str, str]
    body: str
    attributes: dict[str, str]
    data: str


def _scenarios() -> Iterator[Scenario]:
    text = FEATURE.read_text() if FEATURE.exists() else ""
    for found in re.split(r"^\s*Scenario(?: Outline)?: ", text, flags=re.MULTILINE)[1:]:
        outline, _, examples = found.partition("Examples:")
        header, *rows = _table(examples)
        for row in rows:
            filled = outline
            for name, value in zip(header, row, strict=True):
                filled = filled.replace(f"<{name}>", value)
            yield _scenario(filled)


def _scenario(text: str) -> Scenario:
    request, data = (dedent(block).strip("\n") for block in re.findall(r'"""\n(.*?)\n\s*"""', text, re.DOTALL))
    head, _, body = request.partition("\n\n")
    line, *fields = head.splitlines()
    assert line == "POST /someresource HTTP/1.1"
    headers = dict(field.split(": ", 1) for field in fields)
    del headers["Host"], headers["Content-Length"]  # the sender's, and that of another indentation
    (_, *attributes) = _table(text.partition("the attributes are:")[2].partition("And ")[0])
    return Scenario(text.splitlines()[0], headers, body, dict(attributes), data)


def _table(text: str) -> list[list[str]]:
    rows = [line.strip() for line in text.splitlines() if line.strip().startswith("|")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


SCENARIOS = list(_scenarios())


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda each: each.name)
def test_a_request_is_understood_as_cloud_events_says(scenario: Scenario) -> None:
    with Bus.memory() as bus:
        bus.ensure(1)
        with shop(bus, endpoint="/someresource", keepContext=True) as receiver:
            answer = receiver.send(scenario.body, path="/someresource", **scenario.headers)
            assert answer.status == 202, answer.data
            [event] = receiver.events()
    assert event.attributes == scenario.attributes
    assert event.json() == json.loads(scenario.data)


def test_all_scenarios_are_there() -> None:
    assert len(SCENARIOS) == 4
