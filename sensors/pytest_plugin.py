"""Lets pytest run scenarios: an `expected.jsonl` that has a sensor and events beside it is a test.

pytest loads this module in every run of every project that has the package installed, so it imports nothing that is
not needed before a scenario is found.
"""
# ruff: noqa: PLC0415 - see above

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_EXPECTED = "expected.jsonl"
_BESIDE = ("sensor.yaml", "events.jsonl")


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if file_path.name == _EXPECTED and all((file_path.parent / name).is_file() for name in _BESIDE):
        return _ScenarioFile.from_parent(parent, path=file_path)
    return None


class _ScenarioFile(pytest.File):
    def collect(self) -> Iterator[pytest.Item]:
        yield _ScenarioItem.from_parent(self, name=self.path.parent.name)


class _ScenarioItem(pytest.Item):
    def runtest(self) -> None:
        from sensors.scenarios import Scenario

        differences = Scenario.load(self.path.parent).differences()
        if differences:
            raise _Differs("\n".join(["expected (-) and fired (+) differ:", *map(str, differences)]))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], *_: Any, **__: Any) -> str:
        """A person wants to see what differs, not where in this program that was noticed."""
        from eventbus.errors import EventBusError

        if isinstance(excinfo.value, _Differs | EventBusError):
            return str(excinfo.value)
        return str(super().repr_failure(excinfo))

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, 0, f"scenario {self.name}"


class _Differs(Exception):
    """What fired is not what was expected."""
