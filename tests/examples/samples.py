"""The example folders, and how what happened is compared with what an example promises."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path

from sensors import Sensor
from sensors.scenarios import Firing, Scenario
from sensors.spec.loader import load_text

ROOT = Path(__file__).parents[2] / "examples"


class Example:
    """One folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def text(self, file: str, replacements: Mapping[str, str] | None = None) -> str:
        """A file of the example, with the replacements that a test's surroundings ask for."""
        text = (self.folder / file).read_text()
        for old, new in (replacements or {}).items():
            if old not in text:
                raise AssertionError(f"{self.folder.name}/{file} does not contain {old}")
            text = text.replace(old, new)
        return text

    def sensor(self, file: str = "sensor.yaml", replacements: Mapping[str, str] | None = None) -> Sensor:
        [manifest] = load_text(self.text(file, replacements), file)
        return Sensor.of(manifest)

    @cached_property
    def scenario(self) -> Scenario:
        return Scenario.load(self.folder)

    def lanes(self, actions: Iterable[Firing]) -> dict[tuple[str, frozenset[bytes | None]], list[Firing]]:
        """What has an order on a real Kafka: the actions of one trigger whose events have the same key."""
        keys = {event.id: event.key for event in self.scenario.events}
        lanes = defaultdict(list)
        for action in actions:
            events = [event for ids in action.events.values() for event in ([ids] if isinstance(ids, str) else ids)]
            lanes[action.trigger, frozenset(keys[event] for event in events)].append(action)
        return dict(lanes)


def names() -> list[str]:
    return sorted(folder.name for folder in ROOT.iterdir() if folder.is_dir())


def with_manifest() -> list[str]:
    return [name for name in names() if (ROOT / name / "sensor.yaml").exists()]
