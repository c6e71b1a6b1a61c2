"""`make mutants`: plants every bug of `tests.sim.mutants`, runs seeds, and prints in how many each was caught."""

from __future__ import annotations

import argparse
import json
import os
import sys
from multiprocessing import get_context
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from tests.sim.mutants import MUTANTS, run_many

REPORT = Path("build/mutants.json")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--seeds", type=int, default=80)
    options = arguments.parse_args()
    console = Console()
    table = Table("mutant", "caught in", "first")
    results = []
    with get_context("spawn").Pool(os.cpu_count()) as pool, console.status("planting bugs"):
        for result in pool.imap(run_many, [(name, options.seeds) for name in MUTANTS]):
            results.append(result)
            table.add_row(result.name, f"{result.caught} of {result.seeds}", result.first)
    console.print(table)
    caught = sum(bool(result.caught) for result in results)
    console.print(f"{caught} of {len(results)} mutants caught")
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.write_text(json.dumps(msgspec.to_builtins(results), indent=2) + "\n")
    sys.exit(caught < len(results))


if __name__ == "__main__":
    main()
