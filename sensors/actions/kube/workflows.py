"""What the operations on Argo Workflows mean for the Workflow object, as the `argo` command does them. No IO.

The workflow controller sees nothing but the object, so that whoever writes it as the command would gets the same.
Fields of a Workflow are as argo-workflows v3 has them.
"""

from __future__ import annotations

import zlib
from base64 import b64decode
from collections.abc import Iterable, Mapping
from copy import deepcopy
from datetime import UTC, datetime
from typing import Any

import msgspec

from sensors.actions.base import ActionError
from sensors.actions.kube.arguments import Arguments
from sensors.actions.kube.cluster import Object

API_VERSION = "argoproj.io/v1alpha1"
_PREFIX = "workflows.argoproj.io/"
COMPLETED = f"{_PREFIX}completed"
WORKFLOW_OF_POD = f"{_PREFIX}workflow"
NODE_OF_POD = f"{_PREFIX}node-id"
_PREVIOUS = f"{_PREFIX}resubmitted-from-workflow"
_ARCHIVING = f"{_PREFIX}workflow-archiving-status"
_INSTANCE = f"{_PREFIX}controller-instanceid"
_CREATORS = tuple(f"{_PREFIX}{name}" for name in ("creator", "creator-email", "creator-preferred-username"))
_NOT_CARRIED_OVER = frozenset((*_CREATORS, f"{_PREFIX}phase", COMPLETED, _ARCHIVING))
_ORIGIN_LABELS = {
    "WorkflowTemplate": f"{_PREFIX}workflow-template",
    "ClusterWorkflowTemplate": f"{_PREFIX}cluster-workflow-template",
    "CronWorkflow": f"{_PREFIX}cron-workflow",
}
ORIGINS = tuple(_ORIGIN_LABELS)
_GROUPS = frozenset(("Steps", "StepGroup", "DAG", "TaskGroup", "Retry"))
_FAILED = frozenset(("Failed", "Error"))
_MAX_NODES_BYTES = 64 * 1024 * 1024


def submitted(workflow: Object, arguments: Arguments) -> Object:
    """A Workflow with what the flags of `argo submit` change."""
    workflow = deepcopy(workflow)
    metadata, spec = _part(workflow, "metadata"), _part(workflow, "spec")
    if arguments.name:
        metadata["name"] = arguments.name
    if arguments.generate_name:
        metadata["generateName"] = arguments.generate_name
    if arguments.labels:
        _part(metadata, "labels").update(arguments.labels)
    if arguments.entrypoint:
        spec["entrypoint"] = arguments.entrypoint
    if arguments.service_account:
        spec["serviceAccountName"] = arguments.service_account
    if arguments.priority is not None:
        spec["priority"] = arguments.priority
    _override(spec, arguments.parameters)
    return workflow


