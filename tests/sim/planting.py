"""How a bug is planted: a small patch of behaviour, applied at run time."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any
from unittest.mock import patch

Patch = Callable[[], AbstractContextManager[Any]]
MUTANTS: dict[str, Patch] = {}


def mutant(target: object, attribute: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The decorated function takes the place of a method. It gets the original as its first argument."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        original = getattr(target, attribute)

        def replacement(*arguments: Any, **keywords: Any) -> Any:
            return function(original, *arguments, **keywords)

        MUTANTS[function.__name__.replace("_", " ")] = lambda: patch.object(target, attribute, replacement)
        return function

    return register


def mutants(name: str, *patches: Patch) -> None:
    """One bug in several places."""

    def plant() -> AbstractContextManager[Any]:
        stack = ExitStack()
        for each in patches:
            stack.enter_context(each())
        return stack

    MUTANTS[name] = plant
