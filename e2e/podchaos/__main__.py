"""`make podchaos`: pods deleted on a real cluster while events flow; writes build/podchaos.json.

python -m e2e.podchaos                                       the published figure
python -m e2e.podchaos --events 2000 --deletions 6           a quick look
python -m e2e.podchaos --seed 4711                           the same order of deletions again

Exits 1 on any finding; build/podchaos then has the logs of all pods and all that is needed to look into it.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
from pathlib import Path

from rich.console import Console

from e2e.chaos.report import show, write
from e2e.cluster import Cluster
from e2e.cluster.building import build
from e2e.podchaos.deletions import Options
from e2e.podchaos.run import run
from eventbus.errors import EventBusError

WORKSPACE = Path("build/podchaos")
REPORT = Path("build/podchaos.json")


def main() -> None:
    options = _options()
    console = Console()
    shutil.rmtree(WORKSPACE, ignore_errors=True)
    WORKSPACE.mkdir(parents=True)
    try:
        build()
        with Cluster() as cluster:
            report, verdict = run(options, cluster, WORKSPACE, console)
    except EventBusError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
    write(report, REPORT)
    show(console, report, verdict)
    sys.exit(not verdict.clean)


def _options() -> Options:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    standard = Options(seed=random.randrange(10**6))
    arguments.add_argument("--seed", type=int, default=standard.seed, help="the order of the deletions")
    arguments.add_argument("--events", type=int, default=standard.events, help="published, at least so many")
    arguments.add_argument("--deletions", type=int, default=standard.deletions, help="of sensor pods, at least so many")
    arguments.add_argument("--replicas", type=int, default=standard.replicas, help="of the sensor, and partitions")
    arguments.add_argument(
        "--dependencies", type=int, default=standard.dependencies, help="all && combinations of them"
    )
    arguments.add_argument("--rate", type=float, default=standard.rate, help="events per second")
    return Options(**vars(arguments.parse_args()))


if __name__ == "__main__":
    main()
