"""`make chaos MINUTES=…`: real brokers, real replicas, faults of every kind; writes build/chaos.json.

Exits 1 on any finding.

python -m e2e.chaos --minutes 60              the published figure
python -m e2e.chaos --minutes 3 --seed 4711   the same order of faults again
"""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import sys
import time
from pathlib import Path

from rich.console import Console

from e2e.chaos.evidence import keep
from e2e.chaos.failover import FailoverMeasurement, Failovers
from e2e.chaos.manifest import Mode
from e2e.chaos.report import Teller, document, show, write
from e2e.chaos.storm import Aftermath, Options, Storm
from e2e.chaos.verdict import Findings, judge
from eventbus.broker import EmbeddedBroker

WORKSPACE = Path("build/chaos")
FAILOVERS = 3
"""How often each kind of failover is measured; the worst one counts."""


def main() -> None:
    options = _options()
    console = Console()
    console.print(f"seed {options.seed}")
    shutil.rmtree(WORKSPACE, ignore_errors=True)
    WORKSPACE.mkdir(parents=True)
    report, findings = run(options, WORKSPACE, console)
    write(report)
    show(console, report, findings)
    sys.exit(not findings.clean)


def run(options: Options, directory: Path, console: Console) -> tuple[dict[str, object], Findings]:
    """The directory gets the logs of the replicas and, where something is found, what is needed to look into it."""
    began = time.monotonic()
    with EmbeddedBroker(nodes=3, ephemeral=True) as broker, Teller(console) as teller:
        failovers = asyncio.run(_failovers(broker, directory))
        aftermath = asyncio.run(_storm(options, broker, directory, teller))
    findings = judge(aftermath.evidence)
    findings.unexplained += [*aftermath.unexplained, *failovers.findings()]
    if not findings.clean:
        keep(aftermath.evidence, directory)
    report = document(options, aftermath, findings, time.monotonic() - began)
    report |= {
        "failover_same_slot_seconds": round(max(failovers.same_slot), 2),
        "failover_survivor_seconds": round(max(failovers.survivor), 2),
    }
    return report, findings


def _options() -> Options:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--minutes", type=float, default=3.0, help="how long the faults last")
    arguments.add_argument("--seed", type=int, default=random.randrange(10**6), help="the order of the faults")
    arguments.add_argument("--dependencies", type=int, default=3, help="each combination of them is a trigger")
    arguments.add_argument("--partitions", type=int, default=5, help="of every topic; the most replicas there are")
    arguments.add_argument("--rate", type=float, default=60.0, help="events per second")
    arguments.add_argument("--mode", type=Mode, choices=list(Mode), default=Mode.BOTH)
    return Options(**vars(arguments.parse_args()))


async def _failovers(broker: EmbeddedBroker, directory: Path) -> Failovers:
    return await FailoverMeasurement(broker, directory).run(FAILOVERS)


async def _storm(options: Options, broker: EmbeddedBroker, directory: Path, teller: Teller) -> Aftermath:
    return await Storm(options, broker, directory, teller.tell).run()


if __name__ == "__main__":
    main()
