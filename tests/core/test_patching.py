"""Events change objects where they are told to, and nowhere where it would be dangerous."""

from __future__ import annotations

from typing import Any

import pytest

from eventbus.events import Event
from sensors.parameters import Parameter, ParameterError
from sensors.patching import apply_parameters, forbidden_destination, patch_object

EVENT = Event.new(
    "/shop", "order", {"name": "book", "count": 3, "pod": {"x": {"hostPath": "/"}}, "ok": {"a": 1}}, id="e"
)
JOB: dict[str, Any] = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"generateName": "job-", "labels": {"a": "b"}},
    "spec": {
        "arguments": {"parameters": [{"name": "message", "value": "hello"}]},
        "template": {"spec": {"securityContext": {"runAsNonRoot": True}, "containers": [{"image": "busybox"}]}},
    },
}


def _parameter(dest: str, operation: str = "", **source: Any) -> Parameter:
    source = {"dependencyName": "dep", "dataKey": "name", **source}
    return Parameter.model_validate({"src": source, "dest": dest, "operation": operation})


def _applied(*parameters: Parameter, events: dict[str, Event] | None = None) -> Any:
    return apply_parameters(JOB, parameters, {"dep": EVENT} if events is None else events)


def test_values_go_to_their_places_and_the_original_stays_as_it_is() -> None:
    before = repr(JOB)
    patched = _applied(
        _parameter("spec.arguments.parameters.0.value", "append"),
        _parameter("spec.arguments.parameters.-1.value", dataKey="count"),
        _parameter("metadata.labels.count", dataKey="count", useRawData=True),
    )
    assert patched["spec"]["arguments"]["parameters"] == [{"name": "message", "value": "hellobook"}, {"value": "3"}]
    assert patched["metadata"]["labels"] == {"a": "b", "count": 3}
    assert repr(JOB) == before


def test_a_dependency_without_an_event_changes_nothing_unless_there_is_a_default() -> None:
    assert _applied(_parameter("metadata.labels.a"), events={}) == JOB
    assert _applied(_parameter("metadata.labels.a", value="v"), events={})["metadata"]["labels"] == {"a": "v"}


def test_a_value_that_is_not_there_is_an_error() -> None:
    with pytest.raises(ParameterError, match="has no `zip`"):
        _applied(_parameter("metadata.name", dataKey="zip"))


@pytest.mark.parametrize(
    ("dest", "name"),
    [
        ("apiVersion", "apiVersion"),
        ("kind", "kind"),
        ("KIND", "kind"),
        (r"ki\nd", "kind"),
        (":kind", "kind"),
        ("items.0.kind", "kind"),
        ("metadata", "metadata.namespace"),
        ("metadata.namespace", "metadata.namespace"),
        ("Metadata.Namespace", "metadata.namespace"),
        ("metadata.ownerReferences.0.uid", "metadata.ownerReferences"),
        ("spec.serviceAccountName", "serviceAccountName"),
        ("spec.template.spec.serviceAccountName", "serviceAccountName"),
        ("spec.template.spec.securityContext.runAsUser", "securityContext"),
        ("spec.template.spec.containers.0.securityContext", "securityContext"),
        ("spec.template.spec.volumes.0.hostPath.path", "hostPath"),
        ("spec.template.spec.hostNetwork", "hostNetwork"),
        ("spec.podSpecPatch", "podSpecPatch"),
        ("spec", "securityContext"),
        ("spec.template", "securityContext"),
    ],
)
def test_what_an_object_is_and_may_do_is_not_for_events_to_say(dest: str, name: str) -> None:
    fault = forbidden_destination(dest, JOB)
    assert fault == f"`dest: {dest}`: an event must not change `{name}`, unless the sensor allows this destination"
    assert forbidden_destination(dest, JOB, allowed=["spec.other", dest]) is None


@pytest.mark.parametrize(
    "dest",
    ["metadata.name", "metadata.labels.kind-of", "spec.arguments.parameters.0.value",
     "spec.template.spec.containers.0.image", "spec.template.metadata.namespace", "spec.completions"],
)  # fmt: skip
def test_everything_else_may_be_changed(dest: str) -> None:
    assert forbidden_destination(dest, JOB) is None


def test_an_allowed_destination_allows_nothing_below_it() -> None:
    assert forbidden_destination("metadata.namespace", JOB, ["metadata"]) is not None
    assert forbidden_destination("spec.serviceAccountName", JOB, ["spec.serviceAccountName.x"]) is not None


def test_an_object_is_patched_or_nothing_is() -> None:
    events = {"dep": EVENT}
    assert patch_object(JOB, [_parameter("metadata.name")], events)["metadata"]["name"] == "book"
    with pytest.raises(ParameterError, match="an event must not change `kind`"):
        patch_object(JOB, [_parameter("kind")], events)
    assert patch_object(JOB, [_parameter("kind")], events, allowed=["kind"])["kind"] == "book"


def test_an_event_cannot_smuggle_a_protected_field_in_an_object() -> None:
    smuggled = _parameter("spec.volume", dataKey="pod", useRawData=True)
    with pytest.raises(ParameterError, match=r"`dest: spec\.volume`: an event must not bring its own `hostPath`"):
        patch_object(JOB, [smuggled], {"dep": EVENT})
    harmless = _parameter("spec.volume", dataKey="ok", useRawData=True)
    assert patch_object(JOB, [harmless], {"dep": EVENT})["spec"]["volume"] == {"a": 1}
