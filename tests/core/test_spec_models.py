"""What a manifest means: defaults as argo-events has them, and a digest that follows the meaning."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from sensors.actions import ACTIONS
from sensors.actions.base import ActionCall
from sensors.actions.http import HttpSpec
from sensors.actions.log import LogSpec
from sensors.actions.python import PythonSpec
from sensors.spec.fields import MAX_NAME, parse_duration
from sensors.spec.loader import load_text, make_manifest
from sensors.spec.models import RetryStrategy, SensorManifest, TriggerTemplate
from sensors.spec.policy import RateLimit, ResourcePolicy
from sensors.spec.problems import ManifestError

UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # the machine may be busy


def _data() -> dict[str, Any]:
    return {
        "apiVersion": "eventbus.dev/v1alpha1",
        "kind": "Sensor",
        "metadata": {"name": "orders", "namespace": "shop"},
        "spec": {
            "dependencies": [
                {"name": "a", "eventSourceName": "shop", "eventName": "paid"},
                {"name": "b", "eventSourceName": "depot", "eventName": "packed"},
            ],
            "triggers": [
                {"template": {"name": "one", "conditions": "a && b", "log": {}}},
                {
                    "template": {"name": "two", "conditions": "a || b", "http": {"url": "http://h/x"}},
                    "retryStrategy": {"duration": "1s"},
                    "atLeastOnce": True,
                },
            ],
        },
    }


def _made(change: Callable[[dict[str, Any]], object] = lambda _: None) -> SensorManifest:
    data = deepcopy(_data())
    change(data)
    return make_manifest(data)


def _trigger(data: dict[str, Any], number: int = 0) -> dict[str, Any]:
    trigger: dict[str, Any] = data["spec"]["triggers"][number]
    return trigger


# --- defaults -------------------------------------------------------------------------------------------------------


def test_defaults_are_those_of_argo_events() -> None:
    spec = _made().spec
    assert (spec.eventBusName, spec.replicas, spec.startFrom) == ("default", 1, "latest")
    one, two = spec.triggers
    assert (one.name, one.mode, one.action) == ("one", "atMostOnce", ("log", LogSpec()))
    assert (two.name, two.mode, two.action) == ("two", "atLeastOnce", ("http", HttpSpec(url="http://h/x")))


def test_without_a_retry_strategy_there_is_one_attempt() -> None:
    one, two = _made().spec.triggers
    assert one.retry.steps == 1
    assert two.retry == RetryStrategy(steps=5, duration=timedelta(seconds=1), factor=1.0, jitter=1.0)


def test_metadata_that_only_a_cluster_writes_is_ignored() -> None:
    def as_kubectl_shows_it(data: dict[str, Any]) -> None:
        data["metadata"] |= {
            "uid": "9c1b",
            "resourceVersion": "12",
            "creationTimestamp": None,
            "managedFields": [{"manager": "kubectl"}],
            "finalizers": ["sensor-controller"],
            "generation": 3,
            "labels": {"team": "shop"},
            "annotations": {},
        }
        data["status"] = {"conditions": [{"type": "Deployed"}]}

    manifest = _made(as_kubectl_shows_it)
    assert manifest.generation == 3
    assert manifest.metadata.labels == {"team": "shop"}
    assert manifest.digest() == _made().digest()


def test_the_full_name_is_what_topics_are_named_after() -> None:
    assert str(_made().full_name) == "shop/default/orders"


def test_every_registered_action_is_a_field_of_the_template() -> None:
    assert ACTIONS.keys() <= TriggerTemplate.model_fields.keys()


POD_TEMPLATE = {
    "metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}},
    "serviceAccountName": "sa",
    "container": {
        "resources": {"limits": {"cpu": 1}},
        "imagePullPolicy": "Always",
        "securityContext": {"runAsNonRoot": True},
        "volumeMounts": [{"name": "v", "mountPath": "/v"}],
        "env": [{"name": "A", "value": "b"}],
        "envFrom": [{"secretRef": {"name": "s"}}],
    },
    "volumes": [{"name": "v", "emptyDir": {}}],
    "securityContext": {"runAsUser": 1000},
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"operator": "Exists"}],
    "imagePullSecrets": [{"name": "r"}],
    "priorityClassName": "high",
    "priority": -1,
    "affinity": {"nodeAffinity": {}},
}
"""Every field that argo-events has there."""


def test_a_pod_template_is_kept_as_it_is() -> None:
    template = _made(lambda data: data["spec"].update(template=POD_TEMPLATE)).spec.template
    assert template is not None
    assert template.model_dump(mode="json") == POD_TEMPLATE


@pytest.mark.parametrize(
    "written",
    [
        {"steps": 3},
        {"steps": 3, "duration": "3s"},
        {"steps": 5, "duration": 1_000_000_000, "factor": 2, "jitter": 0.1},
        {"steps": 5, "duration": "1s", "factor": "2.0", "jitter": "0.1"},
        {"duration": "500ms", "factor": "1", "jitter": 0},
    ],
)
def test_retry_strategies_are_written_in_many_ways(written: dict[str, Any]) -> None:
    retry = RetryStrategy.model_validate(written)
    backoff = ResourcePolicy.model_validate({"labels": {"a": "b"}, "backoff": written}).backoff
    assert backoff.model_dump() == retry.model_dump()
    assert retry.steps == written.get("steps", 5)


def test_a_rate_limit_counts_seconds() -> None:
    units = {"Second": 1, "Minute": 60, "Hour": 3600}
    assert {unit: RateLimit.model_validate({"unit": unit, "requestsPerUnit": 1}).seconds for unit in units} == units
    assert RateLimit(requestsPerUnit=1).unit == "Second"


# --- digest ---------------------------------------------------------------------------------------------------------

SAME = {
    "other metadata": lambda data: data["metadata"].update(generation=7, labels={"x": "y"}, name="other"),
    "a default written out": lambda data: data["spec"].update(eventBusName="default", startFrom="latest"),
    "a default of an action written out": lambda data: _trigger(data, 1)["template"]["http"].update(method="POST"),
    "more replicas": lambda data: data["spec"].update(replicas=9),
    "a condition spelt differently": lambda data: _trigger(data)["template"].update(conditions="(b)&&a && (a||b)"),
    "a condition left to the default": lambda data: _trigger(data)["template"].pop("conditions"),
    "a duration spelt differently": lambda data: _trigger(data, 1)["retryStrategy"].update(duration="1000ms"),
    "a number as text": lambda data: _trigger(data, 1)["retryStrategy"].update(factor="1.0", jitter=1),
    "another order of dependencies": lambda data: data["spec"]["dependencies"].reverse(),
    "another order of triggers": lambda data: data["spec"]["triggers"].reverse(),
    "the other API group": lambda data: data.update(apiVersion="argoproj.io/v1alpha1"),
    "how pods look": lambda data: data["spec"].update(template=POD_TEMPLATE),
    "how many revisions are kept": lambda data: data["spec"].update(revisionHistoryLimit=3),
    "what log lines carry": lambda data: data["spec"].update(loggingFields={"team": "shop"}),
    "what does nothing": lambda data: data["spec"].update(errorOnFailedRound=True),
}

DIFFERENT = {
    "another event": lambda data: data["spec"]["dependencies"][0].update(eventName="refunded"),
    "another condition": lambda data: _trigger(data)["template"].update(conditions="a || b"),
    "another mode": lambda data: _trigger(data).update(atLeastOnce=True),
    "a retry strategy": lambda data: _trigger(data).update(retryStrategy={}),
    "another duration": lambda data: _trigger(data, 1)["retryStrategy"].update(duration="2s"),
    "another address": lambda data: _trigger(data, 1)["template"]["http"].update(url="http://h/y"),
    "another bus": lambda data: data["spec"].update(eventBusName="other"),
    "another start": lambda data: data["spec"].update(startFrom="earliest"),
    "a trigger less": lambda data: data["spec"]["triggers"].pop(),
    "a rate limit": lambda data: _trigger(data).update(rateLimit={"requestsPerUnit": 1}),
    "a policy": lambda data: _trigger(data, 1).update(policy={"status": {"allow": [204]}}),
    "a dlqTrigger": lambda data: _trigger(data).update(dlqTrigger={"template": {"name": "tell", "log": {}}}),
    "another name of a trigger": lambda data: _trigger(data)["template"].update(name="three"),
}


@pytest.mark.parametrize("change", SAME.values(), ids=SAME.keys())
def test_what_means_the_same_has_the_same_digest(change: Callable[[dict[str, Any]], object]) -> None:
    assert _made(change).digest() == _made().digest()


@pytest.mark.parametrize("change", DIFFERENT.values(), ids=DIFFERENT.keys())
def test_what_means_something_else_has_another_digest(change: Callable[[dict[str, Any]], object]) -> None:
    assert _made(change).digest() != _made().digest()


def test_the_digest_is_stored_and_therefore_pinned() -> None:
    assert _made().digest() == "83644650ba96f486d76d62f68869981b"


def test_a_yaml_file_and_a_program_get_the_same_digest() -> None:
    text = """
        apiVersion: argoproj.io/v1alpha1
        kind: Sensor
        metadata: {name: x}
        spec:
          triggers:
            - atLeastOnce: true
              retryStrategy: {duration: 1s}
              template: {http: {url: http://h/x}, conditions: b||a, name: two}
            - template: {name: one, log: {}}
          dependencies:
            - {name: b, eventName: packed, eventSourceName: depot}
            - {name: a, eventName: paid, eventSourceName: shop}
    """
    (manifest,) = load_text(text, "x.yaml")
    assert manifest.digest() == _made().digest()


# --- Python functions -----------------------------------------------------------------------------------------------


def _ship(call: ActionCall) -> None:
    """An action for the tests."""


def test_a_program_can_attach_a_function() -> None:
    def attach(data: dict[str, Any]) -> None:
        _trigger(data)["template"] = {"name": "one", "python": PythonSpec(function=_ship)}

    manifest = _made(attach)
    assert manifest.spec.triggers[0].action == ("python", PythonSpec(function=_ship))
    assert manifest.digest() == _made(attach).digest()
    assert PythonSpec(function=_ship).model_dump() == {"function": "tests.core.test_spec_models:_ship"}


# --- field types ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("500ms", 0.5),
        ("3s", 3),
        ("1m30s", 90),
        ("1h2m3.5s", 3723.5),
        ("1.5h", 5400),
        (".5s", 0.5),
        ("250us", 0.00025),
        ("250µs", 0.00025),
        ("2000ns", 0.000002),
        ("0", 0),
        ("0s", 0),
        ("+1s", 1),
        (3_000_000_000, 3),
    ],
)
def test_durations_are_read_as_go_reads_them(written: object, seconds: float) -> None:
    assert parse_duration(written) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "written", ["", "5", "s", "1 s", "1d", "1s2", "-1s", -5, True, None, 1.5, "9" * 400 + "h", 2**63]
)
def test_what_is_not_a_duration_is_refused(written: object) -> None:
    with pytest.raises(ValueError, match="must be"):
        parse_duration(written)


@UNHURRIED
@given(st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=100_000)))
def test_a_duration_survives_being_written_and_read(duration: timedelta) -> None:
    written = RetryStrategy(duration=duration).model_dump(mode="json")["duration"]
    assert parse_duration(written) == duration


@pytest.mark.parametrize(
    ("written", "value"), [(2, 2.0), (0.5, 0.5), ("2", 2.0), ("1.5", 1.5), ("1e2", 100.0), (0, 0.0)]
)
def test_amounts_are_numbers_or_numbers_as_text(written: object, value: float) -> None:
    assert RetryStrategy.model_validate({"factor": written}).factor == value


@pytest.mark.parametrize(
    "written", ["", "x", "1x", "nan", "inf", float("nan"), float("inf"), True, [], -1, 1001, 10**400]
)
def test_what_is_not_an_amount_is_refused(written: object) -> None:
    with pytest.raises(ValidationError, match="must be"):
        RetryStrategy.model_validate({"factor": written})


@pytest.mark.parametrize("steps", [0, -1, 1.5, "3", True, None])
def test_steps_count_from_one(steps: object) -> None:
    with pytest.raises(ValidationError):
        RetryStrategy.model_validate({"steps": steps})


def _rename_dependency(name: object) -> Callable[[dict[str, Any]], object]:
    return lambda data: data["spec"]["dependencies"][0].update(name=name)


@pytest.mark.parametrize("name", ["a b", "a&&b", "", "ä", "a/b", "x" * (MAX_NAME + 1)])
def test_the_name_of_a_dependency_can_be_used_in_a_condition(name: str) -> None:
    with pytest.raises(ManifestError, match="must consist of letters, digits"):
        _made(_rename_dependency(name))


@pytest.mark.parametrize("source", ["", " x", "x ", "a\nb", "a\0b", "x" * 1025])
def test_the_source_of_a_dependency_is_a_reasonable_text(source: str) -> None:
    with pytest.raises(ManifestError, match="must be 1 to 1,024 printable characters"):
        _made(lambda data: data["spec"]["dependencies"][0].update(eventSourceName=source))


def test_the_source_of_a_dependency_may_be_any_cloudevents_source() -> None:
    source = "https://shop.example/orders?region=eu"
    manifest = _made(lambda data: data["spec"]["dependencies"][0].update(eventSourceName=source))
    assert manifest.spec.dependencies[0].eventSourceName == source


# --- nothing breaks it ----------------------------------------------------------------------------------------------

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def _paths(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [path, *(deeper for key, value in items for deeper in _paths(value, (*path, key)))]


@UNHURRIED
@given(st.sampled_from(_paths(_data())[1:]), _JSON)
def test_whatever_stands_in_a_field_the_answer_is_a_manifest_or_a_list_of_problems(
    path: tuple[Any, ...], value: object
) -> None:
    data = deepcopy(_data())
    target: Any = data
    for step in path[:-1]:
        target = target[step]
    target[path[-1]] = value
    manifest, problems = None, []
    try:
        manifest = make_manifest(data)
    except ManifestError as error:
        problems = error.problems
    assert problems if manifest is None else len(manifest.digest()) == 32


@UNHURRIED
@given(st.sampled_from(_paths(_data())[1:]), st.text(min_size=1, max_size=8), _JSON)
def test_a_field_that_nobody_knows_is_always_refused(path: tuple[Any, ...], name: str, value: object) -> None:
    data = deepcopy(_data())
    target: Any = data
    for step in path:
        target = target[step]
    if not isinstance(target, dict) or path == ("metadata",):
        return
    target[f"x{name}"] = value
    with pytest.raises(ManifestError, match="unknown field"):
        make_manifest(data)
