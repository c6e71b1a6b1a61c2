"""The least that Kubernetes must permit to the pods of a Sensor or an EventSource, derived from what they do there.

What cannot be derived is left out rather than guessed: an object that is fetched from elsewhere when an action runs, or
one of another namespace. Whoever wants that brings a service account (`template.serviceAccountName`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from eventbus.controller.objects import Object
from eventsources.receiver.hooks import ForgeSpec
from eventsources.sources.resource import ResourceSpec
from eventsources.spec import EventSourceManifest
from sensors.actions.argo_workflow import ArgoWorkflowSpec
from sensors.actions.k8s import K8sSpec
from sensors.actions.kube.spec import ObjectSpec
from sensors.spec.base import Flaw, Path
from sensors.spec.manifest import Manifest
from sensors.spec.models import DlqTrigger, SensorManifest, Trigger

if TYPE_CHECKING:
    from eventbus.controller.pods import Workload

_WORKFLOWS = ("argoproj.io", "workflows")
_BY_OPERATION: Mapping[str, tuple[str, ...]] = {
    "create": ("create", "get"),
    "update": ("create", "get", "update"),
    "patch": ("create", "get", "patch"),
    "delete": ("delete",),
}
_NOWHERE = "it belongs to no namespace, and the sensor's rights end with its own"
_FORBIDDEN = {
    ("", "namespaces"): _NOWHERE,
    ("", "nodes"): _NOWHERE,
    ("", "persistentvolumes"): _NOWHERE,
    ("argoproj.io", "clusterworkflowtemplates"): _NOWHERE,
    ("apiextensions.k8s.io", None): _NOWHERE,
    ("", "secrets"): "whoever may create or change secrets can read what belongs to others",
    ("", "serviceaccounts"): "a service account is an identity",
    ("rbac.authorization.k8s.io", None): "it would let the sensor give itself rights",
    ("admissionregistration.k8s.io", None): "it would let the sensor see and change every object",
    ("certificates.k8s.io", None): "it would let the sensor be somebody else",
}


class Rule(NamedTuple):
    """Verbs on one kind of resource in the namespace of the manifest."""

    group: str
    resource: str
    verbs: tuple[str, ...]


def rules_of(manifest: Manifest) -> list[Rule]:
    """Each resource once, in a fixed order."""
    needed: dict[tuple[str, str], set[str]] = {}
    for rule in _needs(manifest):
        needed.setdefault((rule.group, rule.resource), set()).update(rule.verbs)
    return [Rule(group, resource, tuple(sorted(verbs))) for (group, resource), verbs in sorted(needed.items())]


def rbac_flaws(manifest: Manifest) -> Iterator[Flaw]:
    """What no Role is made for, and why."""
    if isinstance(manifest, EventSourceManifest):
        for kind, name, spec in manifest.spec.sources():
            if isinstance(spec, ResourceSpec) and spec.namespace != manifest.namespace:
                message = f"no rights beyond the namespace `{manifest.namespace}` are given: name it"
                yield Flaw(("spec", kind, name, "namespace"), f"{message}, or a `template.serviceAccountName`")
    for path, trigger_spec in _object_specs(manifest):
        written = trigger_spec.source.written
        if written is None:
            message = "what is fetched when the action runs is not known before"
            yield Flaw((*path, "source"), f"{message}: name a service account in `template.serviceAccountName`")
            continue
        namespace = (written.get("metadata") or {}).get("namespace")
        if namespace not in (None, "", manifest.namespace):
            message = f"the namespace `{namespace}` is not the sensor's"
            yield Flaw((*path, "source", "resource", "metadata", "namespace"), message)
        reason = _forbidden(*_resource_of(written))
        if reason is not None:
            message = f"no rights on `{written.get('kind')}` are given: {reason}"
            yield Flaw((*path, "source", "resource", "kind"), message)


def role(workload: Workload, rules: Iterable[Rule]) -> Object:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": workload.metadata(),
        "rules": [as_object(rule) for rule in rules],
    }


def as_object(rule: Rule) -> Object:
    return {"apiGroups": [rule.group], "resources": [rule.resource], "verbs": [*rule.verbs]}


def role_binding(workload: Workload) -> Object:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": workload.metadata(),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": workload.name},
        "subjects": [{"kind": "ServiceAccount", "name": workload.name, "namespace": workload.manifest.namespace}],
    }


# --- what is needed -------------------------------------------------------------------------------------------------


def _needs(manifest: Manifest) -> Iterator[Rule]:
    if isinstance(manifest, EventSourceManifest):
        yield from _of_source(manifest)
    for _, spec in _object_specs(manifest):
        yield from _of_action(spec, manifest.namespace)


def _of_source(manifest: EventSourceManifest) -> Iterator[Rule]:
    specs = [spec for _, spec in manifest.identities()]
    if manifest.once or any(isinstance(spec, ForgeSpec) and spec.registers for spec in specs):
        yield Rule("coordination.k8s.io", "leases", ("create", "get", "update"))
    for spec in specs:
        if isinstance(spec, ResourceSpec) and spec.namespace == manifest.namespace:
            yield Rule(spec.group, spec.resource, ("list", "watch"))


def _of_action(spec: ObjectSpec, namespace: str) -> Iterator[Rule]:
    written = spec.source.written
    if isinstance(spec, ArgoWorkflowSpec):
        yield from _of_workflow(spec, written)
    elif isinstance(spec, K8sSpec) and written is not None and _is_ours(written, namespace):
        group, resource = _resource_of(written)
        if _forbidden(group, resource) is None:
            yield Rule(group, resource, _BY_OPERATION[spec.operation])


def _of_workflow(spec: ArgoWorkflowSpec, written: Mapping[str, Any] | None) -> Iterator[Rule]:
    match spec.operation:
        case "submit" | "resubmit":
            yield Rule(*_WORKFLOWS, ("create", "get"))
        case "submit-from":
            yield Rule(*_WORKFLOWS, ("create", "get"))
            yield Rule(_WORKFLOWS[0], _resource_of(written or {})[1], ("get",))
        case "retry":
            yield Rule(*_WORKFLOWS, ("get", "update"))
            yield Rule("", "pods", ("delete", "list"))
        case _:
            yield Rule(*_WORKFLOWS, ("get", "update"))


def _object_specs(manifest: Manifest) -> Iterator[tuple[Path, ObjectSpec]]:
    if not isinstance(manifest, SensorManifest):
        return
    for index, trigger in enumerate(manifest.spec.triggers):
        path = ("spec", "triggers", index)
        yield from _specs_of(path, trigger)


def _specs_of(path: Path, trigger: Trigger | DlqTrigger) -> Iterator[tuple[Path, ObjectSpec]]:
    kind, spec = trigger.action
    if isinstance(spec, ObjectSpec):
        yield (*path, "template", kind), spec
    if isinstance(trigger, Trigger) and trigger.dlqTrigger is not None:
        yield from _specs_of((*path, "dlqTrigger"), trigger.dlqTrigger)


def _is_ours(written: Mapping[str, Any], namespace: str) -> bool:
    return (written.get("metadata") or {}).get("namespace") in (None, "", namespace)


def _resource_of(written: Mapping[str, Any]) -> tuple[str, str]:
    group, slash, _ = str(written.get("apiVersion")).partition("/")
    return group if slash else "", _plural(str(written.get("kind")).lower())


def _plural(kind: str) -> str:
    """As Kubernetes guesses it."""
    if kind.endswith("s") and not kind.endswith("ss"):
        return kind if kind == "endpoints" else f"{kind}es"
    if kind.endswith(("ss", "x", "ch", "sh")):
        return f"{kind}es"
    return f"{kind[:-1]}ies" if kind.endswith("y") and kind[-2:-1] not in "aeiou" else f"{kind}s"


def _forbidden(group: str, resource: str) -> str | None:
    return _FORBIDDEN.get((group, resource)) or _FORBIDDEN.get((group, None))
