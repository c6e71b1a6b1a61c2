"""Scenarios: a sensor, events, and what they are expected to do. For `eventbus test`, for pytest and for examples.

A scenario is a folder with three files. No broker is needed: the events go through the same match and join as in
production (`sensors.explain`), in the order of the file.

    sensor.yaml       one Sensor
    events.jsonl      events, as for `eventbus send --file`
    expected.jsonl    what fires, in order: {"trigger": "ship", "events": {"paid": "paid-1", "packed": "packed-1"}}
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from pathlib import Path

import msgspec

from eventbus.errors import ConfigError
from eventbus.events import Event
from eventbus.jsonl import read_events
from eventbus.names import BusName
from sensors.explain import Explainer
from sensors.sensor import Sensor

SENSOR, EVENTS, EXPECTED = "sensor.yaml", "events.jsonl", "expected.jsonl"


class Firing(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Which events made which trigger fire."""

    trigger: str
    events: Mapping[str, str | list[str]]
    """The id of the event of each dependency; a list where the trigger counts several."""
    outcome: str | None = None
    """What becomes of the action. Not known before it is invoked: nothing that runs offline looks at it."""
    attempts: int | None = None
    """How often it is tried. The same goes for it."""

    def plain(self) -> Firing:
        """Without what only an invocation can tell."""
        return Firing(self.trigger, self.events)

    def __str__(self) -> str:
        return msgspec.json.encode(self.plain(), order="sorted").decode()


class Difference(msgspec.Struct, frozen=True):
    """Something that was expected and did not fire, or the other way round. `place` is a line of `expected.jsonl`."""

    sign: str
    place: str
    firing: Firing

    def __str__(self) -> str:
        return f"{self.sign} {self.firing}"


class Scenario(msgspec.Struct, frozen=True):
    """One folder, read."""

    folder: Path
    sensor: Sensor
    events: Sequence[Event]
    expected: Sequence[Firing]

    @classmethod
    def load(cls, folder: Path) -> Scenario:
        """Raises `ConfigError` (or `ManifestError`), naming file and line."""
        expected = list(_read_expected(folder / EXPECTED))
        return cls(folder, Sensor.load(folder / SENSOR), list(read_events(folder / EVENTS)), expected)

    def run(self) -> list[Firing]:
        """What fires, in order. Nothing is invoked."""
        explainer = Explainer(self.sensor.blueprint(BusName()).plan)
        return [Firing(each.trigger, each.events) for event in self.events for each in explainer.feed(event).fired]

    def differences(self) -> list[Difference]:
        """What is missing (`-`) and what is too much (`+`), in order; none where all is as expected."""
        wanted, found = [firing.plain() for firing in self.expected], self.run()
        comparison = SequenceMatcher(a=[*map(str, wanted)], b=[*map(str, found)], autojunk=False)
        differences = []
        for tag, wanted_from, wanted_to, found_from, found_to in comparison.get_opcodes():
            if tag != "equal":
                missing = enumerate(wanted[wanted_from:wanted_to], start=wanted_from + 1)
                differences += [Difference("-", f"{self.folder / EXPECTED}:{line}", each) for line, each in missing]
                place = f"{self.folder / EXPECTED}:{min(wanted_from + 1, max(len(wanted), 1))}"
                differences += [Difference("+", place, each) for each in found[found_from:found_to]]
        return differences


def find_scenarios(paths: Sequence[Path]) -> Iterator[Path]:
    """These folders, or those below them, that say what they expect; what is hidden stays so."""
    for path in paths:
        folders = [path] if (path / EXPECTED).is_file() else sorted(each.parent for each in path.rglob(EXPECTED))
        visible = [each for each in folders if not any(part.startswith(".") for part in each.relative_to(path).parts)]
        scenarios = [each for each in visible if (each / SENSOR).is_file() and (each / EVENTS).is_file()]
        if not scenarios:
            raise ConfigError(f"{path}: there is no folder with {SENSOR}, {EVENTS} and {EXPECTED} here")
        yield from scenarios


def _read_expected(file: Path) -> Iterator[Firing]:
    try:
        lines = file.read_bytes().splitlines()
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}") from None
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                yield msgspec.json.decode(line, type=Firing)
            except (msgspec.DecodeError, RecursionError) as error:
                example = '{"trigger": "ship", "events": {"paid": "paid-1"}}'
                raise ConfigError(f"{file}:{number}: {error}. A line looks like this: {example}") from None
