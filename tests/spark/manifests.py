"""Sensors for these tests, as their authors would write them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def sensor(
    name: str, dependencies: Mapping[str, str | Mapping[str, Any]], triggers: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Dependencies are called as their events are; of each, its source, or what there is to say of one of `shop`."""
    wanted = {key: {"eventSourceName": each} if isinstance(each, str) else each for key, each in dependencies.items()}
    return {
        "apiVersion": "eventbus.dev/v1alpha1",
        "kind": "Sensor",
        "metadata": {"name": name},
        "spec": {
            "dependencies": [
                {"name": key, "eventSourceName": "shop", "eventName": key, **each} for key, each in wanted.items()
            ],
            "triggers": list(triggers),
        },
    }


def logged(name: str, conditions: str, **rules: Any) -> dict[str, Any]:
    """A trigger that only says that it has fired."""
    return {"template": {"name": name, "conditions": conditions, "log": {}, **rules}}
