"""A whole run: failovers are measured, a storm goes by, the verdict is spoken."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from rich.console import Console

from e2e.chaos.evidence import keep
from e2e.chaos.failover import FailoverMeasurement, Failovers
from e2e.chaos.processes import processes
from e2e.chaos.report import Teller, document
from e2e.chaos.storm import Aftermath, Options, Storm
from e2e.chaos.verdict import verdict_on
from eventbus.broker import EmbeddedBroker
from sensors.audit.verdict import Verdict

FAILOVERS = 3
"""How often each kind of failover is measured; the worst one counts."""


def run(
    options: Options, directory: Path, console: Console, *, failovers: int = FAILOVERS
) -> tuple[dict[str, object], Verdict]:
    """The directory gets the logs of the replicas and, where something is found, what is needed to look into it.

    What a failover takes can be told only on a machine that does nothing else: elsewhere `failovers` is 0.
    """
    began = time.monotonic()
    console.print(f"seed {options.seed}")
    with EmbeddedBroker(nodes=3, ephemeral=True) as broker, Teller(console) as teller:
        measured = asyncio.run(_failovers(broker, directory, failovers)) if failovers else None
        aftermath = asyncio.run(_storm(options, broker, directory, teller))
    complaints = [*aftermath.unexplained, *(measured.findings() if measured else ())]
    verdict = verdict_on(aftermath.evidence, aftermath.concurrent, complaints)
    if not verdict.clean:
        keep(aftermath.evidence, directory)
    return document(options, measured, aftermath, verdict, time.monotonic() - began), verdict


async def _failovers(broker: EmbeddedBroker, directory: Path, rounds: int) -> Failovers:
    return await FailoverMeasurement(broker, directory).run(rounds)


async def _storm(options: Options, broker: EmbeddedBroker, directory: Path, teller: Teller) -> Aftermath:
    scene = processes(options, broker, directory)
    return await Storm(scene, rate=options.rate, seed=options.seed, tell=teller.tell).run()
