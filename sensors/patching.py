"""Parameters that change a trigger before it is used: argo-events' `parameters`.

They work on JSON. What comes out is checked again like a manifest, because an event has had a say in it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any

from eventbus.events import Event
from sensors.parameters import Parameter, ParameterError, put, resolved, step_keys

_PROTECTED = """
    apiVersion kind serviceAccountName serviceAccount automountServiceAccountToken roleRef securityContext privileged
    hostPath hostNetwork hostPID hostIPC hostUsers nodeName podSpecPatch
"""
"""Fields of Kubernetes objects that decide what an object is and what it may do, wherever in it they are."""
_PROTECTED_NAMES = {name.lower(): name for name in _PROTECTED.split()}
_PROTECTED_PATHS = (("metadata", "namespace"), ("metadata", "ownerReferences"), ("metadata", "finalizers"))


def apply_parameters(template: Any, parameters: Sequence[Parameter], events: Mapping[str, Event]) -> Any:
    """A copy of a JSON-like value with every parameter's value put in. Raises `ParameterError`.

    A parameter of a dependency that has no event (`a || b`) and no default changes nothing.
    """
    patched = deepcopy(template)
    for parameter, value in resolved(parameters, events):
        patched = put(patched, parameter, value)
    return patched


# --- Kubernetes objects ---------------------------------------------------------------------------------------------


def patch_object(
    template: Any, parameters: Sequence[Parameter], events: Mapping[str, Event], allowed: Collection[str] = ()
) -> Any:
    """`apply_parameters` for a Kubernetes object, whose protected fields an event must not touch.

    `allowed` lists the destinations that the sensor's author permits all the same.
    """
    for parameter in parameters:
        fault = forbidden_destination(parameter.dest, template, allowed)
        if fault is not None:
            raise ParameterError(fault)
    for parameter, value in resolved(parameters, events):
        name = next(_protected_inside(value), None)
        if name is not None and not _is_allowed(parameter.dest, allowed):
            raise ParameterError(f"`dest: {parameter.dest}`: an event must not bring its own `{name}`")
    return apply_parameters(template, parameters, events)


def forbidden_destination(dest: str, template: Any, allowed: Collection[str] = ()) -> str | None:
    """Why a parameter must not write there; None where it may."""
    if _is_allowed(dest, allowed):
        return None
    keys = step_keys(dest)
    name = next((_PROTECTED_NAMES[key.lower()] for key in keys if key.lower() in _PROTECTED_NAMES), None)
    name = name or next((".".join(path) for path in _PROTECTED_PATHS if _begins_with(keys, path)), None)
    name = name or next(_protected_inside(_at(template, keys)), None)
    if name is None and len(keys) == 1 and keys[0].lower() == "metadata":
        name = "metadata.namespace"
    if name is None:
        return None
    return f"`dest: {dest}`: an event must not change `{name}`, unless the sensor allows this destination"


def forbidden_operation(
    operations: Sequence[Any], parameters: Sequence[Parameter], allowed: Collection[str] = ()
) -> str | None:
    """Why events must not take part in a JSON patch, whose operations name their fields in texts; None if they may."""
    taking_part = [each for each in parameters if step_keys(each.dest)[0] == "patch"]
    if all(_is_allowed(each.dest, allowed) for each in taking_part):
        return None
    for operation in operations:
        for pointer in (operation.get("path"), operation.get("from")) if isinstance(operation, dict) else ("",):
            keys = [key.replace("~1", "/").replace("~0", "~") for key in str(pointer or "").split("/")[1:]]
            inside = operation.get("value") if isinstance(operation, dict) else None
            name = next((_PROTECTED_NAMES[key.lower()] for key in keys if key.lower() in _PROTECTED_NAMES), None)
            name = name or next((".".join(path) for path in _PROTECTED_PATHS if _begins_with(keys, path)), None)
            name = name or next(_protected_inside(inside), None)
            if name is not None:
                return f"an event must not take part in a JSON patch of `{name}`, unless the sensor allows the `dest`"
    return None


def _is_allowed(dest: str, allowed: Collection[str]) -> bool:
    return any(step_keys(dest) == step_keys(each) for each in allowed)


def _begins_with(keys: Sequence[str], path: Sequence[str]) -> bool:
    """Kubernetes used to read field names in any case, and some readers still do."""
    return [key.lower() for key in keys[: len(path)]] == [key.lower() for key in path]


def _at(value: Any, keys: Sequence[str]) -> Any:
    for key in keys:
        if isinstance(value, dict):
            value = value.get(key)
        elif isinstance(value, list) and key.isdigit() and int(key) < len(value):
            value = value[int(key)]
        else:
            return None
    return value


def _protected_inside(value: Any) -> Iterator[str]:
    """Protected fields below a value: to replace the whole is to change them, too."""
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            yield from (_PROTECTED_NAMES[key.lower()] for key in value if key.lower() in _PROTECTED_NAMES)
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
