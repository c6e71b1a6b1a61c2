"""The sensor that is tormented: a trigger for every combination of its dependencies."""

from __future__ import annotations

from enum import StrEnum
from itertools import combinations
from string import ascii_lowercase

import yaml

CALL_SECONDS = 2


class Mode(StrEnum):
    """Which delivery modes the triggers have."""

    BOTH = "both"
    AT_LEAST_ONCE = "at-least-once"
    AT_MOST_ONCE = "at-most-once"


def dependencies(count: int) -> list[str]:
    return list(ascii_lowercase[:count])


def manifest(names: list[str], mode: Mode, url: str) -> str:
    """Every non-empty combination of the dependencies, joined by `&&`."""
    groups = [group for size in range(1, len(names) + 1) for group in combinations(names, size)]
    return yaml.safe_dump(
        {
            "apiVersion": "argoproj.io/v1alpha1",
            "kind": "Sensor",
            "metadata": {"name": "chaos"},
            "spec": {
                "startFrom": "earliest",
                "dependencies": [{"name": name, "eventSourceName": "shop", "eventName": name} for name in names],
                "triggers": [_trigger(group, url, _is_at_least_once(mode, n)) for n, group in enumerate(groups)],
            },
        },
        sort_keys=False,
    )


def _is_at_least_once(mode: Mode, number: int) -> bool:
    return number % 2 == 0 if mode is Mode.BOTH else mode is Mode.AT_LEAST_ONCE


def _trigger(group: tuple[str, ...], url: str, at_least_once: bool) -> dict[str, object]:
    name = "-".join(group)
    return {
        "template": {
            "name": name,
            "conditions": " && ".join(group),
            "http": {"url": f"{url}/{name}", "timeout": CALL_SECONDS},
        },
        "atLeastOnce": at_least_once,
        # Longer than the sink is ever in a bad mood.
        "retryStrategy": {"steps": 200, "duration": "250ms", "factor": 1.0, "jitter": 1.0},
    }
