"""`k8s`, `argoWorkflow` and `policy.k8s` in manifests: argo's load as they are, and mistakes are placed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from sensors.actions.kube.arguments import parse_arguments
from sensors.actions.kube.spec import ObjectSpec
from sensors.spec.loader import load_text
from sensors.spec.models import SensorManifest, Trigger
from sensors.spec.policy import Policy
from sensors.spec.problems import ManifestError

CORPUS = Path(__file__).parents[2].parent / "shared" / "corpus" / "argo-examples"
_ACTIONS = ("k8s", "argoWorkflow")


def _triggers() -> Iterator[Any]:
    for file in sorted(CORPUS.glob("*.y*ml")):
        for document in yaml.safe_load_all(file.read_text()):
            if isinstance(document, dict) and document.get("kind") == "Sensor":
                for number, trigger in enumerate(document["spec"]["triggers"]):
                    if any(kind in trigger["template"] for kind in _ACTIONS):
                        yield pytest.param(trigger, id=f"{file.stem}-{number}")


TRIGGERS = list(_triggers())


@pytest.mark.skipif(not TRIGGERS, reason="the corpus ../shared/corpus is not there")
@pytest.mark.parametrize("trigger", TRIGGERS)
def test_a_trigger_of_argos_examples_loads(trigger: dict[str, Any]) -> None:
    loaded = Trigger.model_validate(trigger)
    kind, spec = loaded.action
    assert kind in _ACTIONS
    assert isinstance(spec, ObjectSpec)


HEAD = """\
apiVersion: argoproj.io/v1alpha1
kind: Sensor
metadata: {name: s}
spec:
  dependencies:
    - {name: dep, eventSourceName: source, eventName: event}
  triggers:
"""


def manifest(trigger: str) -> str:
    return HEAD + "".join(f"    {line}\n" for line in trigger.strip("\n").splitlines())


def load(trigger: str) -> SensorManifest:
    [loaded] = load_text(manifest(trigger), "s.yaml")
    return loaded


K8S = """
- template:
    name: t
    k8s:
      source: {resource: {apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {serviceAccountName: me}}}
"""


@pytest.mark.parametrize("place", ["  policy: ", "    policy: "])
def test_a_policy_is_the_triggers_wherever_argo_writes_it(place: str) -> None:
    loaded = load(f"{K8S}{place}{{k8s: {{labels: {{a: b}}, backoff: {{steps: 2, duration: 1s}}}}}}")
    policy = loaded.spec.triggers[0].success
    assert policy.k8s is not None
    assert policy.k8s.labels == {"a": "b"}
    assert policy.k8s.backoff.steps == 2


def test_without_a_policy_there_is_an_empty_one() -> None:
    assert load(K8S).spec.triggers[0].success == Policy()


@pytest.mark.parametrize(
    ("trigger", "where", "message"),
    [
        (
            f"{K8S}    policy: {{k8s: {{labels: {{a: b}}}}}}\n  policy: {{k8s: {{labels: {{a: b}}}}}}",
            "12:9",
            "the trigger has a `policy` already; leave one out",
        ),
        (
            "- template: {name: t, log: {}}\n  policy:\n    k8s: {labels: {a: b}}",
            "10:9",
            "the action `log` has no policy `k8s`; it has none",
        ),
        (
            "- template:\n    name: t\n    k8s:\n      source:\n        resource: {kind: Pod}",
            "12:13",
            "a Kubernetes object needs its `apiVersion`",
        ),
        (
            "- template:\n    name: t\n    k8s:\n      source: {}",
            "11:11",
            "a source has exactly one of `resource`, `inline`, `file`, `url`, `configmap`, `git`, `s3`; this one has 0",
        ),
        (
            "- template:\n    name: t\n    argoWorkflow:\n      args: ['--wait']\n      source: {file: {path: x}}",
            "11:11",
            "`--wait` is not supported for `submit`, because there is no argo command here; what is supported is `-p`",
        ),
        (
            f"{K8S}  parameters:\n    - {{src: {{dependencyName: dep}}, dest: k8s.operation}}",
            "13:46",
            "`dest` cannot be `k8s.operation`; what parameters can change is `k8s.source.resource.**`",
        ),
    ],
)
def test_a_mistake_is_told_with_its_place(trigger: str, where: str, message: str) -> None:
    with pytest.raises(ManifestError) as caught:
        load(trigger)
    [problem] = caught.value.problems
    assert problem.message.startswith(message)
    assert f"{problem.line}:{problem.column}" == where


@pytest.mark.parametrize(
    ("more", "line", "message"),
    [
        ("parameters:\n  - {src: {dependencyName: dep}, dest: spec.serviceAccountName}", 13, "does not start"),
        ("parameters:\n  - {src: {dependencyName: dep}, dest: spec}", 13, "`serviceAccountName`"),
        ("liveObject: true", 12, "`liveObject` does nothing without `operation: update`"),
        ("patchStrategy: application/json-patch+json", 12, "nothing without `operation: patch`"),
    ],
)
def test_what_cannot_work_is_a_warning(more: str, line: int, message: str) -> None:
    loaded = load(K8S + "".join(f"      {each}\n" for each in more.splitlines()))
    [warning] = loaded.warnings
    assert warning.line == line
    assert message in warning.message


def test_what_the_sensor_allows_is_no_warning() -> None:
    more = "parameters: [{src: {dependencyName: dep}, dest: spec.serviceAccountName}]"
    assert load(f"{K8S}      {more}\n      allowParameters: [spec.serviceAccountName]").warnings == ()


def test_parameters_of_the_trigger_reach_the_object_and_its_source() -> None:
    parameters = "[{src: {dependencyName: dep}, dest: k8s.source.resource.spec.nodeSelector}]"
    _, spec = load(f"{K8S}  parameters: {parameters}").spec.triggers[0].action
    assert isinstance(spec, ObjectSpec)
    assert [each.dest for each in spec.object_parameters] == ["spec.nodeSelector"]
    assert spec.patches == ()


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["-p"], "`-p` needs a value"),
        (["-p", "novalue"], "`-p novalue` must be `name=value`"),
        (["--labels", "a=b,c"], "`--labels c` must be `name=value`"),
        (["--priority", "high"], "`--priority high` must be a whole number"),
        (["positional"], "`positional` is not supported for `submit`"),
    ],
)
def test_arguments_that_cannot_be_understood(words: list[str], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        parse_arguments(words, "submit")


def test_operations_without_flags_take_none() -> None:
    with pytest.raises(ValueError, match=r"`-p` is not supported for `stop`.*; it takes no `args`"):
        parse_arguments(["-p", "a=b"], "stop")


def test_arguments() -> None:
    found = parse_arguments(["-p", "a=1=2", "--parameter=b=", "-l", "x=y", "--name", "n", "--priority=-3"], "submit")
    assert found.parameters == {"a": "1=2", "b": ""}
    assert (found.labels, found.name, found.priority) == ({"x": "y"}, "n", -3)
