"""Kubernetes objects as actions make them: recognisable, so that a repetition makes none twice."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from copy import deepcopy
from hashlib import blake2b
from http import HTTPStatus
from typing import Any

from eventbus.errors import ConfigError
from sensors.actions.base import ActionCall, ActionError
from sensors.actions.kube.cluster import Address, Cluster, Object, Refusal
from sensors.spec.problems import ManifestError
from sensors.spec.yamltree import plain, read_tree

CREATED_BY = "eventbus.dev/action-id"
"""The annotation of an object that an action has made."""
CHANGED_BY = "eventbus.dev/last-action-id"
"""The annotation of an object that an action has changed last."""
SENSOR_LABEL = "events.argoproj.io/sensor"
TRIGGER_LABEL = "events.argoproj.io/trigger"
TIME_LABEL = "events.argoproj.io/action-timestamp"
_SUFFIX_BYTES = 6
_MAX_GENERATED = 63
_CONFLICTS = 5
_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")


def parse_object(text: str, where: str) -> Object:
    """The one object in a YAML or JSON text. Raises `ConfigError`."""
    try:
        tree = read_tree(text, where)
    except ManifestError as error:
        raise ConfigError(str(error)) from None
    if tree.problems:
        raise ConfigError("; ".join(str(problem) for problem in tree.problems))
    if len(tree.documents) != 1:
        raise ConfigError(f"{where}: there are {len(tree.documents)} objects, and one is expected")
    target = plain(tree.documents[0])
    fault = object_fault(target)
    if fault is not None:
        raise ConfigError(f"{where}: {fault}")
    assert isinstance(target, dict)  # noqa: S101 - see object_fault
    return target


def object_fault(target: Any) -> str | None:
    """Why this cannot be a Kubernetes object."""
    if not isinstance(target, dict):
        return "a Kubernetes object must be a mapping"
    for field in ("apiVersion", "kind"):
        if not isinstance(target.get(field), str) or not target[field]:
            return f"a Kubernetes object needs its `{field}`"
    if not isinstance(target.get("metadata", {}), dict):
        return "the `metadata` of a Kubernetes object must be a mapping"
    return None


def metadata_of(target: Object) -> Object:
    """The object's own metadata, to be read or changed."""
    found = target.setdefault("metadata", {})
    if not isinstance(found, dict):
        raise ActionError("the `metadata` of the object is not a mapping", retriable=False, sent=False)
    return found


def name_of(target: Object) -> str:
    """Raises `ActionError`: most operations are about an object that is there already."""
    name = metadata_of(target).get("name")
    if not isinstance(name, str) or not name:
        raise ActionError("the object has no `metadata.name`, which the operation needs", retriable=False, sent=False)
    return name


def namespace_of(target: Object, default: str) -> str:
    return str(metadata_of(target).get("namespace") or default)


def address_of(cluster: Cluster, target: Object, default_namespace: str) -> Address:
    """Where the object is, or will be, if it has a name."""
    type_ = cluster.type_of(str(target.get("apiVersion")), str(target.get("kind")))
    return Address(type_, namespace_of(target, default_namespace), name_of(target))


def identified(target: Object, call: ActionCall) -> Object:
    """A copy with the action's id as an annotation, and as the end of a generated name: the same at every attempt."""
    target = deepcopy(target)
    metadata = metadata_of(target)
    if not metadata.get("name"):
        prefix = metadata.pop("generateName", None)
        if not isinstance(prefix, str) or not prefix:
            raise ActionError("the object has neither a `name` nor a `generateName`", retriable=False, sent=False)
        suffix = blake2b(call.id.encode(), digest_size=_SUFFIX_BYTES).hexdigest()
        metadata["name"] = prefix[: _MAX_GENERATED - len(suffix)] + suffix
    _section(metadata, "annotations")[CREATED_BY] = call.id
    labels = _section(metadata, "labels")
    for name, value in ((SENSOR_LABEL, call.sensor), (TRIGGER_LABEL, call.trigger)):
        if _LABEL_VALUE.fullmatch(value):  # else Kubernetes would refuse the whole object
            labels[name] = value
    labels[TIME_LABEL] = str(time.time_ns() // 1_000_000)
    return target


def create_once(cluster: Cluster, target: Object, call: ActionCall, default_namespace: str) -> tuple[Address, bool]:
    """Create an object, unless an earlier attempt at this action has. Returns where it is, and whether it is new."""
    target = identified(target, call)
    address = address_of(cluster, target, default_namespace)
    try:
        cluster.create(address, target)
    except Refusal as refusal:
        if refusal.reason != "AlreadyExists":
            raise
        if annotation(cluster.get(address), CREATED_BY) != call.id:
            message = f"{address} is there already, and not made by this action"
            raise ActionError(message, retriable=False, sent=False, status="409") from None
        return address, False
    return address, True


def change(
    cluster: Cluster, address: Address, call: ActionCall, make: Callable[[Object], Object | None]
) -> tuple[Address, bool]:
    """Read an object, let `make` change it, write it back; again when somebody else was faster.

    Nothing is written when `make` returns None, or when an earlier attempt at this action has done it.
    """
    for _ in range(_CONFLICTS):
        current = cluster.get(address)
        changed = None if annotation(current, CHANGED_BY) == call.id else make(current)
        if changed is None:
            return address, False
        _section(metadata_of(changed), "annotations")[CHANGED_BY] = call.id
        try:
            cluster.replace(address, changed)
        except Refusal as refusal:
            if refusal.reason != "Conflict":
                raise
        else:
            return address, True
    message = f"{address} was changed by others {_CONFLICTS} times while it was being changed"
    raise ActionError(message, retriable=True, sent=False, status="409")


def delete_if_there(cluster: Cluster, address: Address) -> bool:
    """Whether there was something to delete."""
    try:
        cluster.delete(address)
    except Refusal as refusal:
        if refusal.code != HTTPStatus.NOT_FOUND:
            raise
        return False
    return True


def annotation(target: Object, name: str) -> Any:
    return _section(metadata_of(target), "annotations").get(name)


def merged(base: Any, over: Any) -> Any:
    """`base` with everything that `over` says; lists are replaced, and what is empty in `over` changes nothing."""
    if isinstance(base, dict) and isinstance(over, dict):
        return {**base, **{key: merged(base.get(key), value) for key, value in over.items()}}
    return base if over in (None, "", [], {}) and base is not None else over


def _section(metadata: Object, name: str) -> Object:
    section = metadata.get(name)
    if not isinstance(section, dict):
        section = metadata[name] = {}
    return section
