"""Planted protocol bugs, which the simulator has to catch.

`make mutants` (`tests.sim.planted`) runs each of them on a number of seeds and tells in how many it was caught.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

import tests.sim.bugs_core
import tests.sim.bugs_keyed
import tests.sim.bugs_loop  # noqa: F401 - they fill the list
from tests.sim.planting import MUTANTS
from tests.sim.simulation import run_seed

__all__ = ["MUTANTS", "Result", "run", "run_many"]


class Result(msgspec.Struct):
    """In how many seeds a mutant was caught, and how at first."""

    name: str
    seeds: int
    caught: int
    first: str


def run(name: str, seeds: Iterable[int], *, stop_at_first: bool = False) -> Result:
    result = Result(name, 0, 0, "")
    with MUTANTS[name]():
        for seed in seeds:
            found = _caught(seed)
            result.seeds += 1
            if found:
                result.caught += 1
                result.first = result.first or f"seed {seed}: {found[:120]}"
                if stop_at_first:
                    break
    return result


def run_many(arguments: tuple[str, int]) -> Result:
    name, seeds = arguments
    return run(name, range(seeds))


def _caught(seed: int) -> str:
    try:
        report = run_seed(seed)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "" if report.clean else "; ".join(map(str, report.violations))
