"""A whole sensor on the in-memory bus, and ways to make its log fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

from eventbus import Bus
from eventbus.errors import LogError
from tests.pipeline.world import World

Failing = Callable[[type, str, LogError, range], None]


@pytest.fixture
def world() -> Iterator[World]:
    with World(Bus.memory()) as world:
        yield world


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Failing:
    """Lets some calls of a method fail, which are counted from 0."""

    def fail(owner: type, method: str, error: LogError, calls: range) -> None:
        original, number = getattr(owner, method), count()

        def perhaps(*arguments: Any, **keywords: Any) -> Any:
            if next(number) in calls:
                raise error
            return original(*arguments, **keywords)

        monkeypatch.setattr(owner, method, perhaps)

    return fail
