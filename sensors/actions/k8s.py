"""The `k8s` action: create, update, patch or delete an object of a Kubernetes cluster.

A created object carries the action's id, and a generated name ends with it: however often the action is repeated,
there is one object.
"""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus
from typing import Any, ClassVar, Literal

from sensors.actions.base import ActionCall, ActionContext, ActionError, SpecModel
from sensors.actions.kube.cluster import APPLY, Address, Cluster, Object, Refusal
from sensors.actions.kube.objects import address_of, change, create_once, delete_if_there, merged
from sensors.actions.kube.policy import LabelWatch
from sensors.actions.kube.spec import ObjectMaker, ObjectSpec
from sensors.patching import forbidden_operation
from sensors.spec.base import Flaw
from sensors.spec.fields import Bool

_JSON_PATCH = "application/json-patch+json"


class K8sSpec(ObjectSpec):
    """Create, update, patch or delete an object of a Kubernetes cluster.

    The cluster is that of `KUBECONFIG`, of the pod's service account, or of `~/.kube/config`. Needs
    `pip install 'kafka-eventbus[kubernetes]'`. An object without `metadata.namespace` belongs to the sensor's.

    What is created is annotated with `eventbus.dev/action-id`, and `generateName` becomes a name that ends with a
    digest of that id: a repeated action finds its object and makes no second one. An object of that name that another
    made is an error. `update` annotates with `eventbus.dev/last-action-id`.
    """

    operation: Literal["create", "update", "patch", "delete"] = "create"
    """`update` merges the source into the object, and `patch` lets the cluster do so; both create what is not there.
    `delete` is content when there is nothing to delete."""
    patchStrategy: Literal[
        "application/merge-patch+json",
        "application/strategic-merge-patch+json",
        "application/json-patch+json",
        "application/apply-patch+yaml",
    ] = "application/merge-patch+json"
    """How `patch` is done. For a JSON patch, the source names the object and has its operations in a list `patch`."""
    liveObject: Bool = False
    """For `update`: put the parameters into the object as the cluster has it. The source only names it."""

    def warnings(self) -> Iterator[Flaw]:
        yield from super().warnings()
        for field, operation in (("patchStrategy", "patch"), ("liveObject", "update")):
            if field in self.model_fields_set and self.operation != operation:
                yield Flaw((field,), f"`{field}` does nothing without `operation: {operation}`")


class K8sAction:
    """Does it over the Kubernetes API. Connections that failed sent nothing; 429 and 5xx are worth another try."""

    Spec: ClassVar[type[SpecModel]] = K8sSpec

    def __init__(self, spec: K8sSpec, context: ActionContext) -> None:
        spec.check("k8s")
        self._spec = spec
        self._namespace = context.namespace
        self._cluster = Cluster()
        self._objects = ObjectMaker(spec, self._cluster, context)
        self._watch = LabelWatch(self._cluster, context.policy.k8s)

    def invoke(self, call: ActionCall) -> str:
        template = self._objects.template(call)
        match self._spec.operation:
            case "create":
                address, done = self._create(self._objects.filled(template, call), call)
            case "update" if self._spec.liveObject:
                address, done = self._update_live(template, call)
            case "update":
                address, done = self._update(self._objects.filled(template, call), call)
            case "patch":
                address, done = self._patch(self._objects.filled(template, call), call)
            case "delete":
                return self._delete(self._objects.filled(template, call))
        self._watch.wait(call, address)
        return f"{done} {address}"

    def close(self) -> None:
        self._cluster.close()

    def _create(self, target: Object, call: ActionCall) -> tuple[Address, str]:
        address, new = create_once(self._cluster, target, call, self._namespace)
        return address, "created" if new else "created before"

    def _update(self, target: Object, call: ActionCall) -> tuple[Address, str]:
        address = address_of(self._cluster, target, self._namespace)
        try:
            _, new = change(self._cluster, address, call, lambda current: merged(current, target))
        except Refusal as refusal:
            if refusal.code != HTTPStatus.NOT_FOUND:
                raise
            return self._create(target, call)
        return address, "updated" if new else "updated before"

    def _update_live(self, template: Object, call: ActionCall) -> tuple[Address, str]:
        address = address_of(self._cluster, template, self._namespace)
        _, new = change(self._cluster, address, call, lambda current: self._objects.filled(current, call))
        return address, "updated" if new else "updated before"

    def _patch(self, target: Object, call: ActionCall) -> tuple[Address, str]:
        address = address_of(self._cluster, target, self._namespace)
        strategy = self._spec.patchStrategy
        body: Any = target
        if strategy == _JSON_PATCH:
            body = target.get("patch")
            if not isinstance(body, list):
                message = "a JSON patch needs the list of its operations as `patch` of the source"
                raise ActionError(message, retriable=False, sent=False)
            fault = forbidden_operation(body, self._spec.object_parameters, self._spec.allowParameters)
            if fault is not None:
                raise ActionError(fault, retriable=False, sent=False)
        try:
            self._cluster.patch(address, body, strategy)
        except Refusal as refusal:
            if refusal.code != HTTPStatus.NOT_FOUND or strategy in (_JSON_PATCH, APPLY):
                raise
            return self._create(target, call)
        return address, "patched"

    def _delete(self, target: Object) -> str:
        address = address_of(self._cluster, target, self._namespace)
        return f"{'deleted' if delete_if_there(self._cluster, address) else 'absent'} {address}"
