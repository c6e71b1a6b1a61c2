"""Gates made from what a manifest would say, and sensors around them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from eventbus.events import Event
from eventbus.names import BusName
from sensors.filters.candidate import Candidate, Rejection, ScriptError
from sensors.filters.gate import Gate, compile_gate
from sensors.plan import SensorPlan
from sensors.sensor import Sensor
from sensors.spec.loader import make_manifest
from sensors.spec.models import Dependency

NOON = 12 * 3600 * 1000
"""12:00 UTC on the first of January 1970."""


class NoScripts:
    """For gates without scripts, and for scripts that fail."""

    def lua_filter(self, source: str) -> Callable[[bytes], bool]:
        def fail(_data: bytes) -> bool:
            raise ScriptError(source)

        return fail

    def lua_transform(self, source: str) -> Callable[[bytes], bytes]:
        raise AssertionError(f"no transform was expected here: {source}")

    def jq_transform(self, source: str) -> Callable[[bytes], bytes]:
        raise AssertionError(f"no transform was expected here: {source}")


def gate(filters: Mapping[str, Any], operator: str = "and") -> Gate:
    dependency = Dependency.model_validate(
        {
            "name": "d",
            "eventSourceName": "shop",
            "eventName": "order",
            "filters": filters,
            "filtersLogicalOperator": operator,
        }
    )
    compiled = compile_gate(dependency.filters, dependency.filtersLogicalOperator, None, NoScripts())
    assert compiled is not None
    return compiled


def rejection(filters: Mapping[str, Any], data: Any, *, operator: str = "and", at: int = NOON) -> Rejection | None:
    """Why an event with this data is turned away; None where it passes."""
    event = data if isinstance(data, Event) else Event.new("shop", "order", data, id="1")
    answer = gate(filters, operator).admit(Candidate(event, at))
    return answer if isinstance(answer, Rejection) else None


def plan_of(dependencies: Mapping[str, Mapping[str, Any]], conditions: Mapping[str, str]) -> SensorPlan:
    """A sensor whose dependencies all ask for the event `order` of the source `shop`."""
    manifest = make_manifest(
        {
            "apiVersion": "eventbus.dev/v1alpha1",
            "kind": "Sensor",
            "metadata": {"name": "sensor", "namespace": "ns"},
            "spec": {
                "dependencies": [
                    {"name": name, "eventSourceName": "shop", "eventName": "order", **more}
                    for name, more in dependencies.items()
                ],
                "triggers": [
                    {"template": {"name": name, "conditions": text, "log": {}}} for name, text in conditions.items()
                ],
            },
        }
    )
    return Sensor.of(manifest).blueprint(BusName("ns")).plan
