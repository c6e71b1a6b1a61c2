"""`make chaos MINUTES=…`: real brokers, real replicas, faults of every kind; writes build/chaos.json.

python -m e2e.chaos --minutes 60              the published figure
python -m e2e.chaos --minutes 3 --seed 4711   the same order of faults again

Exits 1 on any finding; build/chaos then has the logs of the replicas and all that is needed to look into it.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
from pathlib import Path

from rich.console import Console

from e2e.chaos.manifest import Mode
from e2e.chaos.report import show, write
from e2e.chaos.run import run
from e2e.chaos.storm import Options

WORKSPACE = Path("build/chaos")


def main() -> None:
    options = _options()
    console = Console()
    shutil.rmtree(WORKSPACE, ignore_errors=True)
    WORKSPACE.mkdir(parents=True)
    report, verdict = run(options, WORKSPACE, console)
    write(report)
    show(console, report, verdict)
    sys.exit(not verdict.clean)


def _options() -> Options:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--minutes", type=float, default=3.0, help="how long the faults last")
    arguments.add_argument("--seed", type=int, default=random.randrange(10**6), help="the order of the faults")
    arguments.add_argument("--dependencies", type=int, default=3, help="each combination of them is a trigger")
    arguments.add_argument("--partitions", type=int, default=5, help="of every topic; the most replicas there are")
    arguments.add_argument("--rate", type=float, default=60.0, help="events per second")
    arguments.add_argument("--mode", type=Mode, choices=list(Mode), default=Mode.BOTH)
    return Options(**vars(arguments.parse_args()))


if __name__ == "__main__":
    main()
