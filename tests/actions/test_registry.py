"""What every action has to have before a manifest may use it."""

from __future__ import annotations

from typing import Any

import pytest

from sensors import extras
from sensors.actions import ACTIONS, REFUSED, ActionKind
from sensors.actions.log import LogAction, LogSpec
from sensors.spec.loader import load_text
from sensors.spec.problems import ManifestError, Problem
from tests.actions.conftest import parameter

MANIFEST = """\
apiVersion: argoproj.io/v1alpha1
kind: Sensor
metadata: {name: s}
spec:
  dependencies: [{name: paid, eventSourceName: s, eventName: n}]
  triggers:
    - parameters: PARAMETERS
      template:
        name: t
        ACTION
"""
MINIMAL = {
    "awsLambda": "{functionName: f, region: eu-west-1}",
    "custom": "{serverURL: 'h:1', spec: {a: b}}",
    "email": "{host: h, port: 25, from: a@b.example, to: [c@d.example], subject: s, body: b}",
    "http": "{url: http://h/}",
    "kafka": "{topic: t}",
    "log": "{}",
    "nats": "{url: 'h:4222', subject: s}",
    "slack": "{slackToken: {name: n, key: k}, channel: c, message: m}",
}


def _problems(action: str, parameters: str = "[]") -> list[Problem]:
    try:
        load_text(MANIFEST.replace("ACTION", action).replace("PARAMETERS", parameters), "s.yaml")
    except ManifestError as error:
        return error.problems
    return []


def _messages(action: str, *parameters: dict[str, Any]) -> list[str]:
    return [problem.message for problem in _problems(action, str(list(parameters)).replace("'", ""))]


@pytest.mark.parametrize("kind", MINIMAL)
def test_the_least_that_can_be_said_about_an_action_loads(kind: str) -> None:
    assert _problems(f"{kind}: {MINIMAL[kind]}") == []


@pytest.fixture
def without_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda _: None)


@pytest.mark.usefixtures("without_packages")
@pytest.mark.parametrize(("kind", "extra"), [("awsLambda", "aws"), ("custom", "grpc"), ("nats", "nats")])
def test_a_package_that_is_not_installed_is_told_at_its_place(kind: str, extra: str) -> None:
    [problem] = _problems(f"{kind}: {MINIMAL[kind]}")
    assert (problem.line, problem.column) == (10, 9)
    assert problem.message == f"this needs packages that are not installed: install `kafka-eventbus[{extra}]`"


@pytest.mark.usefixtures("without_packages")
@pytest.mark.parametrize("kind", ["email", "http", "kafka", "log", "slack"])
def test_other_actions_need_no_further_package(kind: str) -> None:
    assert _problems(f"{kind}: {MINIMAL[kind]}") == []


def test_a_module_of_a_package_that_is_not_installed_is_not_installed_either() -> None:
    kind = ActionKind(LogSpec, LogAction, extra="x", modules=("no_such_package.module",))
    assert kind.lacking() is not None


@pytest.mark.parametrize("kind", REFUSED)
def test_what_argo_events_has_and_we_do_not_is_refused_once_with_a_way_out(kind: str) -> None:
    [problem] = _problems(f"{kind}: {{}}")
    assert (problem.line, problem.column) == (10, 9)
    assert problem.message.startswith(f"`{kind}` is not supported; ")
    assert "use `" in problem.message


def test_every_kind_of_trigger_that_argo_events_has_is_known() -> None:
    refused = {"azureEventHubs", "azureServiceBus", "openWhisk", "pulsar"}
    assert refused == REFUSED.keys()
    assert {"http", "kafka", "log", "slack", "email", "nats", "awsLambda", "custom"} <= ACTIONS.keys()


# --- what may be left to parameters ---------------------------------------------------------------------------------

NEEDS = [
    ("slack", "{slackToken: {name: n, key: k}, message: m}", "channel"),
    ("slack", "{slackToken: {name: n, key: k}, channel: c}", "message"),
    ("email", "{host: h, port: 25, from: a@b.example, to: [], subject: s, body: b}", "to"),
    ("email", "{host: h, port: 25, to: [c@d.example], subject: s, body: b}", "from"),
    ("nats", "{url: 'h:4222'}", "subject"),
    ("awsLambda", "{region: eu-west-1}", "functionName"),
]


@pytest.mark.parametrize(("kind", "text", "field"), NEEDS)
def test_what_is_needed_must_come_from_somewhere(kind: str, text: str, field: str) -> None:
    [message] = _messages(f"{kind}: {text}")
    assert message.startswith(f"`{kind}` needs `{field}`")
    assert message.endswith(": write it, or let a parameter put it in")


@pytest.mark.parametrize(("kind", "text", "field"), NEEDS)
def test_a_parameter_of_the_trigger_puts_it_in(kind: str, text: str, field: str) -> None:
    dest = f"{kind}.{field}.-1" if field == "to" else f"{kind}.{field}"
    assert _messages(f"{kind}: {text}", parameter(dest)) == []


def test_a_parameter_of_the_action_puts_it_in() -> None:
    text = "{url: 'h:4222', parameters: [{src: {dependencyName: paid, dataKey: x}, dest: subject}]}"
    assert _messages(f"nats: {text}") == []


def test_a_parameter_of_a_custom_resource_puts_nothing_into_the_action() -> None:
    text = "{spec: {a: b}, parameters: [{src: {dependencyName: paid, dataKey: x}, dest: serverURL}]}"
    assert _messages(f"custom: {text}") != []
