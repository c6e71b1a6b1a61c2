"""The `argoWorkflow` action: what the `argo` command does with workflows, done through the Kubernetes API."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, ClassVar, Literal, TypeAlias
from urllib.parse import urlencode

from sensors.actions.base import ActionCall, ActionContext, ActionError, SpecModel
from sensors.actions.kube import workflows
from sensors.actions.kube.arguments import parse_arguments
from sensors.actions.kube.cluster import Address, Cluster, Object
from sensors.actions.kube.objects import (
    address_of,
    annotation,
    change,
    create_once,
    delete_if_there,
    metadata_of,
    namespace_of,
)
from sensors.actions.kube.policy import LabelWatch
from sensors.actions.kube.spec import ObjectMaker, ObjectSpec
from sensors.spec.base import Flaw, get
from sensors.spec.fields import Text

Make: TypeAlias = Callable[[Object], Object | None]


def _now() -> datetime:
    return datetime.now(UTC)


_CHANGES: dict[str, tuple[Make, str]] = {
    "suspend": (workflows.suspended, "suspended"),
    "resume": (lambda workflow: workflows.resumed(workflow, _now()), "resumed"),
    "terminate": (lambda workflow: workflows.shut_down(workflow, "Terminate"), "terminated"),
    "stop": (lambda workflow: workflows.shut_down(workflow, "Stop"), "stopped"),
}


class ArgoWorkflowSpec(ObjectSpec):
    """Submit an Argo Workflow, or change one that is there.

    argo-events runs the `argo` command; here the Workflow object is written as that command writes it, over the
    Kubernetes API and with the settings of `k8s`. No Argo server is needed, and none is asked, so that these differ:
    a new Workflow is checked by its controller and not before it is created; no `creator` label is set; `retry` and
    `resume` are refused where Argo keeps the steps in its own database (`offloadNodeStatusVersion`); `retry` begins at
    the steps that failed, without `--restart-successful` and `--node-field-selector`; `resubmit` without `--memoized`.

    Repetitions make no second Workflow, see `k8s`, and change none twice.
    """

    operation: Literal["submit", "submit-from", "suspend", "resubmit", "retry", "resume", "terminate", "stop"] = (
        "submit"
    )
    """What to do. `submit-from` takes the name of a `WorkflowTemplate`, `ClusterWorkflowTemplate` or `CronWorkflow`;
    the rest, but `submit`, the name of a `Workflow`."""
    args: tuple[Text, ...] = ()
    """Flags of the `argo` command. For `submit` and `submit-from`: `-p`, `--parameter`, `-l`, `--labels`,
    `--entrypoint`, `--name`, `--generate-name`, `--serviceaccount`, `--priority`; for `resubmit` and `retry`: `-p`,
    `--parameter`."""

    @classmethod
    def flaws(cls, data: Any) -> Iterator[Flaw]:
        operation, words = get(data, "operation") or "submit", get(data, "args")
        if isinstance(words, list | tuple) and all(isinstance(word, str) for word in words):
            try:
                parse_arguments(words, operation)
            except ValueError as error:
                yield Flaw(("args",), str(error))


class ArgoWorkflowAction:
    """Writes Workflows; the workflow controller does the rest."""

    Spec: ClassVar[type[SpecModel]] = ArgoWorkflowSpec

    def __init__(self, spec: ArgoWorkflowSpec, context: ActionContext) -> None:
        spec.check("argoWorkflow")
        self._operation = spec.operation
        self._arguments = parse_arguments(spec.args, spec.operation)
        self._namespace = context.namespace
        self._cluster = Cluster()
        self._objects = ObjectMaker(spec, self._cluster, context)
        self._watch = LabelWatch(self._cluster, context.policy.k8s)

    def invoke(self, call: ActionCall) -> str:
        target = self._objects.filled(self._objects.template(call), call)
        address, done = self._carry_out(target, call)
        self._watch.wait(call, address)
        return f"{done} {address}"

    def close(self) -> None:
        self._cluster.close()

    def _carry_out(self, target: Object, call: ActionCall) -> tuple[Address, str]:
        match self._operation:
            case "submit":
                return self._create(target, call)
            case "submit-from":
                return self._submit_from(target, call)
            case "resubmit":
                return self._resubmit(target, call)
            case "retry":
                return self._retry(target, call)
            case operation:
                return self._change(target, call, *_CHANGES[operation])

    # --- new workflows ----------------------------------------------------------------------------------------------

    def _create(self, workflow: Object, call: ActionCall) -> tuple[Address, str]:
        if workflow.get("kind") != "Workflow":
            raise ActionError(f"a `{workflow.get('kind')}` cannot be submitted", retriable=False, sent=False)
        workflow = workflows.submitted(workflow, self._arguments)
        address, new = create_once(self._cluster, workflow, call, self._namespace)
        return address, "submitted" if new else "submitted before"

    def _submit_from(self, target: Object, call: ActionCall) -> tuple[Address, str]:
        if target.get("kind") not in workflows.ORIGINS:
            message = f"a workflow cannot be made from a `{target.get('kind')}`; {' or '.join(workflows.ORIGINS)} it is"
            raise ActionError(message, retriable=False, sent=False)
        origin = self._cluster.get(address_of(self._cluster, target, self._namespace))
        workflow = workflows.from_origin({**origin, "kind": target["kind"]})
        metadata_of(workflow)["namespace"] = namespace_of(target, self._namespace)
        return self._create(workflow, call)

    def _resubmit(self, target: Object, call: ActionCall) -> tuple[Address, str]:
        before = self._cluster.get(self._address(target))
        workflow = workflows.resubmitted(before, self._arguments)
        address, new = create_once(self._cluster, workflow, call, self._namespace)
        return address, "resubmitted" if new else "resubmitted before"

    # --- workflows that are there -----------------------------------------------------------------------------------

    def _change(self, target: Object, call: ActionCall, make: Make, participle: str) -> tuple[Address, str]:
        address, new = change(self._cluster, self._address(target), call, make)
        return address, participle if new else f"{participle} before"

    def _retry(self, target: Object, call: ActionCall) -> tuple[Address, str]:
        """Pods go first: the controller takes up pods that it finds, and these have failed."""

        deleted = False

        def retried(current: Object) -> Object:
            nonlocal deleted
            changed, failed = workflows.retried(current, self._arguments, _now())
            deleted = self._delete_pods(current, failed) or deleted
            return changed

        try:
            return self._change(target, call, retried, "retried")
        except ActionError as error:
            if deleted and not error.sent:  # pods are gone, whatever became of the rest
                raise ActionError(str(error), retriable=error.retriable, sent=True, status=error.status) from None
            raise

    def _delete_pods(self, workflow: Object, nodes: set[str]) -> bool:
        """Returns whether there were any."""
        metadata = metadata_of(workflow)
        pods, namespace = self._cluster.type_of("v1", "Pod"), metadata["namespace"]
        query = urlencode({"labelSelector": f"{workflows.WORKFLOW_OF_POD}={metadata['name']}"})
        deleted = False
        for pod in self._cluster.list(pods, namespace, query):
            name = metadata_of(pod)["name"]
            if annotation(pod, workflows.NODE_OF_POD) in nodes or name in nodes:
                address = Address(pods, namespace, name)
                deleted = delete_if_there(self._cluster, address) or deleted
        return deleted

    def _address(self, target: Object) -> Address:
        named = {"apiVersion": workflows.API_VERSION, "kind": "Workflow", "metadata": metadata_of(target)}
        return address_of(self._cluster, named, self._namespace)