def from_origin(origin: Object) -> Object:
    """The Workflow that `argo submit --from` makes of a template or a CronWorkflow."""
    kind, name = origin["kind"], origin["metadata"]["name"]
    given = _part(origin, "spec")
    wanted = given.get("workflowMetadata") or {}
    workflow: Object = {
        "apiVersion": API_VERSION,
        "kind": "Workflow",
        "metadata": {
            "generateName": f"{name}-",
            "labels": {**(wanted.get("labels") or {}), _ORIGIN_LABELS[kind]: name},
            "annotations": dict(wanted.get("annotations") or {}),
        },
    }
    metadata = workflow["metadata"]
    if kind != "CronWorkflow":
        reference = {"name": name, **({"clusterScope": True} if kind.startswith("Cluster") else {})}
        return {**workflow, "spec": {"workflowTemplateRef": reference}}
    instance = (origin["metadata"].get("labels") or {}).get(_INSTANCE)
    if instance is not None:
        metadata["labels"][_INSTANCE] = instance
    metadata["ownerReferences"] = [
        {
            "apiVersion": API_VERSION,
            "kind": kind,
            "name": name,
            "uid": origin["metadata"].get("uid", ""),
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]
    return {**workflow, "spec": deepcopy(_part(given, "workflowSpec"))}


def resubmitted(workflow: Object, arguments: Arguments) -> Object:
    """A new Workflow that does the same as this one, from the beginning."""
    old, spec = _part(workflow, "metadata"), deepcopy(_part(workflow, "spec"))
    labels = {name: value for name, value in (old.get("labels") or {}).items() if name not in _NOT_CARRIED_OVER}
    metadata = {
        "generateName": old.get("generateName") or f"{old['name']}-",
        "namespace": old["namespace"],
        "labels": {**labels, _PREVIOUS: old["name"]},
        "annotations": dict(old.get("annotations") or {}),
    }
    if old.get("ownerReferences"):
        metadata["ownerReferences"] = deepcopy(old["ownerReferences"])
    _reopen(spec)
    _override(spec, arguments.parameters)
    return {"apiVersion": API_VERSION, "kind": "Workflow", "metadata": metadata, "spec": spec}


def suspended(workflow: Object) -> Object | None:
    """None when it is suspended already."""
    _check_running(workflow, "suspended")
    if _part(workflow, "spec").get("suspend") is True:
        return None
    workflow["spec"]["suspend"] = True
    return workflow


def resumed(workflow: Object, now: datetime) -> Object | None:
    """None when nothing waits: neither the whole, nor a suspended step."""
    changed = _part(workflow, "spec").pop("suspend", None) is True
    for node in _nodes(workflow).values():
        if node.get("type") == "Suspend" and node.get("phase") == "Running":
            _supply_defaults(node)
            node.update(phase="Succeeded", finishedAt=_timestamp(now))
            changed = True
    return workflow if changed else None


def shut_down(workflow: Object, how: str) -> Object | None:
    """`Terminate` ends it at once, `Stop` lets its exit handlers run. None when that has been asked for already."""
    _check_running(workflow, "stopped")
    if _part(workflow, "spec").get("shutdown") == how:
        return None
    workflow["spec"]["shutdown"] = how
    return workflow


def retried(workflow: Object, arguments: Arguments, now: datetime) -> tuple[Object, set[str]]:
    """A failed Workflow that goes on where it failed, and the ids of the nodes whose pods must go first.

    Steps that failed, and what came after them, are forgotten; the groups around them run again; the rest is kept.
    """
    status = _part(workflow, "status")
    if status.get("phase") not in _FAILED:
        phase = status.get("phase") or "Pending"
        raise _impossible(f"only a failed workflow can be retried, and this one is {phase}")
    nodes = _nodes(workflow)
    root = workflow["metadata"]["name"]
    forgotten = _forgotten(nodes, root)
    kept = {key: _reset(node, now) for key, node in nodes.items() if key not in forgotten}
    for node in kept.values():
        for links in ("children", "outboundNodes"):
            if links in node:
                node[links] = [each for each in node[links] if each not in forgotten]
    for label in (COMPLETED, _ARCHIVING):
        _part(workflow["metadata"], "labels").pop(label, None)
    conditions = [each for each in status.get("conditions") or () if each.get("type") != "Completed"]
    for field in ("message", "finishedAt", "persistentVolumeClaims"):
        status.pop(field, None)
    status.update(phase="", nodes=kept, startedAt=_timestamp(now))
    status["conditions"] = [*conditions, {"type": "Completed", "status": "False"}]
    if isinstance(status.get("storedWorkflowTemplateSpec"), dict):
        _reopen(status["storedWorkflowTemplateSpec"])
    _reopen(_part(workflow, "spec"))
    _override(workflow["spec"], arguments.parameters)
    return workflow, {key for key in forgotten if nodes[key].get("type") == "Pod"}


# --- nodes ----------------------------------------------------------------------------------------------------------


def _nodes(workflow: Object) -> dict[str, Object]:
    """The steps of a workflow, unpacked where the controller has packed them."""
    status = _part(workflow, "status")
    if status.get("offloadNodeStatusVersion"):
        raise _impossible("its steps are kept in Argo's own database, which only an Argo server can change")
    packed = status.pop("compressedNodes", "")
    if packed:
        status["nodes"] = _unpacked(packed)
    return _part(status, "nodes")


def _unpacked(packed: str) -> Any:
    try:
        unzip = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
        plain = unzip.decompress(b64decode(packed), _MAX_NODES_BYTES)
        if not unzip.eof:
            raise _impossible("its steps are too many")
        return msgspec.json.decode(plain)
    except (ValueError, zlib.error, msgspec.DecodeError):
        raise _impossible("its `compressedNodes` cannot be read") from None


def _forgotten(nodes: Mapping[str, Object], root: str) -> set[str]:
    """Exit handlers, steps that failed or were left out, and all that came after those."""
    exits = {key for key, node in nodes.items() if str(node.get("name", "")).startswith(f"{root}.onExit")}
    failed = {
        key
        for key, node in nodes.items()
        if node.get("type") not in _GROUPS
        and (node.get("phase") == "Omitted" or (node.get("phase") in _FAILED and not _went_on(nodes, key)))
    }
    return exits | failed | _descendants(nodes, failed)


def _went_on(nodes: Mapping[str, Object], key: str) -> bool:
    """Whether a step may have failed (`continueOn`), so that others after it succeeded."""
    return any(nodes[each].get("phase") == "Succeeded" for each in _descendants(nodes, (key,)))


def _descendants(nodes: Mapping[str, Object], keys: Iterable[str]) -> set[str]:
    found: set[str] = set()
    waiting = [child for key in keys for child in nodes[key].get("children") or ()]
    while waiting:
        key = waiting.pop()
        if key not in found and key in nodes:
            found.add(key)
            waiting += nodes[key].get("children") or ()
    return found


def _reset(node: Object, now: datetime) -> Object:
    if node.get("type") not in _GROUPS or node.get("phase") not in (*_FAILED, "Omitted"):
        return node
    node = {name: value for name, value in node.items() if name not in ("message", "finishedAt")}
    return {**node, "phase": "Running", "startedAt": _timestamp(now)}


def _supply_defaults(node: Object) -> None:
    for parameter in (node.get("outputs") or {}).get("parameters") or ():
        value_from = parameter.get("valueFrom") or {}
        if "supplied" in value_from:
            if "default" not in value_from:
                raise _impossible(f"a step waits for the output `{parameter.get('name')}`, which has no default")
            parameter["value"] = value_from["default"]
            del parameter["valueFrom"]


# --- small parts ----------------------------------------------------------------------------------------------------


def _check_running(workflow: Object, participle: str) -> None:
    if (workflow["metadata"].get("labels") or {}).get(COMPLETED) == "true":
        raise _impossible(f"a workflow that has ended cannot be {participle}")


def _override(spec: Object, parameters: Mapping[str, str]) -> None:
    if not parameters:
        return
    arguments = _part(spec, "arguments")
    others = [each for each in arguments.get("parameters") or () if each.get("name") not in parameters]
    arguments["parameters"] = [*({"name": name, "value": value} for name, value in parameters.items()), *others]


def _reopen(spec: Object) -> None:
    """Take back what ended it."""
    spec.pop("shutdown", None)
    if spec.get("activeDeadlineSeconds") == 0:
        del spec["activeDeadlineSeconds"]


def _part(owner: Object, name: str) -> Object:
    part = owner.get(name)
    if not isinstance(part, dict):
        part = owner[name] = {}
    return part


def _timestamp(now: datetime) -> str:
    return now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _impossible(reason: str) -> ActionError:
    return ActionError(f"the workflow: {reason}", retriable=False, sent=False)
